"""Graphs from NetworkX and to it. Reading imports nothing: the object brings its own methods."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import Ids, is_sparse, shown, unique_ids
from lumos.graph.features import Columns, prepared
from lumos.graph.graph import Graph
from lumos.graph.io import ReadOptions, directed, weighted
from lumos.graph.io.text_table import MAX_ID
from lumos.graph.labels import (
    UNKNOWN,
    Labelled,
    LabelSource,
    declared_classes,
    in_type_of,
    indices_of_names,
    label_classes,
)
from lumos.typing import Doubles

_ABSENT = object()
AUTO = "auto"
"""As `features` or `labels`: the first usual attribute that a node has."""
USUAL_FEATURES, USUAL_LABELS = ("x", "features"), ("y", "label")
CLASS_NAMES = "class_names"
"""Graph attribute: the names of the classes, in the order of their index."""


def from_networkx(
    graph: Any,
    *,
    features: str | Sequence[str] | None = AUTO,
    labels: str | None = AUTO,
    weight: str = "weight",
    name: str = "",
    **options: Any,
) -> Graph:
    """Convert a NetworkX graph; devices keep the order of its nodes.

    Args:
        graph: a `networkx.Graph` or `MultiGraph` (parallel edges are duplicates). A `DiGraph` is
            directed: it is refused unless directed="symmetrise".
        features: node attribute with a number or a list of numbers, or several such attributes,
            whose columns are joined; on all nodes. Text is refused unless `categorical` lists the
            attribute. auto: `x` or `features`, if the nodes have one of them. None: no features.
        labels: node attribute with the class; None, NaN, -1 or "" is unknown. A list or set of
            classes is refused unless multilabel="first"; a node without the attribute, where others
            have it, is refused unless missing_labels="unknown". Classes are sorted by name, or in
            the order of the graph attribute `class_names`. The option `label_column` says the same.
            auto: `y` or `label`, if the nodes have one of them. None: no labels.
        weight: edge attribute; its presence makes the graph weighted, and it is refused unless
            weights="drop".
        name: what the graph is called; otherwise its own name.
        options: the fields of `ReadOptions`.

    Where no usual attribute is found, a note lists the attributes that the nodes have.
    """
    permissions = ReadOptions.of(options)
    if not (hasattr(graph, "nodes") and hasattr(graph, "edges") and hasattr(graph, "is_directed")):
        raise InputError(f"a NetworkX graph is needed; got {type(graph).__name__}")
    if graph.is_directed() and permissions.directed == "refuse":
        raise directed("the NetworkX graph is directed")
    nodes = list(graph.nodes)
    number = {node: index for index, node in enumerate(nodes)}
    pairs = []
    for u, v, value in graph.edges(data=weight, default=_ABSENT):
        if value is not _ABSENT and permissions.weights == "refuse":
            raise weighted(f"the edge {shown(u)}–{shown(v)} has the weight {shown(value)}")
        pairs.append((number[u], number[v]))
    if not nodes:
        raise InputError("the NetworkX graph is empty; it needs at least one node")
    ids = _ids(nodes)
    notes: tuple[str, ...] = ()
    if features == AUTO:
        features, notes = _usual(graph, USUAL_FEATURES, "features")
    labels = permissions.label_column or labels
    if labels == AUTO:
        labels, more = _usual(graph, USUAL_LABELS, "labels")
        notes += more
    labelled = networkx_labels(graph, labels, permissions)
    notes += () if labelled is None else labelled.notes
    matrix = None
    columns = networkx_features(graph, features, permissions)
    if columns is not None:
        matrix, more = prepared(columns, permissions, "features")
        notes += more
    return Graph.from_indices(
        np.array(pairs, dtype=np.int64).reshape(-1, 2),
        ids,
        features=matrix,
        labels=None if labelled is None else labelled.labels,
        classes=() if labelled is None else labelled.classes,
        class_values=None if labelled is None else labelled.values,
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
        if max(map(abs, nodes)) > MAX_ID:
            raise InputError(f"the id {shown(max(map(abs, nodes)))} is too large; use text")
        return unique_ids(np.array(nodes, dtype=np.int64))
    return unique_ids([str(node) for node in nodes])


def _usual(
    graph: Any, names: Sequence[str], what: Literal["features", "labels"]
) -> tuple[str | None, tuple[str, ...]]:
    """Return the first of some attributes that a node has, or None; and notes."""
    found = [name for name in names if any(name in data for _, data in graph.nodes(data=True))]
    if len(found) > 1:
        return found[0], (f"{what} are the attribute {found[0]!r}, not {found[1]!r}",)
    if found:
        return found[0], ()
    seen = attributes_of(graph, *USUAL_FEATURES, *USUAL_LABELS)
    if not seen:
        return None, ()
    wanted = " or ".join(map(repr, names))
    return None, (
        f"{what} absent: no node has the attribute {wanted}; `{what}` may name one of: {seen}",
    )


def attributes_of(graph: Any, *but: str) -> str:
    """Return the names of all node attributes `but` some, as messages list them."""
    names = dict.fromkeys(str(name) for _, data in graph.nodes(data=True) for name in data)
    return ", ".join(name for name in names if name not in but)


def networkx_features(
    graph: Any, attributes: str | Sequence[str] | None, options: ReadOptions
) -> Columns | None:
    """Return the features in one or several node attributes, or None."""
    if attributes is None:
        return None
    names = [attributes] if isinstance(attributes, str) else list(attributes)
    present = {name: any(name in data for _, data in graph.nodes(data=True)) for name in names}
    for name in names:
        if not present[name]:
            raise _absent(graph, name)
    categorical = {column.casefold() for column in options.categorical_columns}
    blocks: list[Doubles] = []
    titles: list[str] = []
    texts: dict[int, list[str | None]] = {}
    for name in names:
        if name.casefold() in categorical:
            texts[len(titles)] = [_text(value) for _, value in _values(graph, name)]
            block = np.zeros((len(graph), 1))
        else:
            block = _numbers(graph, name)
        blocks.append(block)
        width = block.shape[1]
        titles += [name] if width == 1 else [f"{name}[{column}]" for column in range(width)]
    return Columns(np.hstack(blocks), titles, texts=texts)


def networkx_labels(graph: Any, attribute: str | None, options: ReadOptions) -> Labelled | None:
    """Return the classes in a node attribute, or None."""
    declared = declared_classes(graph.graph.get(CLASS_NAMES), CLASS_NAMES)
    if attribute is None or options.no_labels:
        return None
    if all(attribute not in data for _, data in graph.nodes(data=True)):
        raise _absent(graph, attribute)
    nodes = list(graph.nodes)
    raw = np.empty(len(nodes), object)
    raw[:] = [_label(node, data, attribute, options) for node, data in graph.nodes(data=True)]
    values = [_text(value) for value in raw]
    if declared and options.label_bins is None:
        names = [None if v in UNKNOWN and v not in declared else v for v in values]
        return Labelled(*indices_of_names(names, declared, CLASS_NAMES))
    more = attributes_of(graph, attribute)
    source = LabelSource(
        name=f"labels: {attribute!r}",
        place=lambda row: f"node {shown(nodes[row])}: the label",
        other=f"name another attribute as labels= (seen: {more})" if more else "",
        ids=[str(node) for node in nodes],
    )
    found = label_classes(values, source, options)
    return found if options.label_bins else in_type_of(raw, found)


def _absent(graph: Any, name: str) -> InputError:
    seen = attributes_of(graph) or "none"
    return InputError(f"no node has the attribute {name!r}; the attributes are: {seen}")


def _values(graph: Any, name: str) -> list[tuple[Any, Any]]:
    """Return every node with its attribute."""
    for node, data in graph.nodes(data=True):
        if name not in data:
            raise InputError(f"node {shown(node)} has no {name!r}, but others have; add it")
    return [(node, data[name]) for node, data in graph.nodes(data=True)]


def _numbers(graph: Any, name: str) -> Doubles:
    """Return [devices, width] of one attribute: a number, or a list of numbers."""
    vectors: list[Doubles] = []
    for node, value in _values(graph, name):
        if isinstance(value, str):
            raise InputError(
                f"node {shown(node)}: {name!r} is {shown(value)}, no number; if it holds "
                f"categories, use `categorical={name!r}`"
            )
        try:
            vector = np.atleast_1d(np.asarray(value, dtype=np.float64))
        except (TypeError, ValueError):
            raise InputError(f"node {shown(node)}: {shown(value)} is no list of numbers") from None
        if vector.ndim != 1 or (vectors and len(vector) != len(vectors[0])):
            raise InputError(f"node {shown(node)}: {name!r} has shape {list(vector.shape)}")
        if not np.all(np.isfinite(vector)):
            raise InputError(f"node {shown(node)}: {name!r} holds NaN or infinity; replace it")
        vectors.append(vector)
    return np.array(vectors)


def _text(value: Any) -> str | None:
    """Return a number or text as text; 2.0 is 2, and NaN is None."""
    if value is None or (isinstance(value, float | np.floating) and value != value):
        return None
    if isinstance(value, float | np.floating):
        value = float(value)
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def _label(node: Any, data: dict[str, Any], attribute: str, options: ReadOptions) -> Any:
    """Return the label of a node; the first one of several."""
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
    if isinstance(value, float | np.floating) and np.isinf(value):
        raise InputError(f"node {shown(node)}: the label is {value}; set None if it is unknown")
    return value
