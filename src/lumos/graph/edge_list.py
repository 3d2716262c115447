"""An edge list with features and labels beside it.

    graph.csv             source,target     one edge per row; the order of the two is free
    graph.labels.csv      id,label          optional; an empty label (or -1) is unknown
    graph.features.csv    id,x1,x2,…        optional; a number in every cell
    graph.features.json   {"id": [words]}   or this: words numbered from 0
    graph.features.npz    features, ids     or this: arrays, or scipy's save_npz

`graph_labels.csv` and `graph-labels.csv` are found too; beside `edges.csv` so are `labels.csv` and
`features.csv`, beside `shop_edges.csv` `shop_labels.csv`. A folder with one such list is a graph.

A first line may name the columns (`lumos.graph.header` tells, or the option `header`); lines that
start with # are comments; commas, tabs, semicolons or blanks separate. Ids are integers if the
first one is, otherwise names. A label file may have more columns if a header or `label_column`
tells which is the label.
"""

from pathlib import Path
from typing import NamedTuple

from lumos.errors import InputError
from lumos.graph.feature_files import FeatureArchive, FeatureFile, NumberTable
from lumos.graph.files import Folder, text_of
from lumos.graph.graph import Graph
from lumos.graph.label_columns import id_column
from lumos.graph.label_file import LabelRows, read_labels
from lumos.graph.options import NOT_ASKED, ReadOptions
from lumos.graph.tabular import graph_of_tables
from lumos.graph.text_table import TextTable, integers_first, table_of
from lumos.graph.word_lists import WordLists

SUFFIXES = (".csv", ".tsv", ".txt", ".edges")
LISTS = ("edges", "edge_list", "edgelist")
"""How the name of an edge list may end, when the files beside it are called after the rest."""


class EdgeListFiles(NamedTuple):
    """An edge list and what lies beside it."""

    edges: TextTable
    labels: LabelRows | None
    features: FeatureFile | None
    """Read also where nobody wants features, but nothing else says which devices there are."""
    integers: bool
    """Whether ids are integers."""
    notes: tuple[str, ...]


def read_edge_list(path: Path, *, features: bool, options: ReadOptions) -> Graph:
    """Read a graph from an edge list and the files beside it."""
    files = read_files(path, features=features, options=options)
    return graph_of_tables(
        name=path.stem,
        edges=files.edges,
        labels=files.labels,
        features=files.features,
        want_features=features,
        integers=files.integers,
        options=options,
        notes=files.notes,
    )


def read_files(
    path: Path, *, features: bool, options: ReadOptions, beginning: str | None = None
) -> EdgeListFiles:
    """Read an edge list and the files beside it.

    Args:
        path: the edge list.
        features: whether they are wanted.
        options: how to read.
        beginning: the first rows of the edge list, where it is too large to be read at once.
    """
    folder = Folder(path.parent)
    files = _beside(folder, path, "features", ("csv", "json", "npz"))
    label_files = _beside(folder, path, "labels", ("csv",))
    tables = _Tables(folder, options, [path.name, *label_files, *files], beginning)
    edges = tables.read(path.name, ends=2)
    labels = tables.read(label_files[0]) if label_files else None
    integers = (
        integers_first(edges, 0) if labels is None else integers_first(labels, id_column(labels))
    )
    notes: tuple[str, ...] = ()
    if not files:
        notes = (f"features absent: there is no {path.stem}.features.csv, .json or .npz",)
    elif not features:
        notes = (NOT_ASKED,)
    if labels is None and not options.no_labels and (options.label_column or options.label_bins):
        raise InputError(
            f"{path}: there is no {path.stem}.labels.csv, so no label to choose; add it"
        )
    # Without labels the feature file says which devices there are, so it is read in any case.
    wanted = files and (features or labels is None)
    return EdgeListFiles(
        edges=edges,
        labels=None if labels is None else read_labels(labels, options, integers=integers),
        features=_features(tables, files[0], integers, options) if wanted else None,
        integers=integers,
        notes=notes,
    )


def edge_list_in(folder: Path) -> Path | None:
    """The edge list of a folder that has exactly one, by its name; None otherwise."""
    found = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix in SUFFIXES and path.stem.casefold().endswith(LISTS)
    ]
    return found[0] if len(found) == 1 else None


def _beside(folder: Folder, path: Path, what: str, suffixes: tuple[str, ...]) -> list[str]:
    """Names of the files with labels or features that belong to an edge list: one or none.

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
    return files


class _Tables:
    """The text files of a graph, each of which may tell whether another has a header."""

    def __init__(
        self, folder: Folder, options: ReadOptions, names: list[str], beginning: str | None
    ) -> None:
        self._edges, self._beginning = names[0], beginning
        self.folder = folder
        self._header = options.header
        self._read: dict[str, TextTable] = {}
        self._names = [name for name in names if not name.endswith((".json", ".npz"))]

    def read(self, name: str, ends: int = 1) -> TextTable:
        """A table whose ids stand in the first `ends` columns; the edges are read first."""
        self._read[name] = table_of(
            self.text(name),
            self.folder.file(name),
            header=self._header,
            ends=ends,
            known=lambda: self._ids_beside(name),
        )
        return self._read[name]

    def text(self, name: str) -> str:
        """The content of a file; of a large edge list the beginning."""
        if self._beginning is not None and name == self._edges:
            return self._beginning
        return text_of(self.folder.read(name), self.folder.file(name))

    def _ids_beside(self, name: str) -> set[str]:
        """The ids in the other tables; the first line of one not read yet may be a header."""
        ids: set[str] = set()
        for other in self._names:
            if other != name:
                table = self._read.get(other)
                if table is None:
                    table = table_of(self.text(other), self.folder.file(other), header="yes")
                ids |= table.cells(2 if other == self._names[0] else 1)
        return ids


def _features(tables: _Tables, name: str, integers: bool, options: ReadOptions) -> FeatureFile:
    folder = tables.folder
    if name.endswith(".npz"):
        return FeatureArchive(folder.read(name), folder.file(name), integers=integers)
    if name.endswith(".json"):
        return WordLists(tables.text(name), folder.file(name), integers=integers)
    return NumberTable(tables.read(name), integers=integers, options=options)
