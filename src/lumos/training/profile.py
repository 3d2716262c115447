"""The protocol of a profile: what it allows, its settings, its programs, its texts; the registry.

A profile is a folder of `lumos` with an object of the form of `Profile`, and one line in
`PROFILES`. Nothing else names it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from lumos.exchange.messages import Door
from lumos.graph.facts import GraphFacts
from lumos.registry import Registry
from lumos.training.trainer import Result
from lumos.typing import Arrays

if TYPE_CHECKING:
    from lumos.device.shard import Shard
    from lumos.exchange.endpoint import Endpoint
    from lumos.ldp.account import PrivacyAccount
    from lumos.training.config import Config
    from lumos.training.problem import Problem
    from lumos.training.trainer import (
        AskedPairs,
        CoordinatorProgram,
        LinkPredictions,
        TrainedLinks,
        Trainer,
    )


PAPER, STRICT = "paper", "strict"

PROFILES: "Registry[Profile[Any]]" = Registry(
    "profile",
    {
        PAPER: "lumos.paper.profile:PROFILE",
        STRICT: "lumos.strict.profile:PROFILE",
    },
)

GuaranteeInWords = Callable[[Sequence[Mapping[str, Any]], int], Sequence[tuple[str, str]]]
"""From the table of guarantees of a run and its number of classes to lines: a title, which may be
empty, and sentences."""


def _by_table(guarantees: Sequence[Mapping[str, Any]], classes: int) -> Sequence[tuple[str, str]]:
    """For a profile without words of its own."""
    there = "What is guaranteed is in the table of guarantees."
    return [("", there if guarantees else "Nothing is guaranteed.")]


LOSS = "Mean training loss of each epoch, as all devices learn it from a sum."


@dataclass(frozen=True, kw_only=True)
class TreeTexts:
    """Descriptions of a profile's trees."""

    workload: str
    """Meaning of a workload, and the owner of an edge."""
    own_leaf: str
    """Content of the leaves of the device itself."""
    other_leaf: str
    """Content of the leaves of its neighbours."""
    builder: str
    """Builder of a tree."""
    virtual_nodes: bool = True
    """True if trees have a root and parents, as in the paper; otherwise they are stars."""
    reported_largest: Mapping[str, float] = field(default_factory=dict)
    """By name of the graph, the largest workload that a publication reports for these trees."""


@dataclass(frozen=True, kw_only=True)
class RunSizes:
    """Public sizes on which the widths of sums depend."""

    epochs: int
    """That were trained."""
    devices: int
    features: int
    classes: int
    """0 for link."""
    weights: Arrays = field(repr=False)
    """The trained weights by name."""


@dataclass(frozen=True, kw_only=True)
class SumStage:
    """Epochs, or single sums after the last epoch, whose sums are of one kind."""

    name: str
    """As a heading has it."""
    learns: str
    """Result of its sums, and who learns it."""
    first: int
    """Its first epoch; 1 is the first of the run. Below 1 for sums before, past the last epoch for
    sums after training."""
    last: int
    """Its last epoch."""
    numbers: int
    """Numbers in one of its sums."""
    loss: str = ""
    """Meaning of the loss of its epochs; empty where they have none."""


@dataclass(frozen=True, kw_only=True)
class ProfileTexts:
    """Texts of a profile about a run with certain settings."""

    trees: TreeTexts | None
    """None where no tree is built."""
    guarantee: GuaranteeInWords = _by_table
    """The whole guarantee in plain words, or what is not protected."""
    variant: str = ""
    """Variant of the profile, which follows its name; empty where there is only one."""
    design: str = ""
    """Reason why messages leave through the door `open`: a sentence that follows "Privacy:" and
    begins with a small letter."""
    loss: str = LOSS
    """Meaning of the training loss."""
    stages: Mapping[str, int] = field(default_factory=dict)
    """By name, the first epoch of each stage of training after the first; 1 is the first epoch."""
    first_stage: str = "first stage"
    """Name of the stage before them."""
    sums: Callable[[RunSizes], Sequence[SumStage]] | None = None
    """The stages of a finished run in order, with the widths of their sums; None: not described."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """By candidate, as `Outcome.choice` names it: what it predicts from."""
    budget: str = ""
    """Budget of a run, where ε of a release does not say it."""
    own: str = "local model (no neighbours)"
    """Input of the variant `own`."""
    control: str = "releases without information"
    """Replacement of the releases in the control."""
    chooser: str = "validation devices"
    """Name of whoever chose the candidate that predicts."""
    validation: str = ""
    """Use of validation devices or edges, in one sentence."""
    unused_settings: frozenset[str] = frozenset()
    """Settings of every profile that have no effect in this one."""


class ProfileSettings(Protocol):
    """A frozen dataclass with the settings that only one profile has."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def epsilon(self) -> float:
        """ε of one release; inf where nothing is randomized."""
        ...


class PlannedRun(NamedTuple):
    """The most that a run would tell of any device, from what is public before it begins."""

    epsilon: Mapping[str, float]
    """By question of the privacy account: ε at a chosen δ; infinite where there is no guarantee."""
    noise: float
    """Least standard deviation of the noise in a sum, in units of the largest norm of a device's
    vector; infinite where there are no sums."""


class Profile(Protocol[Result]):
    """One way to train over devices: its doors, settings, programs and guarantees."""

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
        """True if a run trains the local model as a part of itself, without a run beside it."""
        ...

    def defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults that differ from those of the dataclasses, for the settings that are given."""
        ...

    def ignores(self, name: str, config: "Config") -> str:
        """With which settings a setting has no effect, as `profile='…'`; empty where it has."""
        ...

    def improvements(self, config: "Config") -> list[str]:
        """Return the departures from the letter of the paper, one sentence each."""
        ...

    def texts(self, config: "Config") -> "ProfileTexts":
        """Return the texts of reports about a run with these settings."""
        ...

    def check(self, facts: GraphFacts, config: "Config") -> None:
        """Refuse what cannot be trained, before anything is written or balanced."""
        ...

    def planned(self, problem: "Problem", config: "Config", delta: float) -> PlannedRun:
        """Return the most that a run of real devices would tell of any device; ε at `delta`."""
        ...

    def randomness(self, problem: "Problem", config: "Config", *, control: bool) -> str:
        """Name of the randomness that a simulation tosses.

        Two releases, or two sums with noise, drawn with the same randomness reveal more than their
        ε.
        """
        ...

    def programs(
        self,
        problem: "Problem",
        config: "Config",
        shards: "Sequence[Shard]",
        endpoints: "Sequence[Endpoint]",
        coordinator: "Endpoint",
        *,
        randomness: str,
        control: bool = False,
        step: int = 0,
        account: "PrivacyAccount | None" = None,
        follows: bool = False,
    ) -> "tuple[list[Trainer[Result]], CoordinatorProgram]":
        """The trainers of all shards, and the coordinator's program.

        Args:
            shards: one for each of the problem's parts; so are `endpoints`.
            coordinator: its endpoint.
            randomness: names the randomness that a simulation tosses.
            control: whether releases carry no information.
            step: number of the release, where it is a further one.
            account: privacy account of a real device; simulations name theirs in the settings.
            follows: whether the trainers are the coordinator's, which has shards without devices
                and follows the training by the sums that it opens.
        """
        ...

    def check_weights(self, config: "Config", features: int, classes: int, state: Arrays) -> None:
        """Refuse the weights of a run folder that do not match the model of the settings.

        Args:
            classes: 0 for link.
            state: as `Trainer.load_state_dict` takes it for `model`.

        Raises:
            InputError: they do not.
        """
        ...

    def predict_pairs(self, model: "TrainedLinks", asked: "AskedPairs") -> "LinkPredictions":
        """Score pairs by a finished run that predicts links; the first end asks."""
        ...

    def for_new_devices(self, config: "Config") -> "Config":
        """The settings under which new devices are predicted.

        Raises:
            UsageError: the run cannot take any.
        """
        ...
