"""The source of parts of a named graph: in memory, or if it is large part by part."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from lumos.graph.io.tables import SUFFIXES, edge_list_in
from lumos.graph.options import ReadOptions
from lumos.graph.parts.part_source import GraphInMemory, PartSource
from lumos.graph.parts.parts_folder import is_parts_folder
from lumos.graph.parts.streamed_demo import StreamedDemo
from lumos.graph.parts.streamed_edge_list import StreamedEdgeList
from lumos.graph.sources import demo_size, is_named, load

LARGE_DEMO = 500_000
"""A demo graph of so many devices is made part by part."""
LARGE_FILE = 1 << 28
"""So is a graph from an edge list of so many bytes."""


@contextmanager
def chosen_source(
    spec: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    features: bool = True,
    whole: bool = False,
    scratch: Path,
    options: Mapping[str, Any],
) -> Iterator[PartSource]:
    """The source of the graph that `spec` names, as `lumos.load` takes it.

    Args:
        whole: read it into memory, however large it is.
        scratch: where the parts will be written: what is needed on the way lies beside them.
        options: the fields of `ReadOptions`.
    """
    permissions = ReadOptions.of(options)
    devices = demo_size(spec)
    if not whole and devices is not None and devices >= LARGE_DEMO and permissions == ReadOptions():
        yield StreamedDemo(devices, features=features)
        return
    if not whole and devices is None and not is_named(spec):
        list_, name = _edge_list(Path(spec).expanduser())
        if list_ is not None and list_.stat().st_size >= LARGE_FILE:
            beside = next(folder for folder in scratch.absolute().parents if folder.is_dir())
            with TemporaryFile(dir=beside) as file:
                yield StreamedEdgeList(
                    list_, name, features=features, options=permissions, scratch=file
                )
            return
    yield GraphInMemory(load(spec, data_dir=data_dir, features=features, **options))


def _edge_list(path: Path) -> tuple[Path | None, str]:
    """The edge list that a path is or holds, and the name of its graph."""
    if path.is_file() and path.suffix in SUFFIXES:
        return path, path.stem
    if path.is_dir() and not is_parts_folder(path):
        targets = any(child.name.endswith("target.csv") for child in path.iterdir())
        return (None if targets else edge_list_in(path)), path.resolve().name
    return None, ""
