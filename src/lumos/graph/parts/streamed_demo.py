"""The demo graph part by part: bit by bit the one that `demo_graph` makes in memory."""

from typing import TYPE_CHECKING

import numpy as np

from lumos.graph.arrays import freeze
from lumos.graph.demo import COMMUNITIES, VOCABULARY, DemoDraws, demo_name
from lumos.graph.options import NOT_ASKED
from lumos.graph.parts.arc_buckets import ArcBuckets, lists_of
from lumos.graph.parts.parts_writer import PartsWriter
from lumos.graph.parts.streamed_source import StreamedSource, edgeless
from lumos.typing import Ints, Progress

if TYPE_CHECKING:
    from lumos.graph.graph import Features


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
