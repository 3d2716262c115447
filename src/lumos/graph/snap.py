"""SNAP's folders and archives: facebook, lastfm, twitch-XX, and others in the same form."""

from dataclasses import replace
from pathlib import Path, PurePosixPath

from lumos.errors import InputError, MissingData
from lumos.graph.catalog import CATALOG, Entry
from lumos.graph.files import Folder, text_of
from lumos.graph.graph import Graph
from lumos.graph.label_file import read_labels
from lumos.graph.options import NOT_ASKED, ReadOptions
from lumos.graph.tabular import graph_of_tables
from lumos.graph.text_table import TextTable, table_of
from lumos.graph.word_lists import WordLists


def find_entry(entry: Entry, data_dir: Path) -> Folder:
    """Return where the files of a known graph lie: unpacked, or else in a zip."""
    for name in entry.folders:
        if (data_dir / name).is_dir():
            return Folder(data_dir / name)
    if (data_dir / entry.edges).is_file():
        return Folder(data_dir)
    for name in (entry.archive, *(f"{PurePosixPath(name).name}.zip" for name in entry.folders)):
        if (data_dir / name).is_file():
            return inside_zip(data_dir / name, entry.edges)
    raise MissingData(
        f"{entry.name}: neither {entry.folders[0]} nor {entry.archive} is in {data_dir}; type: "
        f"lumos data fetch {entry.name} --data-dir {data_dir}, or download {entry.url} into it"
    )


def inside_zip(path: Path, file: str) -> Folder:
    """Return the folder inside a zip that holds `file`."""
    archive = Folder(path)
    if file in archive.names():
        return archive
    for folder in archive.folders():
        inner = Folder(path, folder)
        if file in inner.names():
            return inner
    raise InputError(f"{path}: there is no {file} inside; fetch the archive again")


def read_entry(entry: Entry, folder: Folder, *, features: bool, options: ReadOptions) -> Graph:
    """Read a graph whose files are known, and its columns where it is one of the catalog."""
    table = _table(folder, entry.labels, options, ends=1)
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
    edges = _table(folder, entry.edges, options, ends=2)
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
        words = WordLists(text, file, integers=True, width=entry.feature_count or None)
    return graph_of_tables(
        name=entry.name,
        edges=edges,
        labels=labels,
        features=words,
        want_features=features,
        integers=True,
        options=options,
        notes=notes,
    )


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


def _table(folder: Folder, name: str, options: ReadOptions, ends: int) -> TextTable:
    file = folder.file(name)
    return table_of(text_of(folder.read(name), file), file, header=options.header, ends=ends)
