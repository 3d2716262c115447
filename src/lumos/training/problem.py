"""The learning problem of a federation: public facts and hosted parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse import csr_array, issparse

from lumos.device.shard import spread
from lumos.errors import InputError, UsageError
from lumos.graph import Graph
from lumos.graph.arrays import Ids, spans
from lumos.graph.facts import GraphFacts, GraphPart, facts_of, parts_of
from lumos.graph.labels import Role
from lumos.ldp.bounds import Features
from lumos.training.metrics import TestedPairs
from lumos.training.split import Shares
from lumos.typing import Flags, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """The learning problem of a federation, without the settings.

    It has what is public of all devices, the parts that this process hosts (all of them, or those
    of its rank), and what the observer of a simulation knows beside it.
    """

    facts: GraphFacts
    """Facts of the graph that the federation is cut from; of training edges only, for link."""
    parts: tuple[GraphPart, ...] = field(repr=False)
    """Those that this process hosts, one for each of its shards."""
    keep: tuple[Flags, ...] = field(repr=False)
    """For each of the parts [slots]: who carries which edge. Empty before it is decided."""
    classes: int
    """0 for link."""
    training: int = 0
    """Number of devices that train, for classify."""
    validation: int = 0
    """Number of devices that validate, for classify."""
    seed: int
    split: str = ""
    """Digest of the split; empty for the default one of the seed."""
    alone: bool = False
    """True for the local model: trees have no neighbours."""
    owner: str = ""
    """Fingerprint of the whole graph; that of `facts`, if empty."""
    graph: Graph | None = field(default=None, repr=False)
    """The graph that the federation is cut from, where one process hosts all of it."""
    whole: GraphFacts | None = None
    """Facts of the whole graph, where it is not `facts`."""
    whole_graph: Graph | None = field(default=None, repr=False)
    """The whole graph, where this process has it."""
    ids: Callable[[], list[Ids]] = field(default=list, repr=False)
    """For each of the parts, the original ids of its devices."""
    origin: str = ""
    """Source of the split, in one sentence."""
    shares: Shares | None = None
    """Shares of a random split of edges, from which it can be drawn again."""
    sizes: tuple[int, int, int] | None = None
    """Numbers that train, validate and test, where parts on disk say it."""
    held_out: TestedPairs | None = field(default=None, repr=False)
    """For link, at rank 0: the pairs that the observer scores by."""

    @staticmethod
    def of(
        graph: Graph,
        *,
        keep: Flags | None,
        roles: Ints,
        held_back: Ints,
        classes: int,
        seed: int,
        shards: int = 1,
        split: str = "",
        alone: bool = False,
        owner: str = "",
        hosted: Sequence[Ints] | None = None,
    ) -> "Problem":
        """The problem of a graph in memory.

        Args:
            graph: of training edges only, for link.
            keep: [2 · edges] who carries which edge; None if it is not decided yet.
            roles: [devices] for classify.
            held_back: [pairs, 2] validation edges, for link.
            shards: into which the graph is cut.
            hosted: for each shard of this process [devices] ids; None: it hosts all of them.
            others: as in the class.
        """
        ids = spread(graph.devices, shards) if hosted is None else hosted
        parts = tuple(parts_of(graph, ids, roles if len(roles) else None, held_back))
        problem = Problem(
            facts=facts_of(graph),
            parts=parts,
            keep=(),
            classes=classes,
            training=int((roles == Role.TRAIN).sum()),
            validation=int((roles == Role.VALIDATION).sum()),
            seed=seed,
            split=split,
            alone=alone,
            owner=owner,
            graph=graph if hosted is None else None,
        )
        return problem if keep is None else problem.kept(graph, keep)

    def in_memory(self, setting: str) -> Graph:
        """The graph, for a setting that needs it in one process.

        Raises:
            UsageError: this process hosts a part of it.
        """
        if self.graph is None:
            raise UsageError(
                f"`{setting}` needs all devices in one process; leave it out, or train the graph "
                "itself without `ranks`"
            )
        return self.graph

    def kept(self, graph: Graph, keep: Flags) -> "Problem":
        """The same once it is decided who carries which edge: [2 · edges] of the graph."""
        return replace(self, keep=tuple(keep_of(graph, part, keep) for part in self.parts))


def keep_of(graph: Graph, part: GraphPart, keep: Flags) -> Flags:
    """[slots] of a part, from [2 · edges] of the graph that it was cut from."""
    return keep[spans(graph.offsets[part.devices], np.diff(part.offsets))]


def rows_of(features: "Features | None") -> Features:
    """Features as CSR or dense rows, as trainers take them."""
    if features is None:
        raise InputError("devices have no features, and training needs them")
    return csr_array(features) if issparse(features) else np.asarray(features, np.float32)


def features_of(graph: Graph) -> Features:
    """The features of a graph, as CSR or dense rows.

    Raises:
        InputError: there are none.
    """
    need_features(graph)
    return rows_of(graph.features)


def need_features(facts: GraphFacts | Graph) -> None:
    """Raise `InputError` where a graph has no features."""
    if facts.feature_count == 0:
        raise InputError(
            f"{facts.name or 'the graph'} has no features, and training needs them"
            f"{_why(facts, 'features')}; `lumos trees` works without"
        )


def need_labels(graph: Graph) -> Ints:
    """Return the labels of a graph.

    Raises:
        InputError: there are none.
    """
    if graph.labels is None:
        raise InputError(
            f"{graph.name or 'the graph'} has no labels; classify needs them, `task='link'` does "
            f"not{_why(graph, 'labels')}"
        )
    return np.asarray(graph.labels)


def _why(facts: GraphFacts | Graph, absent: str) -> str:
    """Return what the reader of a graph noted about something that is absent."""
    reasons = [note for note in facts.notes if note.startswith(f"{absent} absent")]
    return "".join(f" ({note})" for note in reasons[:1])
