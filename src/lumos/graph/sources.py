"""Loading: from a name, a path or an object of another library to a graph.

Named graphs are those of the catalog, in SNAP's folders and archives (facebook, lastfm, twitch-XX),
and the demo graph. Folders in SNAP's form are recognised by their files.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import shown
from lumos.graph.catalog import CATALOG, Entry, entry_of, find_entry
from lumos.graph.demo import DEVICES, demo_graph
from lumos.graph.features import read_bounds
from lumos.graph.graph import Graph
from lumos.graph.io import NETWORKX, NOT_ASKED, ReadOptions
from lumos.graph.io.folder import Folder, text_of
from lumos.graph.io.npz import read_npz
from lumos.graph.io.pyg import is_data
from lumos.graph.io.tables import (
    SUFFIXES,
    EdgeListFiles,
    edge_list_in,
    graph_of_tables,
    read_edge_list,
    read_labels,
    read_table,
    read_words,
)
from lumos.graph.parts.parts_folder import PartsFolder, is_parts_folder


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
    names = folder.names()
    _, word_file, _ = entry.files(names)
    if not features:
        notes = (NOT_ASKED,)
    elif word_file not in names:
        notes = (
            f"features absent: {word_file} is not in {folder.file('')}; structure and labels "
            "are complete",
        )
    else:
        file = folder.file(word_file)
        text = text_of(folder.read(word_file), file)
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
    words = words or [name for name in names if f"{name.removesuffix('.json')}_edges.csv" in edges]
    if len(edges) != 1 or len(targets) != 1 or len(words) > 1:
        inner = [name for name in folder.folders() if name != folder.inside]
        hint = f"; name one of its folders: {', '.join(inner[:8])}" if inner else ""
        raise InputError(
            f"{folder.file('')}: a folder holds one *edges.csv with *labels.csv and *features.csv, "
            "or *nodes.csv, beside it, or, as SNAP has it, one *edges.csv, one *target.csv and "
            f"possibly one *features.json; found {len(edges)}, {len(targets)} and {len(words)} of "
            f"these{hint}"
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


DEMO = re.compile(r"demo(?::([0-9_]{1,12}))?", re.IGNORECASE | re.ASCII)


def load(
    spec: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    features: bool = True,
    **options: Any,
) -> Graph:
    """Load the graph that `spec` names.

    Args:
        spec: `demo`, `demo:60`, `facebook`, `lastfm`, `twitch-ENGB`, …; or the path of a SNAP
            folder or zip, of an npz, of an edge list with features and labels beside it, or of a
            folder that `lumos split` wrote.
        data_dir: folder of named graphs; otherwise LUMOS_DATA, otherwise ~/.cache/lumos.
        features: without them only structure and labels are read, in much less memory.
        options: the fields of `ReadOptions`, e.g. weights="drop".
    """
    permissions = ReadOptions.of(options)
    text = os.fspath(spec)
    devices = demo_size(text)
    if devices is not None:
        return _demo(devices, features, permissions)
    if entry := entry_of(text):
        folder = find_entry(entry, data_directory(data_dir))
        return read_entry(entry, folder, features=features, options=permissions)
    try:
        path = Path(text).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{shown(text)} is neither a path nor a known graph ({reason})") from None
    return load_path(path, features=features, options=permissions)


def demo_size(spec: str) -> int | None:
    """Return the number of devices if `spec` names a demo graph, else None."""
    match = DEMO.fullmatch(spec)
    if match is None:
        return None
    count = (match[1] or str(DEVICES)).replace("_", "")
    if not count:
        raise UsageError(f"{spec!r}: write the number of devices after the colon, as demo:60")
    return int(count)


def _demo(devices: int, features: bool, options: ReadOptions) -> Graph:
    if options.label_column or options.label_bins or options.categorical:
        raise UsageError(
            "demo has one label, and words as features: leave out `label_column`, `label_bins` and "
            "`categorical`"
        )
    return _bounded(demo_graph(devices, features=features), options)


def _parts(path: Path, features: bool, options: ReadOptions) -> Graph:
    """Read the whole graph of a folder that `lumos split` wrote."""
    if (options.label_column and not options.no_labels) or options.label_bins:
        raise UsageError(
            f"{path}: the parts of a graph have one label: leave out `label_column` and "
            "`label_bins`"
        )
    if options.categorical:
        raise UsageError(f"{path}: features are numbers here: leave out `categorical`")
    graph = PartsFolder.open(path).graph(features=features)
    if options.masks == "ignore" or options.no_labels:
        graph = replace(graph, roles=None)
    if options.no_labels:
        graph = replace(graph, labels=None, classes=())
    return _bounded(graph, options)


def _bounded(graph: Graph, options: ReadOptions) -> Graph:
    """Map features by the bounds of the options, where there are both."""
    if graph.features is None or not options.feature_bounds:
        return graph
    return graph.with_bounds(*read_bounds(options.feature_bounds, graph.feature_count))


def as_graph(
    graph: Any,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    implied: Mapping[str, Any] | None = None,
    **options: Any,
) -> Graph:
    """Return the graph that `graph` is, or stands for.

    Args:
        graph: a `Graph`, a PyG `Data` or data set of one, a NetworkX graph, or a name or path as
            `load` takes it.
        data_dir: folder of named graphs; see `load`.
        implied: options that follow from others; a `Graph`, which was read already, ignores them.
        options: as `ReadKeywords` has them.

    Raises:
        UsageError: this is no graph, or options have no effect on it.
    """
    if isinstance(graph, Graph):
        for name in options:
            raise UsageError(
                f"`{name}` has no effect with a lumos.Graph, which was read already; give it to "
                "`lumos.load`, `Graph.from_pyg` or `Graph.from_networkx`"
            )
        return graph
    options = {**(implied or {}), **options}
    if hasattr(graph, "nodes") and hasattr(graph, "edges") and not hasattr(graph, "edge_index"):
        return Graph.from_networkx(graph, **options)
    if named := [name for name in NETWORKX if name in options]:
        instead = "use `label_column`" if named == ["labels"] else "leave it out"
        raise UsageError(f"`{named[0]}` names attributes of a NetworkX graph only; {instead}")
    if isinstance(graph, str | os.PathLike):
        return load(graph, data_dir=data_dir, **options)
    if is_data(graph):
        return Graph.from_pyg(graph, **options)
    raise UsageError(
        f"graph: {type(graph).__name__} is neither a lumos.Graph, a PyG Data, a NetworkX graph, "
        "nor a name or path"
    )


def is_named(spec: str) -> bool:
    """Return whether `load` takes it for a name, even if there is such a file or folder."""
    return bool(DEMO.fullmatch(spec) or entry_of(spec))


def data_directory(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of named graphs: the argument, LUMOS_DATA, or ~/.cache/lumos."""
    chosen = data_dir or os.environ.get("LUMOS_DATA") or "~/.cache/lumos"
    return Path(os.path.expanduser(chosen))


def load_path(path: Path, *, features: bool, options: ReadOptions) -> Graph:
    """Load a graph from a path; also from a folder inside a zip (archive.zip/folder)."""
    if is_parts_folder(path):
        return _parts(path, features, options)
    if path.is_dir():
        folder = Folder(path)
        targets = any(name.endswith("target.csv") for name in folder.names())
        if not targets and (edges := edge_list_in(path)) is not None:
            graph = read_edge_list(edges, features=features, options=options)
            return replace(graph, name=path.resolve().name)
        return read_entry(entry_in(folder), folder, features=features, options=options)
    if path.is_file() and path.suffix == ".npz":
        return read_npz(path, features=features, options=options)
    if path.is_file() and path.suffix in SUFFIXES:
        return read_edge_list(path, features=features, options=options)
    for archive in (path, *path.parents):
        if archive.suffix == ".zip" and archive.is_file():
            inside = path.relative_to(archive).as_posix()
            folder = _only_folder(Folder(archive, "" if inside == "." else inside))
            return read_entry(entry_in(folder), folder, features=features, options=options)
    if path.exists():
        raise UsageError(
            f"{path}: unknown format; use a SNAP folder or .zip, a .npz, or an edge list "
            f"({', '.join(SUFFIXES)})"
        )
    names = ", ".join(("demo", "demo:60", *CATALOG))
    raise UsageError(f"{str(path)!r} is no file, no folder and no known graph; known are {names}")


def _only_folder(folder: Folder) -> Folder:
    """Step into the single folder of an archive, as SNAP packs its graphs."""
    if folder.inside or folder.names() or len(folder.folders()) != 1:
        return folder
    return Folder(folder.path, folder.folders()[0])
