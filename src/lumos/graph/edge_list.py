"""An edge list with features and labels beside it.

    graph.csv             source,target     one edge per row; the order of the two is free
    graph.labels.csv      id,label          optional; an empty label (or -1) is unknown
    graph.features.csv    id,x1,x2,…        optional; a number in every cell
    graph.features.json   {"id": [words]}   or this: words numbered from 0
    graph.features.npz    features, ids     or this: arrays, or scipy's save_npz

A first line whose first cell is not a number is a header; lines that start with # are comments;
commas, tabs, semicolons or blanks separate. Ids are integers if the first one is, otherwise names
(a list of names needs its header).
"""

from pathlib import Path

from lumos.errors import InputError
from lumos.graph.feature_files import FeatureArchive, FeatureFile, NumberTable
from lumos.graph.files import Folder, text_of
from lumos.graph.graph import Graph
from lumos.graph.labels import read_labels
from lumos.graph.options import NOT_ASKED, ReadOptions
from lumos.graph.tabular import graph_of_tables
from lumos.graph.text_table import TextTable, integers_first, table_of
from lumos.graph.word_lists import WordLists

SUFFIXES = (".csv", ".tsv", ".txt", ".edges")
FEATURES = (".features.csv", ".features.json", ".features.npz")


def read_edge_list(path: Path, *, features: bool, options: ReadOptions) -> Graph:
    """Read a graph from an edge list and the files beside it."""
    folder = Folder(path.parent)
    edges = _table(folder, path.name)
    names = folder.names()
    labels = None
    if f"{path.stem}.labels.csv" in names:
        labels = _table(folder, f"{path.stem}.labels.csv")
    integers = integers_first(labels or edges, 0)
    notes: tuple[str, ...] = ()
    files = [name for name in (path.stem + suffix for suffix in FEATURES) if name in names]
    if len(files) > 1:
        raise InputError(f"{path}: features in {' and '.join(files)}; keep one of them")
    if not files:
        notes = (f"features absent: there is no {path.stem}.features.csv, .json or .npz",)
    elif not features:
        notes = (NOT_ASKED,)
    # Without labels the feature file says which devices there are, so it is read in any case.
    wanted = files and (features or labels is None)
    return graph_of_tables(
        name=path.stem,
        edges=edges,
        labels=None
        if labels is None
        else (labels, read_labels(labels, options, integers=integers)),
        features=_features(folder, files[0], integers) if wanted else None,
        want_features=features,
        integers=integers,
        options=options,
        notes=notes,
    )


def _table(folder: Folder, name: str) -> TextTable:
    return table_of(text_of(folder.read(name), folder.file(name)), folder.file(name))


def _features(folder: Folder, name: str, integers: bool) -> FeatureFile:
    if name.endswith(".npz"):
        return FeatureArchive(folder.read(name), folder.file(name), integers=integers)
    if name.endswith(".json"):
        text = text_of(folder.read(name), folder.file(name))
        return WordLists(text, folder.file(name), integers=integers)
    return NumberTable(_table(folder, name), integers=integers)
