"""Graphs from NetworkX and to it. Reading imports nothing: the object brings its own methods."""

from typing import Any

import numpy as np

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import is_sparse
from lumos.graph.graph import Graph
from lumos.graph.ids import Ids, shown, unique_ids
from lumos.graph.labels import UNKNOWN, declared_classes, encode
from lumos.graph.options import ReadOptions
from lumos.graph.text_table import LARGEST_ID
from lumos.typing import Doubles, Ints

CLASS_NAMES = "class_names"
"""Graph attribute: the names of the classes, in the order of their index."""
_ABSENT = object()


def from_networkx(
    graph: Any,
    *,
    features: str | None = "x",
    labels: str | None = "y",
    weight: str = "weight",
    name: str = "",
    **options: Any,
) -> Graph:
    """Convert a NetworkX graph; devices keep the order of its nodes.

    Args:
        graph: a `networkx.Graph` or `MultiGraph` (parallel edges are duplicates). A `DiGraph` is
            directed: it is refused unless directed="symmetrise".
        features: node attribute with a list of numbers; on all nodes, or on none.
        labels: node attribute with the class; None, -1 or "" is unknown. A list or set of classes
            is refused unless multilabel="first"; a node without the attribute, where others have
            it, is refused unless missing_labels="unknown". Classes are sorted by name, or in the
            order of the graph attribute `class_names`.
        weight: edge attribute; its presence makes the graph weighted, and it is refused unless
            weights="drop".
        name: what the graph is called; otherwise its own name.
        options: the fields of `ReadOptions`.
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
    declared = declared_classes(graph.graph.get(CLASS_NAMES), CLASS_NAMES)
    classes: tuple[str, ...] = ()
    known = None
    names = _labels(graph, labels, permissions, declared)
    if names is not None:
        known, classes = _encoded(names, declared)
    if not nodes:
        raise InputError("the NetworkX graph is empty; it needs at least one node")
    return Graph.from_indices(
        np.array(pairs, dtype=np.int64).reshape(-1, 2),
        _ids(nodes),
        features=_features(graph, features),
        labels=known,
        classes=classes,
        # A DiGraph may hold u → v and v → u as the two arcs of each edge.
        both_directions=graph.is_directed(),
        name=name or str(getattr(graph, "name", "")),
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


def _features(graph: Any, attribute: str | None) -> Any:
    """[devices, width] if the nodes carry the attribute, else None."""
    if attribute is None:
        return None
    rows = [(node, data[attribute]) for node, data in graph.nodes(data=True) if attribute in data]
    if not rows:
        return None
    if len(rows) < len(graph):
        node = next(node for node, data in graph.nodes(data=True) if attribute not in data)
        raise InputError(f"node {shown(node)} has no {attribute!r}, but others have; add it")
    vectors: list[Doubles] = []
    for node, value in rows:
        try:
            vector = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"node {shown(node)}: {shown(value)} is no list of numbers") from None
        if vector.ndim != 1 or (vectors and len(vector) != len(vectors[0])):
            raise InputError(f"node {shown(node)}: {attribute!r} has shape {list(vector.shape)}")
        if not np.all(np.isfinite(vector)):
            raise InputError(f"node {shown(node)}: {attribute!r} holds NaN or infinity; replace it")
        vectors.append(vector)
    return np.array(vectors)


def _labels(
    graph: Any, attribute: str | None, options: ReadOptions, declared: tuple[str, ...]
) -> list[str | None] | None:
    """[devices] names of classes if the nodes carry the attribute, else None."""
    if attribute is None or all(attribute not in data for _, data in graph.nodes(data=True)):
        return None
    names: list[str | None] = []
    for node, data in graph.nodes(data=True):
        if attribute not in data and options.missing_labels == "refuse":
            raise InputError(
                f"node {shown(node)} has no {attribute!r}, but others have; set it to None if it "
                "is unknown, or pass `missing_labels='unknown'`"
            )
        value = data.get(attribute)
        if isinstance(value, list | tuple | set | frozenset):
            if options.multilabel == "refuse":
                raise InputError(
                    f"node {shown(node)} has several labels ({shown(value)}); keep the first with "
                    "`multilabel='first'`"
                )
            value = next(
                iter(sorted(value, key=str) if isinstance(value, set | frozenset) else value), None
            )
        if isinstance(value, float | np.floating):
            raise InputError(f"node {shown(node)}: the label {value} is no class; use an integer")
        name = None if value is None else str(value)
        names.append(None if name in UNKNOWN and name not in declared else name)
    return names


def _encoded(names: list[str | None], declared: tuple[str, ...]) -> tuple[Ints, tuple[str, ...]]:
    """[devices] the index of each class, -1 for None, and the names of the classes."""
    if not declared:
        return encode(names)
    number: dict[str | None, int] = {name: index for index, name in enumerate(declared)}
    number[None] = -1
    for name in names:
        if name not in number:
            raise InputError(f"{CLASS_NAMES}: the label {shown(name)} is not among them; add it")
    return np.array([number[name] for name in names], dtype=np.int64), declared
