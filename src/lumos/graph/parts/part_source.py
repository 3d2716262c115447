"""Sources of parts: a graph in memory, or one that is made part by part.

A large demo graph is drawn in slices. An edge list that is too large for memory is read in blocks,
twice as numbers: once to learn which devices there are, once to sort arcs into parts. Its ids must
be integers; labels and features beside the list are read as a whole and must fit into memory.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import (
    MIN_CONVERTED,
    Ids,
    distinct,
    finite_features,
    freeze,
    frozen_sparse,
    is_sparse,
    lookup,
    spans,
    stored_features,
)
from lumos.graph.demo import COMMUNITIES, VOCABULARY, DemoDraws, demo_name
from lumos.graph.facts import GraphFacts, described, facts_of, fingerprint
from lumos.graph.graph import Graph
from lumos.graph.io import NOT_ASKED, ReadOptions
from lumos.graph.io.files import readable
from lumos.graph.io.tables import (
    SUFFIXES,
    devices_of_tables,
    edge_list_in,
    known_of_devices,
    read_edges,
    read_files,
    unknown_id,
)
from lumos.graph.io.text_table import TextTable
from lumos.graph.labels import Role
from lumos.graph.parts.manifest import Partition
from lumos.graph.parts.parts_folder import PartsWriter, is_parts_folder
from lumos.graph.parts.stored_part import (
    REMEDY,
    new_private,
    part_path,
    read_layout,
    stacked,
    write_layout,
)
from lumos.graph.sources import demo_size, is_named, load
from lumos.typing import Arrays, Ints, Progress

if TYPE_CHECKING:
    from lumos.graph.graph import Features


BLOCK = 1 << 24
"""Characters that are read at a time."""
ROWS = 1 << 20
"""Pairs that are sorted into parts at a time."""
SPARSE_IDS = 4
"""Largest id, by the number of devices, for which ids are looked up in a table."""


class PartSource(ABC):
    """A graph from which parts are written one by one."""

    about: Graph
    """Facts of the devices: ids, labels, roles; those of a streamed source have no edges."""
    edges: int
    """Number of edges, once they are prepared."""
    dropped_self_loops: int = 0
    dropped_duplicates: int = 0
    index_bytes: Literal[4, 8] = 8
    """Size of an index of sparse features, if the whole graph is in memory."""

    @abstractmethod
    def store_large_sparse(self) -> None:
        """Store features that may be stored sparse so, whatever they hold.

        A graph decides by the number of zeros (`stored_features`), which real devices must not
        tell: how features are stored is public.
        """

    @abstractmethod
    def prepare(
        self, partition: Partition, writer: PartsWriter, progress: Progress | None = None
    ) -> None:
        """Get ready to give parts, with the scratch folder of the writer.

        Raises:
            UsageError: the source can give contiguous ranges only.
        """

    @abstractmethod
    def lists(self, number: int, devices: Ints) -> tuple[Ints, Ints]:
        """Return [hosted + 1] offsets and [slots] neighbours of a part."""

    @abstractmethod
    def features(self, devices: Ints) -> "Features | None":
        """Return [hosted, d] of a part."""

    @abstractmethod
    def structure(self) -> Graph:
        """Return the whole graph without its features, in memory."""

    @abstractmethod
    def facts(self) -> GraphFacts:
        """Return the facts of the whole graph, once all parts are written."""

    @abstractmethod
    def training_fingerprint(self, training: Graph) -> str:
        """Return the fingerprint of the training edges, with all features.

        Args:
            training: `structure` with the training edges only; all parts are written.
        """


class GraphInMemory(PartSource):
    """Parts of a graph that is in memory."""

    def __init__(self, graph: Graph) -> None:
        self.about = graph
        self.edges = graph.edges
        self.dropped_self_loops = graph.dropped_self_loops
        self.dropped_duplicates = graph.dropped_duplicates
        self.index_bytes = _index_bytes(graph.features)

    def store_large_sparse(self) -> None:
        """Store large features sparse, whatever they hold."""
        features: Any = self.about.features
        if features is not None and np.prod(features.shape) >= MIN_CONVERTED:
            self.about = replace(self.about, features=frozen_sparse(features))
            self.index_bytes = _index_bytes(self.about.features)

    def prepare(
        self, partition: Partition, writer: PartsWriter, progress: Progress | None = None
    ) -> None:
        """Do nothing."""

    def lists(self, number: int, devices: Ints) -> tuple[Ints, Ints]:
        """Return [hosted + 1] offsets and [slots] neighbours of a part."""
        starts = self.about.offsets[devices]
        degree = self.about.offsets[devices + 1] - starts
        offsets = np.concatenate([[0], np.cumsum(degree)])
        return offsets, self.about.neighbours[spans(starts, degree)]

    def features(self, devices: Ints) -> "Features | None":
        """Return [hosted, d] of a part."""
        return None if self.about.features is None else self.about.features[devices]

    def structure(self) -> Graph:
        """Return the graph."""
        return self.about

    def facts(self) -> GraphFacts:
        """Return the facts of the graph."""
        return facts_of(self.about)

    def training_fingerprint(self, training: Graph) -> str:
        """Return the fingerprint of the graph with training edges."""
        return fingerprint(training)


def _index_bytes(features: Any) -> Literal[4, 8]:
    return 4 if is_sparse(features) and features.indices.dtype == np.int32 else 8


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
        """Return [arcs] the distinct arcs of a part: (owner - first) · devices + other, ascending.

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
    """Return [hosted + 1] offsets and [arcs] neighbours, from distinct arcs of `ArcBuckets`."""
    owner, other = np.divmod(arcs, devices)
    offsets = np.zeros(hosted + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=hosted), out=offsets[1:])
    return offsets, other


class StreamedSource(PartSource):
    """A source whose neighbour lists are written to the scratch folder, part by part.

    Args:
        about: the graph without its edges and features.
        width: number of features.
        rows: number of rows that `pairs` yields.
    """

    def __init__(self, about: Graph, width: int, rows: int) -> None:
        self.about = about
        self.edges = 0
        self._width = width
        self._rows = rows
        self._writer: PartsWriter | None = None
        self._parts = 0

    @abstractmethod
    def pairs(self) -> Iterator[Ints]:
        """Yield [rows, 2] in slices: pairs of devices, with repetitions and self-loops."""

    def prepare(
        self, partition: Partition, writer: PartsWriter, progress: Progress | None = None
    ) -> None:
        """Sort all arcs into parts, clean them part by part, and write the neighbour lists."""
        if partition.bounds is None:
            raise UsageError(
                f"{self.about.name} is too large for memory, and is written in contiguous ranges; "
                "use `parts` in place of `assign`"
            )
        self._writer, self._parts = writer, partition.parts
        arcs = ArcBuckets(writer.scratch, "arcs", partition.bounds)
        rows = loops = 0
        for pairs in self.pairs():
            rows += len(pairs)
            if progress is not None:
                progress(rows, self._rows, "rows of edges")
            first, second = pairs[pairs[:, 0] != pairs[:, 1]].T
            loops += len(pairs) - len(first)
            arcs.add(first, second)
            arcs.add(second, first)
        for number, hosted in enumerate(np.diff(partition.bounds).tolist()):
            offsets, others = lists_of(arcs.take(number), hosted, self.about.devices)
            self.edges += len(others)
            lists: Arrays = {"offsets": offsets, "neighbours": others.astype(np.int32)}
            write_layout(part_path(writer.scratch, number), lists)
        self.edges //= 2
        self.dropped_self_loops, self.dropped_duplicates = loops, rows - loops - self.edges

    def lists(self, number: int, devices: Ints) -> tuple[Ints, Ints]:
        """Return [hosted + 1] offsets and [slots] neighbours of a part."""
        kept = read_layout(part_path(self._prepared.scratch, number), REMEDY)
        return kept["offsets"], kept["neighbours"]

    def structure(self) -> Graph:
        """Return the whole graph without its features, in memory."""
        nobody = np.empty(0, np.int64)
        lists = [self.lists(number, nobody) for number in range(self._parts)]
        offsets = stacked([each for each, _ in lists])
        neighbours = np.concatenate([each for _, each in lists]).astype(np.int64)
        return replace(
            self.about,
            offsets=freeze(offsets, np.int64, own=True),
            neighbours=freeze(neighbours, np.int64, own=True),
        )

    def facts(self) -> GraphFacts:
        """Return the same as `facts_of` the whole graph in memory, once all parts are written."""
        sparse = False
        ends: list[float] = []
        for arrays in self._files():
            sparse = "values" in arrays
            values = arrays.get("values", arrays.get("features", np.empty(0)))
            if values.size:
                ends += [float(values.min()), float(values.max())]
        return described(
            self.about,
            edges=self.edges,
            width=self._width,
            sparse=sparse,
            lowest=min(ends, default=0.0),
            highest=max(ends, default=0.0),
            fingerprint=self._fingerprint(),
        )

    def training_fingerprint(self, training: Graph) -> str:
        """Return the fingerprint of the training edges, once all parts are written."""
        return self._fingerprint(training=True)

    def _fingerprint(self, *, training: bool = False) -> str:
        """Return the same as `fingerprint` of the whole graph, or of its training edges.

        It hashes one array of the whole graph after the other, so the parts are read once for each.
        """
        digest = blake2b(digest_size=8)

        def add(array: npt.NDArray[Any]) -> None:
            digest.update(np.ascontiguousarray(array).data)

        add(np.zeros(1, np.int64))
        base = 0
        for arrays in self._files():
            offsets = arrays["offsets"]
            if training:
                trains = np.cumsum(arrays["edge_roles"] == Role.TRAIN)
                offsets = np.concatenate([[0], trains])[offsets]
            add(offsets[1:] + base)
            base += int(offsets[-1])
        for arrays in self._files():
            neighbours = arrays["neighbours"]
            if training:
                neighbours = neighbours[arrays["edge_roles"] == Role.TRAIN]
            add(neighbours.astype(np.int64))
        if self.about.labels is not None:
            add(self.about.labels)
        if self._width:
            self._add_features(add)
        return digest.hexdigest()

    def _add_features(self, add: Callable[[npt.NDArray[Any]], None]) -> None:
        if "features" in next(self._files()):
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
        if self._width != highest + 1:
            add(np.array(self._width))

    def _files(self) -> Iterator[Arrays]:
        """Yield the arrays of each part that is written."""
        for number in range(self._parts):
            yield read_layout(part_path(self._prepared.path, number), REMEDY)

    @property
    def _prepared(self) -> PartsWriter:
        if self._writer is None:
            raise RuntimeError("the parts are not prepared")
        return self._writer


def _edgeless(ids: Ids, **about: Any) -> Graph:
    """Return a graph without features and edges."""
    return Graph(
        offsets=freeze(np.zeros(len(ids) + 1, np.int64), np.int64, own=True),
        neighbours=freeze(np.empty(0, np.int64), np.int64, own=True),
        ids=ids,
        **about,
    )


class StreamedDemo(StreamedSource):
    """Parts of a demo graph: bit by bit the one that `demo_graph` makes in memory.

    In memory are some numbers of 8 bytes for each device, and for each draw of an edge one.
    """

    def __init__(self, devices: int, *, features: bool = True) -> None:
        self._draws = DemoDraws(devices)
        self._wanted = features
        about = _edgeless(
            freeze(np.arange(devices), np.int64, own=True),
            labels=freeze(self._draws.labels, np.int64, own=True),
            classes=COMMUNITIES,
            name=demo_name(devices),
            notes=() if features else (NOT_ASKED,),
        )
        super().__init__(about, VOCABULARY if features else 0, self._draws.draws)

    def pairs(self) -> Iterator[Ints]:
        """Yield the draws of edges in slices."""
        return self._draws.pairs()

    def prepare(
        self, partition: Partition, writer: PartsWriter, progress: Progress | None = None
    ) -> None:
        """Draw all edges; repeated draws are no fault of a source and not counted."""
        super().prepare(partition, writer, progress)
        self.dropped_self_loops = self.dropped_duplicates = 0

    def store_large_sparse(self) -> None:
        """Do nothing: words are sparse."""

    def features(self, devices: Ints) -> "Features | None":
        """Return [hosted, words] of a part."""
        if not self._wanted:
            return None
        return self._draws.words(int(devices[0]), int(devices[-1]) + 1)


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
        for place in np.flatnonzero(lookup(named, ids) < 0)[:1]:
            raise InputError(f"{path}: {unknown_id(named[place], files.labels, files.features)}")
        wanted = files.features if features else None
        known = known_of_devices(ids, files.labels, wanted, options)
        about = _edgeless(
            freeze(ids, np.int64),
            labels=known.labels,
            classes=known.classes,
            name=name,
            notes=files.notes + known.notes,
        )
        matrix = known.features
        if matrix is not None:
            matrix = stored_features(finite_features(matrix, len(ids), "features"))
            self.index_bytes = _index_bytes(matrix)
        self._features = matrix
        rows = self._pairs.tell() // 16
        super().__init__(about, 0 if matrix is None else matrix.shape[1], rows)

    def store_large_sparse(self) -> None:
        """Store large features sparse, whatever they hold."""
        if self._features is not None and np.prod(self._features.shape) >= MIN_CONVERTED:
            self._features = frozen_sparse(self._features)
            self.index_bytes = _index_bytes(self._features)

    def _read(self, table: TextTable, options: ReadOptions) -> Ints:
        """Keep all pairs as numbers, and return the distinct ids in them."""
        named, fresh = np.empty(0, np.int64), []
        for rows in _tables(self._path, table):
            pairs = read_edges(rows, options, integers=True)
            self._pairs.write(np.ascontiguousarray(pairs, np.int64).data)
            fresh.append(distinct(pairs.ravel()))
            if sum(map(len, fresh)) > max(len(named), BLOCK):
                named, fresh = distinct(np.concatenate([named, *fresh])), []
        return distinct(np.concatenate([named, *fresh]))

    def pairs(self) -> Iterator[Ints]:
        """Yield the rows of the list in slices, as indices of devices."""
        row_of = _numbering(np.asarray(self.about.ids))
        self._pairs.seek(0)
        while len(content := self._pairs.read(16 * ROWS)):
            yield row_of(np.frombuffer(content, np.int64).reshape(-1, 2))

    def prepare(
        self, partition: Partition, writer: PartsWriter, progress: Progress | None = None
    ) -> None:
        """Write the neighbour lists; a list that holds self-loops only is refused."""
        super().prepare(partition, writer, progress)
        if not self.edges:
            raise InputError(f"{self._path}: every row joins a device to itself; no edge is left")

    def features(self, devices: Ints) -> "Features | None":
        """Return [hosted, d] of a part."""
        if self._features is None:
            return None
        rows: Features = self._features[int(devices[0]) : int(devices[-1]) + 1]
        return rows


def _numbering(ids: Ints) -> Callable[[Ints], Ints]:
    """Return a function from ids to their rows; all are among `ids`, which ascend."""
    if ids[-1] >= SPARSE_IDS * len(ids):
        return lambda values: np.searchsorted(ids, values)
    table = np.zeros(int(ids[-1]) + 1, np.int32)  # a search among millions takes ten times as long
    table[ids] = np.arange(len(ids))
    return lambda values: table[values].astype(np.int64)


def _blocks(path: Path) -> Iterator[str]:
    """Yield the text in blocks of whole lines."""
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
    """Yield the rows of a table in blocks; `table` has the first."""
    with readable(str(path)):
        blocks = _blocks(path)
        line = 1 + next(blocks).count("\n")
        yield table
        for text in blocks:
            if text.strip():
                yield replace(table, text=text, body=0, first_line=line, comments=())
            line += text.count("\n")


LARGE_DEMO = 500_000
"""Devices from which on a demo graph is made part by part."""
LARGE_FILE = 1 << 28
"""Bytes from which on an edge list is read part by part."""


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
    """Provide the source of the graph that `spec` names, as `lumos.load` takes it.

    Args:
        whole: read it into memory, however large it is.
        scratch: folder in which the parts will be written; temporary files lie beside it.
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
    """Return the edge list that a path is or holds, and the name of its graph."""
    if path.is_file() and path.suffix in SUFFIXES:
        return path, path.stem
    if path.is_dir() and not is_parts_folder(path):
        targets = any(child.name.endswith("target.csv") for child in path.iterdir())
        return (None if targets else edge_list_in(path)), path.resolve().name
    return None, ""
