"""Where parts come from: a graph in memory, or one that is made part by part.

A large demo graph is drawn in slices. An edge list that is too large for memory is read in blocks,
twice as numbers: once to learn which devices there are, once to sort arcs into parts. Its ids must
be integers; labels and features beside the list are read as a whole and must fit into memory.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import (
    Ids,
    distinct,
    finite_features,
    freeze,
    frozen_sparse,
    is_sparse,
    lookup,
    spans,
)
from lumos.graph.demo import COMMUNITIES, VOCABULARY, DemoDraws, demo_name
from lumos.graph.facts import GraphFacts, SimulationFacts, facts_of, feature_signs, fingerprint
from lumos.graph.graph import Graph
from lumos.graph.io.files import TextTable, readable
from lumos.graph.io.tables import (
    SUFFIXES,
    EdgeListFiles,
    devices_of_tables,
    edge_list_in,
    known_of_devices,
    read_edges,
    read_files,
    unknown_id,
)
from lumos.graph.labels import Role
from lumos.graph.options import NOT_ASKED, ReadOptions
from lumos.graph.parts.manifest import Partition
from lumos.graph.parts.parts_folder import PartsWriter, is_parts_folder
from lumos.graph.parts.stored_part import REMEDY, new_private, part_path, read_layout, write_layout
from lumos.graph.sources import demo_size, is_named, load
from lumos.typing import Arrays, Ints, Progress

if TYPE_CHECKING:
    from lumos.graph.graph import Features


class PartSource(Protocol):
    """A graph from which parts are written one by one."""

    about: Graph
    """What is known of the devices: ids, labels, roles; a streamed one has no edges."""
    edges: int
    """Number of edges, once they are prepared."""
    dropped_self_loops: int
    dropped_duplicates: int
    index_bytes: Literal[4, 8]
    """Of the indices of sparse features, if the whole graph is in memory."""

    def prepare(
        self, partition: Partition, writer: PartsWriter, progress: Progress | None = None
    ) -> None:
        """Get ready to give parts, with the scratch folder of the writer.

        Raises:
            UsageError: the source can give contiguous ranges only.
        """

    def lists(self, number: int, devices: Ints) -> tuple[Ints, Ints]:
        """[hosted + 1] offsets and [slots] neighbours of a part."""

    def features(self, devices: Ints) -> "Features | None":
        """[hosted, d] of a part."""

    def structure(self) -> Graph:
        """The whole graph without its features, in memory."""

    def facts(self) -> GraphFacts:
        """Facts of the whole graph, once all parts are written."""

    def training_fingerprint(self, training: Graph) -> str:
        """Of the training edges, with all features, once all parts are written.

        Args:
            training: `structure` with the training edges only.
        """


class GraphInMemory:
    """Parts of a graph that is in memory."""

    def __init__(self, graph: Graph) -> None:
        self.about = graph
        self.edges = graph.edges
        self.dropped_self_loops = graph.dropped_self_loops
        self.dropped_duplicates = graph.dropped_duplicates
        features: Any = graph.features
        short = is_sparse(features) and features.indices.dtype == np.int32
        self.index_bytes: Literal[4, 8] = 4 if short else 8

    def prepare(
        self, partition: Partition, writer: PartsWriter, progress: Progress | None = None
    ) -> None:
        """Nothing to do."""

    def lists(self, number: int, devices: Ints) -> tuple[Ints, Ints]:
        """[hosted + 1] offsets and [slots] neighbours of a part."""
        starts = self.about.offsets[devices]
        degree = self.about.offsets[devices + 1] - starts
        offsets = np.concatenate([[0], np.cumsum(degree)])
        return offsets, self.about.neighbours[spans(starts, degree)]

    def features(self, devices: Ints) -> "Features | None":
        """[hosted, d] of a part."""
        return None if self.about.features is None else self.about.features[devices]

    def structure(self) -> Graph:
        """The graph."""
        return self.about

    def facts(self) -> GraphFacts:
        """Facts of the graph."""
        return facts_of(self.about)

    def training_fingerprint(self, training: Graph) -> str:
        """Of the graph with training edges."""
        return fingerprint(training)


class ArcBuckets:
    """A file for each part with the arcs (owner, other) whose owner is in it.

    Args:
        folder: where the files lie.
        name: how they begin.
        bounds: [parts + 1] the parts, contiguous ranges of devices.
    """

    def __init__(self, folder: Path, name: str, bounds: Ints) -> None:
        self._bounds = bounds
        self._paths = [folder / f"{name}-{number:05d}" for number in range(len(bounds) - 1)]
        for path in self._paths:
            new_private(path).close()

    def add(self, owner: Ints, other: Ints) -> None:
        """Put arcs into the files of their owners."""
        # Numbers of 16 bits are sorted by radix; more parts by comparison.
        part = (np.searchsorted(self._bounds, owner, side="right") - 1).astype(
            np.uint16 if len(self._paths) <= 1 << 16 else np.int64
        )
        order = np.argsort(part, kind="stable")
        arcs = np.stack([owner[order], other[order]], axis=1).astype(np.int32)
        ends = np.cumsum(np.bincount(part, minlength=len(self._paths)))
        start = 0
        for path, end in zip(self._paths, ends.tolist(), strict=True):
            if end > start:
                with path.open("ab") as file:
                    file.write(arcs[start:end].data)
            start = end

    def take(self, number: int) -> Ints:
        """[arcs] the distinct arcs of a part, as (owner - first) · devices + other, ascending.

        The file is deleted.
        """
        arcs = np.fromfile(self._paths[number], np.int32).reshape(-1, 2)
        self._paths[number].unlink()
        keys = arcs[:, 0].astype(np.int64)
        keys -= self._bounds[number]
        keys *= self._bounds[-1]
        keys += arcs[:, 1]
        return distinct(keys)


def lists_of(arcs: Ints, hosted: int, devices: int) -> tuple[Ints, Ints]:
    """[hosted + 1] offsets and [arcs] neighbours, from distinct arcs as `ArcBuckets` has them."""
    owner, other = np.divmod(arcs, devices)
    offsets = np.zeros(hosted + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=hosted), out=offsets[1:])
    return offsets, other


@dataclass(frozen=True)
class StreamedFacts:
    """Facts from the files of parts, which are contiguous ranges in the order of their numbers."""

    folder: Path
    parts: int
    about: Graph
    """The same graph without its edges and features."""
    edges: int
    width: int
    """Width of the features; 0 without any."""
    index_bytes: int
    """Of the indices of sparse features, if the whole graph were in memory."""

    def facts(self) -> GraphFacts:
        """The same as `facts_of` the whole graph in memory."""
        lowest, highest, sparse = 0.0, 0.0, False
        ends: list[tuple[float, float]] = []
        for arrays in self._files():
            sparse = "values" in arrays
            values = arrays.get("values", arrays.get("features", np.empty(0)))
            if values.size:
                ends.append((float(values.min()), float(values.max())))
        if ends:
            lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
        labels = self.about.labels
        return GraphFacts(
            name=self.about.name,
            devices=self.about.devices,
            feature_count=self.width,
            sparse=sparse,
            **feature_signs(lowest, highest),
            labelled=labels is not None,
            classes=self.about.classes,
            notes=self.about.notes,
            simulation=SimulationFacts(
                edges=self.edges,
                lowest=lowest,
                highest=highest,
                highest_label=-1 if labels is None else int(labels.max(initial=-1)),
                fingerprint=self.fingerprint(),
            ),
        )

    def fingerprint(self, *, training: bool = False) -> str:
        """The same as `lumos.graph.facts` gives for the whole graph, or its training edges.

        It hashes one array of the whole graph after the other, so the parts are read once for each.
        """
        digest = blake2b(digest_size=8)

        def add(array: npt.NDArray[Any]) -> None:
            digest.update(np.ascontiguousarray(array).data)

        add(np.zeros(1, np.int64))
        base = 0
        for arrays in self._files():
            offsets = _offsets(arrays, training)
            add(offsets[1:] + base)
            base += int(offsets[-1])
        for arrays in self._files():
            neighbours = arrays["neighbours"]
            if training:
                neighbours = neighbours[arrays["edge_roles"] == Role.TRAIN]
            add(neighbours.astype(np.int64))
        if self.about.labels is not None:
            add(self.about.labels)
        if self.about.roles is not None and not training:
            add(self.about.roles)
        if self.width:
            self._add_features(add)
        return digest.hexdigest()

    def _add_features(self, add: Any) -> None:
        first = next(self._files())
        if "features" in first:
            for arrays in self._files():
                add(arrays["features"])
            return
        kind = np.int32 if self.index_bytes == 4 else np.int64
        add(np.zeros(1, kind))
        base, highest = 0, -1
        for arrays in self._files():
            add((arrays["indptr"][1:] + base).astype(kind, copy=False))
            base += len(arrays["indices"])
        for arrays in self._files():
            indices = arrays["indices"]
            highest = max(highest, int(indices.max(initial=-1)))
            add(indices.astype(kind, copy=False))
        for arrays in self._files():
            add(arrays["values"])
        if self.width != highest + 1:
            add(np.array(self.width))

    def _files(self) -> Iterator[Arrays]:
        for number in range(self.parts):
            yield read_layout(part_path(self.folder, number), REMEDY)


def _offsets(arrays: Arrays, training: bool) -> Ints:
    offsets = arrays["offsets"]
    if not training:
        return offsets
    before = np.concatenate([[0], np.cumsum(arrays["edge_roles"] == Role.TRAIN)])
    return before[offsets]


class StreamedSource(ABC):
    """A `PartSource` whose neighbour lists are written to the scratch folder, part by part.

    Args:
        about: the graph without its edges and features.
        width: number of features.
    """

    index_bytes: Literal[4, 8] = 8
    dropped_self_loops = 0
    dropped_duplicates = 0

    def __init__(self, about: Graph, width: int) -> None:
        self.about = about
        self.edges = 0
        self._width = width
        self._writer: PartsWriter | None = None
        self._parts = 0

    @abstractmethod
    def spool(self, bounds: Ints, writer: PartsWriter, progress: Progress) -> None:
        """Give the lists of every part to `keep`.

        Args:
            bounds: [parts + 1] the parts, contiguous ranges of devices.
            writer: has a scratch folder.
            progress: callback `(done, total, note)`.
        """

    @abstractmethod
    def features(self, devices: Ints) -> "Features | None":
        """[hosted, d] of a part."""

    def prepare(
        self, partition: Partition, writer: PartsWriter, progress: Progress | None = None
    ) -> None:
        """Write the neighbour lists of all parts to the scratch folder."""
        if partition.bounds is None:
            raise UsageError(
                f"{self.about.name} is too large for memory, and is written in contiguous ranges; "
                "use `parts` in place of `assign`"
            )
        self._writer, self._parts = writer, partition.parts
        self.spool(partition.bounds, writer, progress or (lambda *_: None))
        self.edges //= 2

    def keep(self, number: int, offsets: Ints, neighbours: Ints) -> None:
        """Keep the lists of a part until its file is written."""
        self.edges += len(neighbours)
        narrow = neighbours.astype(np.int32)
        write_layout(
            part_path(self._scratch.scratch, number), {"offsets": offsets, "neighbours": narrow}
        )

    def lists(self, number: int, devices: Ints) -> tuple[Ints, Ints]:
        """[hosted + 1] offsets and [slots] neighbours of a part."""
        kept = read_layout(part_path(self._scratch.scratch, number), REMEDY)
        return kept["offsets"], kept["neighbours"]

    def structure(self) -> Graph:
        """The whole graph without its features, in memory."""
        offsets, neighbours = np.zeros(self.about.devices + 1, np.int64), []
        row = 0
        for number in range(self._parts):
            starts, others = self.lists(number, np.empty(0, np.int64))
            offsets[row + 1 : row + len(starts)] = offsets[row] + starts[1:]
            row += len(starts) - 1
            neighbours.append(others)
        return edgeless(
            self.about.ids,
            self.about.labels,
            self.about.classes,
            self.about.name,
            self.about.notes,
            freeze(offsets, np.int64, own=True),
            freeze(np.concatenate(neighbours).astype(np.int64), np.int64, own=True),
        )

    def facts(self) -> GraphFacts:
        """Facts of the whole graph, once all parts are written."""
        return self._facts().facts()

    def training_fingerprint(self, training: Graph) -> str:
        """Of the training edges, with all features, once all parts are written."""
        return self._facts().fingerprint(training=True)

    def _facts(self) -> StreamedFacts:
        folder = self._scratch.path
        return StreamedFacts(
            folder, self._parts, self.about, self.edges, self._width, self.index_bytes
        )

    @property
    def _scratch(self) -> PartsWriter:
        if self._writer is None:
            raise RuntimeError("the parts are not prepared")
        return self._writer


def edgeless(
    ids: Ids,
    labels: Ints | None,
    classes: tuple[str, ...],
    name: str,
    notes: tuple[str, ...],
    offsets: Ints | None = None,
    neighbours: Ints | None = None,
) -> Graph:
    """A graph without features and, unless they are given, without edges."""
    if offsets is None or neighbours is None:
        offsets = freeze(np.zeros(len(ids) + 1, np.int64), np.int64, own=True)
        neighbours = freeze(np.empty(0, np.int64), np.int64, own=True)
    return Graph(
        offsets=offsets,
        neighbours=neighbours,
        ids=ids,
        labels=labels,
        classes=classes,
        name=name,
        notes=notes,
    )


class StreamedDemo(StreamedSource):
    """Parts of a demo graph.

    In memory are some numbers of 8 bytes for each device, and for each draw of an edge one.
    """

    def __init__(self, devices: int, *, features: bool = True) -> None:
        self._draws = DemoDraws(devices)
        self._wanted = features
        about = edgeless(
            freeze(np.arange(devices), np.int64, own=True),
            freeze(self._draws.labels, np.int64, own=True),
            COMMUNITIES,
            demo_name(devices),
            () if features else (NOT_ASKED,),
        )
        super().__init__(about, VOCABULARY if features else 0)

    def spool(self, bounds: Ints, writer: PartsWriter, progress: Progress) -> None:
        """Draw all edges in slices, sort them into parts, and clean part by part."""
        arcs = ArcBuckets(writer.scratch, "arcs", bounds)
        drawn = 0
        for pairs in self._draws.pairs():
            drawn += len(pairs)
            progress(drawn, self._draws.draws, "draws of edges")
            first, second = pairs[pairs[:, 0] != pairs[:, 1]].T
            arcs.add(first, second)
            arcs.add(second, first)
        for number, hosted in enumerate(np.diff(bounds).tolist()):
            self.keep(number, *lists_of(arcs.take(number), hosted, self.about.devices))

    def features(self, devices: Ints) -> "Features | None":
        """[hosted, words] of a part."""
        if not self._wanted:
            return None
        return self._draws.words(int(devices[0]), int(devices[-1]) + 1)


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
