"""The protocol of a profile: what it allows, which settings it has, which programs it runs.

A profile is a folder of `lumos` with an object of this form, and one line in
`lumos.training.profiles`. Nothing else names it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol

from lumos.exchange.topic import Door
from lumos.graph.facts import GraphFacts

if TYPE_CHECKING:
    from lumos.device.coins import PublicCoins
    from lumos.device.shard import Shard
    from lumos.exchange.endpoint import Endpoint
    from lumos.training.config import Config
    from lumos.training.link_questions import AskedPairs, PairAnswers, TrainedLinks
    from lumos.training.private_data import PrivateData, Problem
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
class Placement:
    """Where the programs of a run are placed: an entry per shard, and the coordinator."""

    problem: "Problem"
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

    def coins(self, problem: "Problem", config: "Config", *, control: bool) -> str:
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
