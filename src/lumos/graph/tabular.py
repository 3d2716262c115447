"""A graph from tables: edges, and labels and features beside them."""

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lumos.errors import InputError
from lumos.graph.feature_columns import prepared
from lumos.graph.feature_files import FeatureFile
from lumos.graph.graph import Graph
from lumos.graph.ids import Ids, lookup, shown
from lumos.graph.label_file import LabelRows
from lumos.graph.neighbour_lists import distinct
from lumos.graph.options import ReadOptions
from lumos.graph.text_table import TextTable, id_of, integer_pairs, sorted_ids
from lumos.typing import Ints

DIRECTED_COMMENT = re.compile(r"directed\b(?!\W*(false|no|0)\b)", re.IGNORECASE)


def graph_of_tables(
    *,
    name: str,
    edges: TextTable,
    labels: LabelRows | None,
    features: FeatureFile | None,
    want_features: bool,
    integers: bool,
    options: ReadOptions,
    notes: tuple[str, ...] = (),
) -> Graph:
    """Put a graph together.

    The devices are those of the label file; without one, those of the feature file; without
    either, those that the edges name. An edge or a feature row of any other device is refused.
    With missing_labels="unknown" the devices are those that any of the files names.
    """
    pairs = read_edges(edges, options, integers=integers)
    ids = devices_of_tables(pairs, labels, features, integers, options)
    beside = labels.table.file if labels is not None else features.file if features else edges.file
    indices = _indices(edges, pairs, ids, beside, options if labels is not None else None)
    known = known_of_devices(ids, labels, features if want_features else None, options)
    graph = Graph.from_indices(
        indices,
        ids,
        features=known.features,
        labels=known.labels,
        classes=known.classes,
        name=name,
        notes=notes + edges.notes + known.notes,
    )
    if graph.edges == 0:
        raise InputError(f"{edges.file}: every row joins a device to itself; no edge is left")
    return graph


class Known(NamedTuple):
    """What tables say of devices."""

    features: Any
    """[devices, width], or None."""
    labels: Ints | None
    classes: tuple[str, ...]
    notes: tuple[str, ...]


def known_of_devices(
    ids: Ids, labels: LabelRows | None, features: FeatureFile | None, options: ReadOptions
) -> Known:
    """Features and labels of the devices `ids`, in this order."""
    matrix: Any = None
    more: tuple[str, ...] = ()
    if features is not None:
        matrix, more = _features(features, ids, options)
    if labels is None or options.no_labels:
        return Known(matrix, None, (), more)
    known = labels.labelled(ids if isinstance(ids, tuple) else ids.tolist(), options)
    return Known(matrix, known.labels, known.classes, known.notes + more)


def devices_of_tables(
    pairs: Any,
    labels: LabelRows | None,
    features: FeatureFile | None,
    integers: bool,
    options: ReadOptions,
) -> Ids:
    """Return the ids of all devices, ascending."""
    if labels is None and features is None and integers:
        # Millions of edges: a set of Python integers would take a gigabyte.
        return distinct(pairs.ravel())
    everything = labels is not None and options.missing_labels == "unknown"
    listed: set[Any] = set() if labels is None else set(labels.ids)
    if features is not None and (labels is None or everything):
        listed |= features.ids()
    if everything or (labels is None and features is None):
        listed.update(pairs.ravel().tolist())
    return sorted_ids(listed, integers)


def _features(features: FeatureFile, ids: Ids, options: ReadOptions) -> tuple[Any, tuple[str, ...]]:
    """[devices, width] as the options want them, and notes."""
    columns, notes = features.columns(ids)
    matrix, more = prepared(columns, options, features.file)
    return matrix, notes + more


def _indices(
    edges: TextTable, pairs: Any, ids: Ids, beside: str, options: ReadOptions | None
) -> Any:
    """[rows, 2]: the pairs as indices; an unknown id is refused with its line."""
    indices = lookup(pairs.ravel(), ids)
    unknown = np.flatnonzero(indices < 0)
    if len(unknown):
        row = int(unknown[0]) // 2
        value = pairs.ravel()[unknown[0]]
        remedy = "add a row for it"
        if options is not None:
            remedy += (
                ", with an empty label if that is unknown, or read such labels as unknown with "
                "`missing_labels='unknown'`"
            )
        edges.refuse(
            line_of_row(edges, row),
            f"the id {shown(value)} is not among those of {beside}; {remedy}",
        )
    return indices.reshape(-1, 2)


def read_edges(table: TextTable, options: ReadOptions, *, integers: bool) -> NDArray[Any]:
    """[rows, 2] of int64 or text: the pairs of ids in a table.

    Whether (u, v) or (v, u) is written makes no difference, and both may be. The table is directed
    only where it says so: by a comment that starts with "Directed" (as SNAP writes it), or by a
    column `type` that holds "Directed" (as Gephi writes it). Other columns than the first two are
    weights.
    """
    for line, comment in table.comments:
        if DIRECTED_COMMENT.match(comment):
            _refuse_directed(table, line, comment, options)
    if integers and len(table.header) in (0, 2):
        fast = integer_pairs(table)
        if fast is not None:
            return fast
    kind = table.header.index("type") if "type" in table.header[2:] else None
    pairs: list[tuple[int | str, int | str]] = []
    for line, row in table.rows():
        if len(row) < 2:
            table.refuse(line, f"{shown(row[0])} is one id; an edge needs two")
        for column, cell in enumerate(row[2:], start=2):
            if column == kind:
                if cell.casefold() == "directed":
                    _refuse_directed(table, line, cell, options)
            elif cell and options.weights == "refuse":
                table.refuse(
                    line,
                    f"{shown(cell)} in column {column + 1} is a weight, and Lumos has none; "
                    "drop weights with `weights='drop'`",
                )
        u, v = (id_of(cell, table, line, integers) for cell in row[:2])
        pairs.append((u, v))
    if not pairs:
        table.refuse(table.first_line, "there is no edge; the graph is empty")
    return np.array(pairs, dtype=np.int64 if integers else np.str_)


def _refuse_directed(table: TextTable, line: int, value: str, options: ReadOptions) -> None:
    if options.directed == "refuse":
        table.refuse(
            line,
            f"{shown(value)}: the graph is directed; read each arc as an undirected edge with "
            "`directed='symmetrise'`",
        )


def line_of_row(table: TextTable, index: int) -> int:
    """Line on which row `index` (from 0) of a table stands; looked up only for an error."""
    for number, (line, _) in enumerate(table.rows()):
        if number == index:
            return line
    raise InputError(f"{table.file}: there is no row {index}")
