"""An edge list with labels and features beside it.

    graph.csv             source,target     one edge per row; the order of the two is free
    graph.labels.csv      id,label          optional; an empty label (or -1) is unknown
    graph.features.csv    id,x1,x2,…        optional; a number in every cell
    graph.features.json   {"id": [words]}   or this: words numbered from 0
    graph.features.npz    features, ids     or this: arrays, or scipy's save_npz
    graph.nodes.csv       id,label,x1,…     or labels and features in one table

`graph_labels.csv` and `graph-labels.csv` are found too; beside `edges.csv` so are `labels.csv`,
`features.csv` and `nodes.csv`, beside `shop_edges.csv` `shop_labels.csv`. A folder with one such
list is a graph.

A first line may name the columns (see `table_of` and the option `header`); lines that start with #
are comments; commas, tabs, semicolons or blanks separate. Ids are integers if the first one is,
otherwise names. A label file may have more columns if its header or `label_column` tells which is
the label.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from lumos.errors import InputError
from lumos.graph.arrays import (
    Ids,
    distinct,
    finite_features,
    fits_float32,
    freeze,
    lookup,
    refuse_width,
    shown,
    unique_ids,
)
from lumos.graph.features import Columns, chosen_columns, prepared
from lumos.graph.graph import Graph
from lumos.graph.io import NOT_ASKED, ReadOptions, directed, weighted
from lumos.graph.io.folder import Folder, text_of
from lumos.graph.io.npz import arrays_of, sparse_of
from lumos.graph.io.text_table import INTEGER, MAX_ID, TextTable, table_of
from lumos.graph.labels import Labelled, LabelSource, label_classes

SUFFIXES = (".csv", ".tsv", ".txt", ".edges")
LISTS = ("edges", "edge_list", "edgelist")
"""Ends of names of edge lists, where the files beside are called after the rest."""
LABEL_COLUMNS = ("target", "label", "class", "y", "page_type", "mature")
"""Names of columns of labels; the last two are those of SNAP's files."""
DIRECTED_COMMENT = re.compile(r"directed\b(?!\W*(false|no|0)\b)", re.IGNORECASE)


class EdgeListFiles(NamedTuple):
    """An edge list and what lies beside it."""

    edges: TextTable
    labels: "LabelRows | None"
    features: "FeatureRows | None"
    """Read also where nobody wants features, but nothing else says which devices there are."""
    integers: bool
    """True if ids are integers."""
    notes: tuple[str, ...]


def read_edge_list(path: Path, *, features: bool, options: ReadOptions) -> Graph:
    """Read a graph from an edge list and the files beside it."""
    folder = Folder(path.parent)
    feature_file = _beside(folder, path, "features", ("csv", "json", "npz"))
    label_file = _beside(folder, path, "labels", ("csv",))
    node_file = _beside(folder, path, "nodes", ("csv",))
    if node_file:
        if label_file or feature_file:
            raise InputError(
                f"{path}: {node_file} holds labels and features, and so does "
                f"{label_file or feature_file}; keep one of them"
            )
        label_file = feature_file = node_file
    edges = read_table(folder, path.name, options, id_columns=2)
    labels = read_table(folder, label_file, options) if label_file else None
    integers = (
        edges.has_integer_ids(0) if labels is None else labels.has_integer_ids(id_column(labels))
    )
    notes: tuple[str, ...] = ()
    if not feature_file:
        notes = (f"features absent: there is no {path.stem}.features.csv, .json or .npz",)
    elif not features:
        notes = (NOT_ASKED,)
    if labels is None and not options.no_labels and (options.label_column or options.label_bins):
        raise InputError(
            f"{path}: there is no {path.stem}.labels.csv, so no label to choose; add it"
        )
    label_rows = None if labels is None else read_labels(labels, options, integers=integers)
    rows: FeatureRows | None = None
    if node_file and label_rows is not None:
        rows = _node_features(label_rows, integers, options) if features else None
        if features and rows is None:
            notes = (f"features absent: {node_file} has no column beside id and label",)
    elif feature_file and (features or labels is None):
        # Without labels the feature file says which devices there are, so it is read in any case.
        rows = _read_features(folder, feature_file, integers, options)
    files = EdgeListFiles(edges, label_rows, rows, integers, notes)
    return graph_of_tables(path.stem, files, want_features=features, options=options)


def read_table(
    folder: Folder, name: str, options: ReadOptions, *, id_columns: int = 1
) -> TextTable:
    """Read a text table of a folder."""
    file = folder.file(name)
    text = text_of(folder.read(name), file)
    return table_of(text, file, header=options.header, id_columns=id_columns)


def edge_list_in(folder: Path) -> Path | None:
    """Return the edge list of a folder that has exactly one, by its name; None otherwise."""
    found = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix in SUFFIXES and path.stem.casefold().endswith(LISTS)
    ]
    return found[0] if len(found) == 1 else None


def _beside(folder: Folder, path: Path, what: str, suffixes: tuple[str, ...]) -> str:
    """Return the name of the file with labels or features of an edge list; "" without one.

    Raises:
        InputError: there are several.
    """
    stems = [f"{path.stem}{mark}{what}" for mark in "._-"]
    for ending in LISTS:
        if path.stem.casefold().endswith(ending):
            stems.append(path.stem[: -len(ending)] + what)
    wanted = [f"{stem}.{suffix}" for stem in dict.fromkeys(stems) for suffix in suffixes]
    files = [name for name in wanted if name in folder.names()]
    if len(files) > 1:
        raise InputError(f"{path}: {what} in {' and '.join(files)}; keep one of them")
    return files[0] if files else ""


def graph_of_tables(
    name: str, files: EdgeListFiles, *, want_features: bool, options: ReadOptions
) -> Graph:
    """Return the graph of an edge list and the files beside it.

    The devices are those of the label file; without one, those of the feature file; without
    either, those that the edges name. An edge or a feature row of any other device is refused.
    With missing_labels="unknown" the devices are those that any of the files names.
    """
    edges, labels, features = files.edges, files.labels, files.features
    pairs = read_edges(edges, options, integers=files.integers)
    ids = _devices(pairs, labels, features, files.integers, options)
    indices = lookup(pairs.ravel(), ids)
    for place in np.flatnonzero(indices < 0)[:1]:
        edges.refuse(
            edges.line_of_row(int(place) // 2), _unknown_id(pairs.ravel()[place], labels, features)
        )
    matrix: Any = None
    notes: tuple[str, ...] = ()
    if features is not None and want_features:
        columns, notes = features.columns_of(ids)
        matrix, more = prepared(columns, options, features.file)
        notes += more
    known = None
    if labels is not None and not options.no_labels:
        known = labels.labelled(ids if isinstance(ids, tuple) else ids.tolist(), options)
        notes = known.notes + notes
    graph = Graph.from_indices(
        indices.reshape(-1, 2),
        ids,
        features=matrix,
        labels=None if known is None else known.labels,
        classes=() if known is None else known.classes,
        name=name,
        notes=files.notes + notes,
    )
    if graph.edges == 0:
        raise InputError(f"{edges.file}: every row joins a device to itself; no edge is left")
    return graph


def _unknown_id(value: Any, labels: "LabelRows | None", features: "FeatureRows | None") -> str:
    """Return the message about an id of the edges that the files beside them do not have."""
    beside = labels.table.file if labels is not None else features.file if features else ""
    remedy = "add a row for it"
    if labels is not None:
        remedy += (
            ", with an empty label if that is unknown, or read such labels as unknown with "
            "`missing_labels='unknown'`"
        )
    return f"the id {shown(value)} is not among those of {beside}; {remedy}"


def _devices(
    pairs: Any,
    labels: "LabelRows | None",
    features: "FeatureRows | None",
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
        listed.update(np.asarray(features.ids).tolist())
    if everything or (labels is None and features is None):
        listed.update(pairs.ravel().tolist())
    if integers:
        return np.array(sorted(listed), dtype=np.int64)
    return tuple(sorted(map(str, listed)))


def read_edges(table: TextTable, options: ReadOptions, *, integers: bool) -> NDArray[Any]:
    """Return [rows, 2] of int64 or text: the pairs of ids in a table.

    Whether (u, v) or (v, u) is written makes no difference, and both may be. The table is directed
    only where it says so: by a comment that starts with "Directed" (as SNAP writes it), or by a
    column `type` that holds "Directed" (as Gephi writes it). Other columns than the first two are
    weights.
    """
    for line, comment in table.comments:
        if DIRECTED_COMMENT.match(comment):
            _refuse_directed(table, line, comment, options)
    if integers and len(table.header) in (0, 2):
        fast = table.integer_pairs()
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
                place = f"{table.file}, line {line}: {shown(cell)} in column {column + 1}"
                raise weighted(f"{place} is a weight")
        u, v = (table.id_of(cell, line, integers) for cell in row[:2])
        pairs.append((u, v))
    if not pairs:
        table.refuse(table.first_line, "there is no edge; the graph is empty")
    return np.array(pairs, dtype=np.int64 if integers else np.str_)


def _refuse_directed(table: TextTable, line: int, value: str, options: ReadOptions) -> None:
    if options.directed == "refuse":
        raise directed(f"{table.file}, line {line}: {shown(value)}: the graph is directed")


@dataclass(frozen=True)
class LabelRows:
    """The rows of a label file."""

    table: TextTable
    ids: tuple[int | str, ...]
    lines: tuple[int, ...]
    values: tuple[str, ...]
    """The cell of each row, "" where it is unknown."""
    column: int
    notes: tuple[str, ...] = ()

    def labelled(self, ids: Sequence[Any], options: ReadOptions) -> Labelled:
        """Return the classes of the devices `ids`; a device without a row is unknown."""
        value = dict(zip(self.ids, self.values, strict=True))
        line = dict(zip(self.ids, self.lines, strict=True))
        header = self.table.header
        named = repr(header[self.column]) if self.column < len(header) else str(self.column + 1)
        others = f" (it has: {', '.join(header)})" if header else ""
        several = self.table.width() > 2
        source = LabelSource(
            name=f"column {named}",
            file=self.table.file,
            place=lambda row: f"{self.table.file}, line {line[ids[row]]}: the label",
            other=f"name another column with `label_column`{others}" if several else "",
            ids=ids,
        )
        found = label_classes([value.get(device) for device in ids], source, options)
        return Labelled(found.labels, found.classes, self.notes + found.notes)


def read_labels(
    table: TextTable,
    options: ReadOptions,
    *,
    integers: bool,
    ids: int | None = None,
    label: int | None = None,
) -> LabelRows:
    """Read the labels of a table; an empty cell, NaN or -1 is an unknown label.

    Args:
        integers: whether ids are integers in this graph.
        ids: index of the column with the ids, where it is known.
        label: index of the column with the labels, where it is known.
    """
    ids = id_column(table) if ids is None else ids
    note = ""
    if label is None:
        label, note = _label_column(table, ids, options)
    first: dict[int | str, tuple[int, str]] = {}
    repeated: set[int | str] = set()
    for line, row in table.rows():
        if len(row) <= max(ids, label):
            table.refuse(
                line,
                f"{len(row)} columns, but the id is in column {ids + 1} and the label in "
                f"column {label + 1}; leave the label empty if it is unknown",
            )
        device = table.id_of(row[ids], line, integers)
        value = row[label]
        if value.casefold() in ("inf", "-inf"):
            table.refuse(line, f"the label is {shown(value)}; leave it empty if it is unknown")
        if device in first:
            if value == first[device][1]:
                repeated.add(device)
            elif options.multilabel == "refuse":
                table.refuse(
                    line,
                    f"device {device}: more than one label ({shown(first[device][1])}, "
                    f"{shown(value)}); give each device one, or keep the first with "
                    "`multilabel='first'`",
                )
            continue
        first[device] = (line, value)
    return LabelRows(
        table=table,
        ids=tuple(first),
        lines=tuple(line for line, _ in first.values()),
        values=tuple(value for _, value in first.values()),
        column=label,
        notes=tuple(filter(None, [note, _repeats(len(repeated))])),
    )


def _repeats(devices: int) -> str:
    if not devices:
        return ""
    counted = "1 device is" if devices == 1 else f"{devices:,} devices are"
    return f"labels: {counted} listed more than once, with the same label"


def id_column(table: TextTable) -> int:
    """Return the index of the column with the ids: `new_id` (as Twitch has it), else the first."""
    return table.header.index("new_id") if "new_id" in table.header else 0


def _label_column(table: TextTable, ids: int, options: ReadOptions) -> tuple[int, str]:
    """Return the index of the column with the labels, and a note where its name decided.

    Raises:
        InputError: several columns may be meant, or the one that was asked for is not there.
    """
    header = table.header
    if options.no_labels:
        return ids, ""
    if options.label_column is not None:
        return _asked_column(table, options.label_column, ids), ""
    others = [column for column in range(table.width()) if column != ids]
    if len(others) < 2:
        return others[0] if others else 1, ""
    found = [
        column for column in others if column < len(header) and header[column] in LABEL_COLUMNS
    ]
    if len(found) == 1:
        return found[0], f"labels are the column {header[found[0]]!r} of {', '.join(header)}"
    has = ", ".join(header) or f"{table.width()} columns without names"
    wanted: str | int = header[others[0]] if header else others[0] + 1
    raise InputError(
        f"{table.file}, line 1: which column is the label? It has {has}; name one with "
        f"`label_column={wanted!r}`, or read no labels with `label_column='none'`"
    )


def _asked_column(table: TextTable, wanted: str, ids: int) -> int:
    """Return the index of the column that the caller named or numbered, from 1."""
    if wanted.casefold() in table.header:
        column = table.header.index(wanted.casefold())
    elif wanted.isdecimal() and 1 <= int(wanted) <= table.width():
        column = int(wanted) - 1
    else:
        has = ", ".join(table.header) or f"{table.width()} columns without names"
        table.refuse(1, f"there is no column {wanted!r}; `label_column` is one of: {has}")
    if column == ids:
        table.refuse(1, f"column {wanted!r} holds the ids; choose another as `label_column`")
    return column


@dataclass(frozen=True)
class FeatureRows:
    """The rows of a feature file, in the order of the file."""

    file: str
    ids: Ids
    """[rows]"""
    columns: Columns
    """[rows, width]; with one more row, of zeros, where devices without a row have no words."""
    place: Callable[[int], str]
    """Place of a row, as errors name it."""

    def columns_of(self, ids: Ids) -> tuple[Columns, tuple[str, ...]]:
        """Return the features in the order of `ids`, and notes."""
        for row in np.flatnonzero(lookup(np.asarray(self.ids), ids) < 0)[:1]:
            device = shown(self.ids[row])
            raise InputError(f"{self.place(int(row))}device {device} is not a device of this graph")
        rows = lookup(np.asarray(ids), self.ids)
        absent = np.flatnonzero(rows < 0)
        notes: tuple[str, ...] = ()
        if len(absent) and self.columns.matrix.shape[0] == len(self.ids):
            device = shown(np.asarray(ids)[absent[0]])
            raise InputError(f"{self.file}: device {device} has no row; add one")
        if len(absent):
            notes = (f"{len(absent)} devices have no entry in {self.file}: they hold no words",)
        columns = self.columns
        texts = {
            column: [cells[row] for row in rows.tolist()] for column, cells in columns.texts.items()
        }
        return replace(columns, matrix=columns.matrix[rows], texts=texts), notes


def _read_features(folder: Folder, name: str, integers: bool, options: ReadOptions) -> FeatureRows:
    file = folder.file(name)
    if name.endswith(".npz"):
        return _feature_archive(folder.read(name), file, integers)
    if name.endswith(".json"):
        return read_words(text_of(folder.read(name), file), file, integers=integers)
    return _number_table(read_table(folder, name, options), integers, options)


def _node_features(labels: LabelRows, integers: bool, options: ReadOptions) -> FeatureRows | None:
    """Read the features in a table that also has the labels; None if it has no further column."""
    ids = id_column(labels.table)
    if not set(range(labels.table.width())) - {ids, labels.column}:
        return None
    return _number_table(labels.table, integers, options, ids=ids, label=labels.column)


def _number_table(
    table: TextTable,
    integers: bool,
    options: ReadOptions,
    *,
    ids: int = 0,
    label: int = 0,
) -> FeatureRows:
    """Read a table with a number in each column but that of the ids, and that of the labels.

    Columns that the option `categorical` lists may hold anything.
    """
    whole = next((len(row) for _, row in table.rows()), 0)
    read = [column for column in range(whole) if column not in (ids, label)]
    width, numbers = len(read), [column + 1 for column in read]
    names = [table.header[column] for column in read if column < len(table.header)]
    names = names if len(names) == width else []
    wanted = options.categorical_columns
    chosen = chosen_columns(wanted, names, numbers, table.file) if width else []
    texts: dict[int, list[str | None]] = {column: [] for column in chosen}
    lines: dict[int | str, int] = {}
    rows: list[NDArray[np.float32]] = []
    for line, row in table.rows():
        if len(row) != whole or not width:
            table.refuse(line, f"{len(row) - 1} features, but the first row has {whole - 1}")
        device = table.id_of(row[ids], line, integers)
        if device in lines:
            table.refuse(line, f"device {shown(device)} occurs twice; give it one row")
        lines[device] = line
        cells = [row[column] for column in read]
        for column, kept in texts.items():
            kept.append(cells[column])
            cells[column] = "0"
        try:
            values = np.array([float(cell) for cell in cells])
        except ValueError:
            _refuse_cell(table, line, cells, names, numbers)
        if not fits_float32(values).all():
            _refuse_cell(table, line, cells, names, numbers)
        rows.append(values.astype(np.float32))
    places = tuple(lines.values())
    matrix = np.array(rows, np.float32).reshape(len(rows), width)
    columns = Columns(freeze(matrix, np.float32, own=True), names, numbers, texts)
    return FeatureRows(
        table.file,
        np.array([*lines], dtype=np.int64) if integers else tuple(map(str, lines)),
        columns,
        lambda row: f"{table.file}, line {places[row]}: ",
    )


def _refuse_cell(
    table: TextTable, line: int, cells: Sequence[str], names: Sequence[str], numbers: Sequence[int]
) -> NoReturn:
    """Raise the error for the first cell that is not a finite number."""
    for place, cell in enumerate(cells):
        number = numbers[place]
        name = names[place] if names else number
        category = f"if it holds categories, use `categorical={name!r}`"
        if not cell:
            table.refuse(
                line,
                f"the cell in column {number} is empty; write a number, as 0, or {category}",
            )
        try:
            finite = bool(fits_float32(float(cell)))
        except ValueError:
            table.refuse(line, f"{shown(cell)} in column {number} is not a number; {category}")
        if not finite:
            table.refuse(
                line, f"{shown(cell)} in column {number} is not a finite number; replace it"
            )
    raise AssertionError("all cells are numbers")


def _feature_archive(content: bytes, file: str, integers: bool) -> FeatureRows:
    """Read an npz with `features` [devices, width] and `ids`, or one written by scipy's `save_npz`.

    Without `ids` the rows belong to the ids 0, 1, 2, …
    """
    arrays = arrays_of(content, file)
    if "indptr" in arrays:
        features = sparse_of(arrays, file)
    elif "features" in arrays:
        features = arrays["features"]
    else:
        has = ", ".join(arrays) or "nothing"
        raise InputError(f"{file}: there is no array 'features' (it has: {has}); add it")
    rows = features.shape[0] if features.ndim else 0
    named = arrays.get("ids", np.arange(rows, dtype=np.int64))
    if named.shape != (rows,):
        raise InputError(f"{file}: ids: one id per row of features is needed, {rows}")
    try:
        ids = unique_ids(named)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    if isinstance(ids, tuple) == integers and rows:
        wanted = "integers" if integers else "names"
        raise InputError(f"{file}: ids: {wanted} are needed, as in the edges")
    features = finite_features(features, len(ids), f"{file}: features")
    return FeatureRows(file, ids, Columns(features), lambda _: f"{file}: ids: ")


def read_words(text: str, file: str, *, integers: bool, width: int | None = None) -> FeatureRows:
    """Read a JSON object from id to the list of the device's words, numbered from 0.

    A word counts once, however often it is listed. A device without an entry has no words.

    Args:
        text: the content of the file.
        file: its path, as errors name it.
        integers: whether ids are integers in this graph.
        width: the number of words, where it is known.
    """
    from scipy.sparse import csr_array

    def place(key: object) -> str:
        found = text.find(json.dumps(str(key), ensure_ascii=False))
        return f"{file}, line {text.count(chr(10), 0, max(found, 0)) + 1}: "

    lists: dict[int | str, list[int]] = {}
    for key, words in _json_object(text, file):
        if integers and not (INTEGER.fullmatch(key) and len(key) < 20 and int(key) <= MAX_ID):
            raise InputError(f"{place(key)}{shown(key)} is not an integer id")
        device = int(key) if integers else key
        if integers and int(device) < 0:
            raise InputError(f"{place(key)}the id {key} is negative; ids must be >= 0")
        if device in lists:
            raise InputError(f"{place(key)}device {shown(key)} occurs twice; give it one list")
        wrong = _wrong_words(words, 2**31 - 1 if width is None else width)
        if wrong:
            raise InputError(f"{place(key)}device {shown(key)}{wrong}")
        lists[device] = sorted(set(words))
    held = np.array([word for words in lists.values() for word in words], dtype=np.int32)
    offsets = np.cumsum([0, *map(len, lists.values())])
    if width is None:
        width = int(held.max(initial=-1)) + 1
        try:
            refuse_width(width, len(np.unique(held)), "words")
        except InputError as error:
            device = next(key for key, words in lists.items() if width - 1 in words)
            raise InputError(f"{place(device)}device {shown(device)}: {error}") from None
    ones = np.ones(len(held), dtype=np.float32)
    # The last row is that of devices without an entry.
    matrix = csr_array((ones, held, [*offsets, offsets[-1]]), shape=(len(lists) + 1, width))
    keys = [*lists]
    ids = np.array(keys, dtype=np.int64) if integers else tuple(map(str, keys))
    return FeatureRows(file, ids, Columns(matrix), lambda row: place(keys[row]))


def _json_object(text: str, file: str) -> list[tuple[str, Any]]:
    """Return the pairs of a JSON object, with repeated keys."""

    class Pairs(list[tuple[str, Any]]):
        """A JSON object."""

    try:
        content = json.loads(text, object_pairs_hook=Pairs)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{file}, line {error.lineno}: column {error.colno}: {error.msg}; it is not valid JSON"
        ) from None
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{file}, line 1: it is not readable JSON ({reason})") from None
    if not isinstance(content, Pairs):
        raise InputError(
            f'{file}, line 1: an object {{"id": [words]}} is needed; got {type(content).__name__}'
        )
    return content


def _wrong_words(words: Any, limit: int) -> str:
    """Return what is wrong with the words of a device; "" if nothing is."""
    if type(words) is not list:
        return f" needs a list of words; got {shown(words)}"
    if not words or (set(map(type, words)) == {int} and 0 <= min(words) <= max(words) < limit):
        return ""
    word = next(word for word in words if type(word) is not int or not 0 <= word < limit)
    if type(word) is not int:
        return f": the word {shown(word)} is no integer"
    return f": the word {word} is not in 0 … {limit - 1}"
