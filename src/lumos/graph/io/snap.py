"""SNAP's folders and archives: facebook, lastfm, twitch-XX, and others in the same form."""

from dataclasses import replace
from pathlib import PurePosixPath

from lumos.errors import InputError
from lumos.graph.catalog import CATALOG, Entry
from lumos.graph.graph import Graph
from lumos.graph.io.files import Folder, text_of
from lumos.graph.io.tables import (
    EdgeListFiles,
    graph_of_tables,
    read_labels,
    read_table,
    read_words,
)
from lumos.graph.options import NOT_ASKED, ReadOptions


def read_entry(entry: Entry, folder: Folder, *, features: bool, options: ReadOptions) -> Graph:
    """Read a graph whose files are known, and its columns where it is one of the catalog."""
    table = read_table(folder, entry.labels, options)
    if len(table.header) < 2 and not entry.label_column:
        table.refuse(1, "a header is needed: id,target")
    named = bool(entry.label_column) and options.label_column is None
    labels = read_labels(
        table,
        options,
        integers=True,
        ids=table.column(entry.id_column) if entry.id_column else None,
        label=table.column(entry.label_column) if named else None,
    )
    edges = read_table(folder, entry.edges, options, id_columns=2)
    words = None
    notes: tuple[str, ...] = ()
    if not features:
        notes = (NOT_ASKED,)
    elif entry.features not in folder.names():
        notes = (
            f"features absent: {entry.features} is not in {folder.file('')}; structure and labels "
            "are complete",
        )
    else:
        file = folder.file(entry.features)
        text = text_of(folder.read(entry.features), file)
        words = read_words(text, file, integers=True, width=entry.feature_count or None)
    files = EdgeListFiles(edges, labels, words, True, notes)
    return graph_of_tables(entry.name, files, want_features=features, options=options)


def entry_in(folder: Folder) -> Entry:
    """Recognise the graph in a folder by its files: a known one, or one named alike."""
    names = folder.names()
    for entry in CATALOG.values():
        if entry.edges in names:
            return entry
    edges = [name for name in names if name.endswith("edges.csv")]
    targets = [name for name in names if name.endswith("target.csv")]
    words = [name for name in names if name.endswith("features.json")]
    if len(edges) != 1 or len(targets) != 1 or len(words) > 1:
        inner = [name for name in folder.folders() if name != folder.inside]
        hint = f"; name one of its folders: {', '.join(inner[:8])}" if inner else ""
        raise InputError(
            f"{folder.file('')}: a folder holds one *edges.csv with *labels.csv and *features.csv "
            "beside it, or, as SNAP has it, one *edges.csv, one *target.csv and possibly one "
            f"*features.json; found {len(edges)}, {len(targets)} and {len(words)} of these{hint}"
        )
    return replace(
        CATALOG["facebook"],
        name=PurePosixPath(folder.file("")).stem,
        edges=edges[0],
        labels=targets[0],
        features=words[0] if words else "features.json",
        # The columns are chosen by their names when the file is read.
        id_column="",
        label_column="",
        feature_count=0,
        sha256={},
    )
