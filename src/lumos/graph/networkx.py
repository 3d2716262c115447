"""A graph from NetworkX, which is never imported: the object brings its own methods."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos.errors import InputError
from lumos.graph.graph import Graph
from lumos.graph.ids import Ids, shown, unique_ids
from lumos.graph.labels import encode
from lumos.graph.options import ReadOptions
from lumos.graph.tables import LARGEST_ID

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
            it, is refused unless missing_labels="unknown".
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
            'directed="symmetrise"'
        )
    nodes = list(graph.nodes)
    number = {node: index for index, node in enumerate(nodes)}
    pairs = []
    for u, v, value in graph.edges(data=weight, default=_ABSENT):
        if value is not _ABSENT and permissions.weights == "refuse":
            raise InputError(
                f"the edge {shown(u)}–{shown(v)} has the weight {shown(value)}, and Lumos has "
                'none; drop weights with weights="drop"'
            )
        pairs.append((number[u], number[v]))
    classes: tuple[str, ...] = ()
    known = None
    names = _labels(graph, labels, permissions)
    if names is not None:
        known, classes = encode(names)
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
    vectors: list[NDArray[np.float64]] = []
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


def _labels(graph: Any, attribute: str | None, options: ReadOptions) -> list[str | None] | None:
    """[devices] names of classes if the nodes carry the attribute, else None."""
    if attribute is None or all(attribute not in data for _, data in graph.nodes(data=True)):
        return None
    names: list[str | None] = []
    for node, data in graph.nodes(data=True):
        if attribute not in data and options.missing_labels == "refuse":
            raise InputError(
                f"node {shown(node)} has no {attribute!r}, but others have; set it to None if it "
                'is unknown, or pass missing_labels="unknown"'
            )
        value = data.get(attribute)
        if isinstance(value, list | tuple | set | frozenset):
            if options.multilabel == "refuse":
                raise InputError(
                    f"node {shown(node)} has several labels ({shown(value)}); keep the first with "
                    'multilabel="first"'
                )
            value = next(
                iter(sorted(value, key=str) if isinstance(value, set | frozenset) else value), None
            )
        if isinstance(value, float | np.floating):
            raise InputError(f"node {shown(node)}: the label {value} is no class; use an integer")
        names.append(None if value is None or str(value) in ("", "-1") else str(value))
    return names
