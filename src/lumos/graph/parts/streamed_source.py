"""A graph that is made part by part: its arcs go through files, and never are all in memory."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

import numpy as np

from lumos.errors import UsageError
from lumos.graph.arrays import Ids, freeze
from lumos.graph.facts import GraphFacts
from lumos.graph.graph import Graph
from lumos.graph.parts.layout import read_layout, write_layout
from lumos.graph.parts.partition import Partition
from lumos.graph.parts.parts_writer import PartsWriter
from lumos.graph.parts.stored_part import REMEDY, part_path
from lumos.graph.parts.streamed_facts import StreamedFacts
from lumos.typing import Ints, Progress

if TYPE_CHECKING:
    from lumos.graph.graph import Features


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
