"""Graphs from NetworkX and to it. Reading imports nothing: the object brings its own methods."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import is_sparse
from lumos.graph.feature_columns import prepared
from lumos.graph.graph import Graph
from lumos.graph.ids import Ids, shown, unique_ids
from lumos.graph.node_attributes import (
    CLASS_NAMES,
    attributes_of,
    networkx_features,
    networkx_labels,
)
from lumos.graph.options import ReadOptions
from lumos.graph.text_table import LARGEST_ID

_ABSENT = object()


def from_networkx(
    graph: Any,
    *,
    features: str | Sequence[str] | None = "x",
    labels: str | None = "y",
    weight: str = "weight",
    name: str = "",
    **options: Any,
) -> Graph:
    """Convert a NetworkX graph; devices keep the order of its nodes.

    Args:
        graph: a `networkx.Graph` or `MultiGraph` (parallel edges are duplicates). A `DiGraph` is
            directed: it is refused unless directed="symmetrise".
        features: node attribute with a number or a list of numbers, or several such attributes,
            whose columns are joined; on all nodes, or, if it is `x`, on none. Text is refused
            unless `categorical` lists the attribute.
        labels: node attribute with the class; None, NaN, -1 or "" is unknown. A list or set of
            classes is refused unless multilabel="first"; a node without the attribute, where others
            have it, is refused unless missing_labels="unknown". Classes are sorted by name, or in
            the order of the graph attribute `class_names`. The option `label_column` says the same.
        weight: edge attribute; its presence makes the graph weighted, and it is refused unless
            weights="drop".
        name: what the graph is called; otherwise its own name.
        options: the fields of `ReadOptions`.

    Where the nodes have neither `x` nor `y`, a note lists the attributes that they have.
    """
    permissions = ReadOptions.of(options)
    if not (hasattr(graph, "nodes") and hasattr(graph, "edges") and hasattr(graph, "is_directed")):
        raise InputError(f"a NetworkX graph is needed; got {type(graph).__name__}")
    if graph.is_directed() and permissions.directed == "refuse":
        raise InputError(
            "the NetworkX graph is directed; read each arc as an undirected edge with "
            "`directed='symmetrise'`"
        )
    nodes = list(graph.nodes)
    number = {node: index for index, node in enumerate(nodes)}
    pairs = []
    for u, v, value in graph.edges(data=weight, default=_ABSENT):
        if value is not _ABSENT and permissions.weights == "refuse":
            raise InputError(
                f"the edge {shown(u)}–{shown(v)} has the weight {shown(value)}, and Lumos has "
                "none; drop weights with `weights='drop'`"
            )
        pairs.append((number[u], number[v]))
    if not nodes:
        raise InputError("the NetworkX graph is empty; it needs at least one node")
    ids = _ids(nodes)
    labelled = networkx_labels(graph, permissions.label_column or labels, permissions)
    notes = () if labelled is None else labelled.notes
    matrix = None
    columns = networkx_features(graph, features, permissions)
    if columns is not None:
        matrix, more = prepared(columns, permissions, "features")
        notes += more
    if columns is None and labelled is None and (seen := attributes_of(graph)):
        notes += (f"no node attribute is used; features= and labels= may name them: {seen}",)
    return Graph.from_indices(
        np.array(pairs, dtype=np.int64).reshape(-1, 2),
        ids,
        features=matrix,
        labels=None if labelled is None else labelled.labels,
        classes=() if labelled is None else labelled.classes,
        # A DiGraph may hold u → v and v → u as the two arcs of each edge.
        both_directions=graph.is_directed(),
        name=name or str(getattr(graph, "name", "")),
        notes=notes,
    )


def to_networkx(graph: Graph, *, features: str | None = "x", labels: str | None = "y") -> Any:
    """Convert to a `networkx.Graph`, which `from_networkx` reads back.

    Nodes are the original ids, in the order of devices; devices without edges are nodes too. The
    graph attribute `class_names` keeps the order of the classes.

    Args:
        features: node attribute for the features, a float32 array [feature_count], also where
            they are sparse: all of them take devices · feature_count · 4 bytes. None leaves them
            out.
        labels: node attribute for the name of the class, None where it is unknown. None leaves
            labels out.

    Raises:
        UsageError: NetworkX is not installed.
    """
    try:
        import networkx
    except ImportError:
        raise UsageError("to_networkx needs NetworkX; type: pip install networkx") from None
    ids: list[Any] = list(graph.ids) if isinstance(graph.ids, tuple) else graph.ids.tolist()
    made = networkx.Graph(name=graph.name)
    made.add_nodes_from(ids)
    made.add_edges_from((ids[u], ids[v]) for u, v in graph.edge_list().tolist())
    if features is not None and graph.features is not None:
        stored: Any = graph.features
        rows = stored.toarray() if is_sparse(stored) else stored.copy()
        for node, row in zip(ids, rows, strict=True):
            made.nodes[node][features] = row
    if labels is not None and graph.labels is not None:
        made.graph[CLASS_NAMES] = list(graph.classes)
        for node, label in zip(ids, graph.labels.tolist(), strict=True):
            made.nodes[node][labels] = None if label < 0 else graph.classes[label]
    return made


def _ids(nodes: list[Any]) -> Ids:
    if all(isinstance(node, int | np.integer) and not isinstance(node, bool) for node in nodes):
        if max(map(abs, nodes)) > LARGEST_ID:
            raise InputError(f"the id {shown(max(map(abs, nodes)))} is too large; use text")
        return unique_ids(np.array(nodes, dtype=np.int64))
    return unique_ids([str(node) for node in nodes])
