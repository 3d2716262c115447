"""Features and labels that stand in the node attributes of a NetworkX graph."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumos.errors import InputError
from lumos.graph.feature_columns import Columns
from lumos.graph.ids import shown
from lumos.graph.labels import (
    UNKNOWN,
    Labelled,
    LabelSource,
    declared_classes,
    indices_of_names,
    label_classes,
)
from lumos.graph.options import ReadOptions
from lumos.typing import Doubles

CLASS_NAMES = "class_names"
"""Graph attribute: the names of the classes, in the order of their index."""
USUAL_FEATURES, USUAL_LABELS = "x", "y"
"""Attributes that are read where they are present; any other must be there."""


def attributes_of(graph: Any, *but: str) -> str:
    """The names of all node attributes `but` some, as messages list them; "" without any."""
    names = dict.fromkeys(str(name) for _, data in graph.nodes(data=True) for name in data)
    return ", ".join(name for name in names if name not in but)


def networkx_features(
    graph: Any, attributes: str | Sequence[str] | None, options: ReadOptions
) -> Columns | None:
    """The features in one or several node attributes, or None."""
    if attributes is None:
        return None
    names = [attributes] if isinstance(attributes, str) else list(attributes)
    present = {name: any(name in data for _, data in graph.nodes(data=True)) for name in names}
    if names == [USUAL_FEATURES] and not present[USUAL_FEATURES]:
        return None
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
    return Columns(np.hstack(blocks), titles, 0, texts)


def networkx_labels(graph: Any, attribute: str | None, options: ReadOptions) -> Labelled | None:
    """The classes in a node attribute, or None."""
    declared = declared_classes(graph.graph.get(CLASS_NAMES), CLASS_NAMES)
    if attribute is None or options.no_labels:
        return None
    if all(attribute not in data for _, data in graph.nodes(data=True)):
        if attribute == USUAL_LABELS and options.label_column is None:
            return None
        raise _absent(graph, attribute)
    nodes = list(graph.nodes)
    values = [_label(node, data, attribute, options) for node, data in graph.nodes(data=True)]
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
    return label_classes(values, source, options)


def _absent(graph: Any, name: str) -> InputError:
    seen = attributes_of(graph) or "none"
    return InputError(f"no node has the attribute {name!r}; the attributes are: {seen}")


def _values(graph: Any, name: str) -> list[tuple[Any, Any]]:
    """Every node with its attribute."""
    for node, data in graph.nodes(data=True):
        if name not in data:
            raise InputError(f"node {shown(node)} has no {name!r}, but others have; add it")
    return [(node, data[name]) for node, data in graph.nodes(data=True)]


def _numbers(graph: Any, name: str) -> Doubles:
    """[devices, width] of one attribute: a number, or a list of numbers."""
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
    """A number or text as text; 2.0 is 2, and NaN is nothing."""
    if value is None or (isinstance(value, float | np.floating) and value != value):
        return None
    if isinstance(value, float | np.floating):
        value = float(value)
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def _label(node: Any, data: dict[str, Any], attribute: str, options: ReadOptions) -> str | None:
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
    return _text(value)
