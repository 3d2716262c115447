"""An edge list that is too large for memory, part by part.

The text is read in blocks, twice as numbers: once to learn which devices there are, once to sort
arcs into parts. Ids must be integers. Labels and features beside the list are read as a whole: they
must fit into memory.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from lumos.errors import InputError
from lumos.graph.arrays import distinct, finite_features, freeze, frozen_sparse, is_sparse, lookup
from lumos.graph.io.files import TextTable, readable
from lumos.graph.io.tables import (
    EdgeListFiles,
    devices_of_tables,
    known_of_devices,
    read_edges,
    read_files,
    unknown_id,
)
from lumos.graph.options import ReadOptions
from lumos.graph.parts.arc_buckets import ArcBuckets, lists_of
from lumos.graph.parts.parts_writer import PartsWriter
from lumos.graph.parts.streamed_source import StreamedSource, edgeless
from lumos.typing import Ints, Progress

if TYPE_CHECKING:
    from lumos.graph.graph import Features

BLOCK = 1 << 24
"""Characters that are read at a time."""
ROWS = 1 << 20
"""Pairs that are sorted into parts at a time."""
SPARSE_IDS = 4
"""Ids up to so many times the number of devices are looked up in a table."""


class StreamedEdgeList(StreamedSource):
    """Parts of the graph of an edge list, with features and labels beside it.

    Args:
        path: the edge list.
        name: what the graph is called.
        features: whether they are wanted.
        options: how to read.
        scratch: an empty file, which takes 16 bytes for each row.
    """

    def __init__(
        self, path: Path, name: str, *, features: bool, options: ReadOptions, scratch: IO[bytes]
    ) -> None:
        self._path = path
        with readable(str(path)):
            beginning = next(_blocks(path), "")
        files = read_files(path, features=features, options=options, beginning=beginning)
        if not files.integers:
            raise InputError(
                f"{path}: ids are names, but a file of this size is read with integers only; "
                "number the devices"
            )
        self._pairs = scratch
        named = self._read(files.edges, options)
        ids: Any = devices_of_tables(named, files.labels, files.features, True, options)
        self._refuse_unknown(named, ids, files)
        wanted = files.features if features else None
        known = known_of_devices(ids, files.labels, wanted, options)
        about = edgeless(
            freeze(ids, np.int64),
            known.labels,
            known.classes,
            name,
            files.notes + known.notes,
        )
        matrix = known.features
        if matrix is not None:
            matrix = finite_features(matrix, len(ids), "features")
            matrix = frozen_sparse(matrix) if is_sparse(matrix) else matrix
            if is_sparse(matrix) and matrix.indices.dtype == np.int32:
                self.index_bytes = 4
        self._features = matrix
        super().__init__(about, 0 if matrix is None else matrix.shape[1])

    def _read(self, table: TextTable, options: ReadOptions) -> Ints:
        """Keep all pairs as numbers; returns the distinct ids in them."""
        named, fresh = np.empty(0, np.int64), []
        for rows in _tables(self._path, table):
            pairs = read_edges(rows, options, integers=True)
            self._pairs.write(np.ascontiguousarray(pairs, np.int64).data)
            fresh.append(distinct(pairs.ravel()))
            if sum(map(len, fresh)) > max(len(named), BLOCK):
                named, fresh = distinct(np.concatenate([named, *fresh])), []
        return distinct(np.concatenate([named, *fresh]))

    def _refuse_unknown(self, named: Ints, ids: Ints, files: EdgeListFiles) -> None:
        unknown = np.flatnonzero(lookup(named, ids) < 0)
        if len(unknown):
            what = unknown_id(named[unknown[0]], files.labels, files.features)
            raise InputError(f"{self._path}: {what}")

    def spool(self, bounds: Ints, writer: PartsWriter, progress: Progress) -> None:
        """Sort all arcs into parts, and clean part by part."""
        arcs = ArcBuckets(writer.scratch, "arcs", bounds)
        row_of = _numbering(np.asarray(self.about.ids))
        rows = loops = 0
        total = self._pairs.seek(0, os.SEEK_END) // 16
        self._pairs.seek(0)
        while len(content := self._pairs.read(16 * ROWS)):
            pairs = np.frombuffer(content, np.int64).reshape(-1, 2)
            first, second = row_of(pairs).T
            proper = first != second
            progress(rows, total, "rows")
            rows, loops = rows + len(pairs), loops + int(np.count_nonzero(~proper))
            first, second = first[proper], second[proper]
            arcs.add(first, second)
            arcs.add(second, first)
        for number, hosted in enumerate(np.diff(bounds).tolist()):
            self.keep(number, *lists_of(arcs.take(number), hosted, self.about.devices))
        if not self.edges:
            raise InputError(f"{self._path}: every row joins a device to itself; no edge is left")
        self.dropped_self_loops = loops
        self.dropped_duplicates = rows - loops - self.edges // 2

    def features(self, devices: Ints) -> "Features | None":
        """[hosted, d] of a part."""
        if self._features is None:
            return None
        rows: Features = self._features[int(devices[0]) : int(devices[-1]) + 1]
        return rows


def _numbering(ids: Ints) -> Callable[[Ints], Ints]:
    """From ids to their rows; all of them are among `ids`, which ascend."""
    if ids[-1] >= SPARSE_IDS * len(ids):
        return lambda values: np.searchsorted(ids, values)
    table = np.zeros(int(ids[-1]) + 1, np.int32)  # a search among millions takes ten times as long
    table[ids] = np.arange(len(ids))
    return lambda values: table[values].astype(np.int64)


def _blocks(path: Path) -> Iterator[str]:
    """The text in blocks of whole lines."""
    with path.open(encoding="utf-8-sig") as file:
        rest = ""
        while block := file.read(BLOCK):
            lines, newline, rest_of_block = block.rpartition("\n")
            if newline:
                yield rest + lines + newline
                rest = rest_of_block
            else:
                rest += block
        if rest:
            yield rest


def _tables(path: Path, table: TextTable) -> Iterator[TextTable]:
    """The rows of a table in blocks; `table` has the first."""
    with readable(str(path)):
        blocks = _blocks(path)
        line = 1 + next(blocks).count("\n")
        yield table
        for text in blocks:
            if text.strip():
                yield replace(table, text=text, body=0, first_line=line, comments=())
            line += text.count("\n")
