"""The protocol of a profile: what it allows, which settings it has, which programs it runs.

A profile is a folder of `lumos` with an object of this form, and one line in
`lumos.training.profiles`. Nothing else names it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol

import numpy as np

from lumos.device.shard import spread
from lumos.errors import UsageError
from lumos.exchange.topic import Door
from lumos.graph import Graph
from lumos.graph.arrays import spans
from lumos.graph.facts import GraphFacts, GraphPart, facts_of, parts_of
from lumos.graph.labels import Role
from lumos.typing import Flags, Ints

if TYPE_CHECKING:
    from lumos.device.coins import PublicCoins
    from lumos.device.shard import Shard
    from lumos.exchange.endpoint import Endpoint
    from lumos.training.config import Config
    from lumos.training.link_questions import AskedPairs, PairAnswers, TrainedLinks
    from lumos.training.private_data import PrivateData
    from lumos.training.texts import ProfileTexts
    from lumos.training.trainer import CoordinatorProgram, Trainer
from lumos.training.trainer import Result


class ProfileSettings(Protocol):
    """A frozen dataclass with the settings that only one profile has."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def epsilon(self) -> float:
        """ε of one release; inf where nothing is randomized."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """The learning problem of a federation, without the settings.

    It has what is public of all devices, and the parts that this process hosts: all of them, or
    one of many, where every rank hosts its own.
    """

    facts: GraphFacts
    """Of the graph that the federation is cut from; of training edges only, for link."""
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
    """Whether trees have no neighbours at all: own features only."""
    owner: str = ""
    """Fingerprint of the whole graph; that of `facts`, if empty."""
    graph: Graph | None = field(default=None, repr=False)
    """The graph that the federation is cut from, where one process hosts all of it."""

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """Where the programs of a run are placed: an entry per shard, and the coordinator."""

    problem: Problem
    config: "Config"
    shards: "list[Shard]"
    endpoints: "list[Endpoint]"
    private: "list[PrivateData]" = field(repr=False)
    coordinator: "Endpoint"
    public: "PublicCoins"
    coins: str
    """Name of the coins that a simulation tosses."""
    control: bool = False
    """Whether releases carry no information."""
    step: int = 0
    """Number of the release, where it is a further one."""
    follows: bool = False
    """Whether the trainers are the coordinator's, which has shards without devices and follows the
    training by the sums that it opens."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Programs(Generic[Result]):
    """The programs of one run."""

    trainers: "list[Trainer[Result]]"
    coordinator: "CoordinatorProgram"


class Profile(Protocol[Result]):
    """One way to train over devices: its doors, settings, programs and promises."""

    @property
    def name(self) -> str:
        """As the setting `profile` has it."""
        ...

    @property
    def doors(self) -> frozenset[Door]:
        """The doors that are open; the endpoint refuses every other."""
        ...

    @property
    def settings(self) -> type[Any]:
        """The frozen dataclass of the settings that only this profile has."""
        ...

    @property
    def own_included(self) -> bool:
        """Whether a run trains own features only as a part of itself, without a run beside it."""
        ...

    def defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults that differ from those of the dataclasses, for the settings that are given."""
        ...

    def ignores(self, name: str, config: "Config") -> str:
        """With which settings a setting has no meaning, as `profile='…'`; empty where it has."""
        ...

    def improvements(self, config: "Config") -> list[str]:
        """Where a run departs from the letter of the paper, one sentence each."""
        ...

    def texts(self, config: "Config") -> "ProfileTexts":
        """What reports say about a run with these settings."""
        ...

    def check(self, facts: GraphFacts, config: "Config") -> None:
        """Refuse what cannot be trained, before anything is written or balanced."""
        ...

    def coins(self, problem: Problem, config: "Config", *, control: bool) -> str:
        """Name of the coins that a simulation tosses.

        Two releases, or two sums with noise, drawn with the same coins reveal more than their ε.
        """
        ...

    def programs(self, placement: Placement) -> Programs[Result]:
        """The trainers of all shards, and the coordinator's program."""
        ...

    def predict_pairs(self, model: "TrainedLinks", asked: "AskedPairs") -> "PairAnswers":
        """Score pairs by a finished run that predicts links; the first end asks."""
        ...

    def for_newcomers(self, config: "Config") -> "Config":
        """The settings under which newcomers are predicted.

        Raises:
            UsageError: the run cannot take any.
        """
        ...
