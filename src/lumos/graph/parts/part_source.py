"""Where parts come from: a graph in memory, or one that is made part by part."""

from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from lumos.graph.arrays import is_sparse, spans
from lumos.graph.facts import GraphFacts, facts_of, fingerprint
from lumos.graph.graph import Graph
from lumos.graph.parts.partition import Partition
from lumos.graph.parts.parts_writer import PartsWriter
from lumos.typing import Ints, Progress

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
