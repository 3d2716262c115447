"""Stages: the sums of a strict run, one class for each kind of sum.

A run is a list of stages. Each says who takes part, how many numbers a device adds, how far one
device can move them (its sensitivity), which share of the privacy budget its noise has, what is
sent before its sums, and what is learnt from them. The public half needs no private data: the
coordinator, the accountant, the table of guarantees, the reports and the audit read it. The private
half (`before`, `vectors`, `learn`) is called with the state of a trainer, on its own shard.

A new stage is one class, and its place in the list of its task (`lumos.strict.classify.stages`,
`lumos.strict.link.stages`).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from lumos.errors import UsageError
from lumos.exchange.endpoint import Program
from lumos.secagg.noise import Noise, epsilon_for, mu_for
from lumos.secagg.parameters import limit_for
from lumos.strict.accounting import EDGE, FEATURES, LABEL, NORM, RECORD, sum_charge
from lumos.strict.book_records import Charge
from lumos.strict.features import BUCKETS, CENTRES, SIZES, STAGES, Scaling
from lumos.strict.settings import StrictSettings, settings_of
from lumos.training.config import Config
from lumos.training.profile import RunSizes, SumStage
from lumos.training.split import Role
from lumos.typing import Doubles, Ints

if TYPE_CHECKING:
    from lumos.strict.features import OuterVectors

MIN_NOISE_STEPS = 1000
"""Steps of the fixed point that a share of noise spans at least."""
NOISE_TAIL_SIGMAS = 12.0
"""Standard deviations of a share of noise that fit below the limit of the fixed point, beside the
vector itself. A normal number is beyond them with a probability of 3.6e-33, so none of 2^67 numbers
of a run is, but for a chance below 2^-40."""
SCALING_SHARE = 0.04
"""The share in the budget μ² of each sum that scales features; the largest stage gives it."""
MIN_SECURITY_BITS = 40
"""Bits of security that the table of guarantees takes for granted."""


class When(Enum):
    """The part of a run that a stage belongs to."""

    FIRST = "before the first epoch"
    EPOCHS = "an epoch for each sum"
    LAST = "after the last epoch"


class Sensitivity(NamedTuple):
    """How far one device's vector can move in one sum of a stage, as a Euclidean norm."""

    norm: float
    """From anything it may be to zero: the largest norm."""
    features: float
    """When the device has other features, and the same randomized label."""
    label: float = 0.0
    """When it has another label, and other features: with true labels in the sums."""
    edge: float = 0.0
    """When one edge is added or removed, at one of its two ends. Sums of links have no bound, and
    the table of guarantees gives none: 0."""


class Stage(ABC):
    """One kind of sum.

    Args:
        schedule: everything public about the run.
    """

    name: ClassVar[str]
    """Also names what is saved of the stage."""
    title: ClassVar[str] = ""
    """The heading in reports; the name, if empty."""
    learns: ClassVar[str]
    """What is learnt from its sums, for reports."""
    loss: ClassVar[str] = ""
    """What the loss of its epochs is of; empty where they have none."""
    when: ClassVar[When] = When.EPOCHS
    roles: ClassVar[frozenset[Role]] = frozenset(Role)
    """Devices whose vectors are not zero."""
    share: ClassVar[float]
    """Of all its sums together in the budget μ², for the change that its noise is made for."""
    question: ClassVar[str] = FEATURES
    """The change that its noise is made for: a field of `Sensitivity`."""
    bounded: ClassVar[bool] = False
    """Whether no vector can be longer than `sensitivity.norm`, without any clipping."""
    paired: ClassVar[bool] = False
    """Whether its sums are over products of matched devices."""
    sessions: ClassVar[bool] = False
    """Whether sessions of two devices are open before its sums."""
    replayed: ClassVar[bool] = False
    """Whether what is sent before its sums is sent again when a run is resumed."""

    def __init__(self, schedule: Any) -> None:
        self.schedule = schedule

    # Public.

    @property
    def num_sums(self) -> int:
        """Number of sums in the run; 0 where the run does without this stage."""
        return 1

    @property
    def takes_rest(self) -> bool:
        """Whether the stage has all epochs that the others leave."""
        return False

    @property
    @abstractmethod
    def moves(self) -> Sensitivity:
        """The sensitivity, but for what rounding adds; docs/strict.md proves each number."""

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """The sensitivity that noise is made for."""
        return Sensitivity(*(move * (1 + self.schedule.margin) for move in self.moves))

    @abstractmethod
    def width(self, features: int) -> int:
        """Return how many numbers a sum has, where devices have `features` features."""

    def budget(self, step: int) -> float:
        """Return the share of one sum in the budget μ²."""
        return self.share

    def noise(self, step: int = 0) -> Noise | None:
        """Return the noise of a sum; None for exact sums.

        Args:
            step: number of the sum among those of the stage.
        """
        schedule = self.schedule
        if not schedule.noisy:
            return None
        sensitivity = self.sensitivity
        change: float = getattr(sensitivity, self.question)
        mu = schedule.whole_mu * math.sqrt(self.budget(step))
        noise: Noise = schedule.gaussian(mu, change, sensitivity.norm)
        return noise

    def spread(self, step: int = 0) -> float:
        """Return the standard deviation of the noise in a sum."""
        noise = self.noise(step)
        return 0.0 if noise is None else noise.total

    @property
    def clip(self) -> float:
        """Largest norm of one device's vector, as the noise assumes it."""
        return self.sensitivity.norm if self.schedule.noisy or self.bounded else math.inf

    def limit(self, width: int) -> float:
        """Return the norm that vectors are clipped to; rounded, none exceeds `clip`.

        Raises:
            UsageError: nothing is left.
        """
        limit: float = self.clip - self.schedule.rounding_error(width)
        if not limit > 0:
            raise UsageError(
                f"`epsilon={self.schedule.strict.sums_epsilon:g}` for {self.schedule.classes:,} "
                "classes leaves gradients smaller than the steps of the fixed point; use a larger "
                "one"
            )
        return limit

    # Private: `state` is the trainer of a shard.

    def before(self, state: Any, step: int) -> Program[None]:
        """Send what has to be sent before a sum."""
        yield from ()

    def participants(self, state: Any) -> Ints:
        """Return the positions of the hosted devices whose vectors are not zero."""
        return np.arange(len(state.shard))

    def vectors(self, state: Any) -> "Doubles | OuterVectors":
        """Return [participants, width] what each participant adds to the next sum."""
        raise NotImplementedError(f"stage {self.name!r} has no vectors")

    def update(self, state: Any, each: bool) -> Doubles:
        """Return [hosted, width] the vector of each hosted device, or their sum, all rounded."""
        vectors: Any = self.vectors(state)
        if not each:
            total: Doubles = state.sums.rounded(vectors).sum(axis=0)
            return total
        of_all = np.zeros((len(state.shard), vectors.shape[1]))
        of_all[self.participants(state)] = vectors
        return of_all

    def sum(self, state: Any, step: int, randomness: int) -> Program[Doubles]:
        """Add up the vectors of all devices; `randomness` names those of the noise."""
        update = partial(self.update, state)
        total: Doubles = yield from state.sums.sum(update, self.noise(step), randomness)
        return total

    @abstractmethod
    def learn(self, state: Any, total: Doubles, step: int) -> float | None:
        """Use a sum; return the mean loss in it, if there is one."""


class Sizes(Stage):
    """Histograms of each feature over powers of two."""

    name = SIZES
    learns = "the size of each feature, in histograms over powers of two"
    when = When.FIRST
    share = SCALING_SHARE
    bounded = True

    @property
    def num_sums(self) -> int:
        """As often as the scaling takes it."""
        return STAGES[self.schedule.scaling].count(self.name)

    @property
    def moves(self) -> Sensitivity:
        """One count for each feature, 1/√d each, at one octave or another."""
        return Sensitivity(1.0, math.sqrt(2), math.sqrt(2))

    def width(self, features: int) -> int:
        """Return the buckets of all features."""
        return features * BUCKETS

    def participants(self, state: Any) -> Ints:
        """Return the positions of the devices that scale."""
        rows: Ints = state.scaling_sums.adding
        return rows

    def vectors(self, state: Any) -> Doubles:
        """Return what devices that scale add."""
        vectors: Doubles = state.scaling_sums.vectors(self.name, each=True)
        return vectors[self.participants(state)]

    def update(self, state: Any, each: bool) -> Doubles:
        """Return vectors on the grid of the fixed point, or their sum."""
        vectors: Doubles = state.scaling_sums.vectors(self.name, each=each)
        return vectors

    def learn(self, state: Any, total: Doubles, step: int) -> None:
        """Narrow the bounds, or move the centres."""
        state.scaling_sums.learn(self.name, total, self.spread())


class Centres(Sizes):
    """Means of each feature within its bounds."""

    name = CENTRES
    learns = "the centre of each feature"

    @property
    def moves(self) -> Sensitivity:
        """From one bound to the other."""
        return Sensitivity(1.0, 2.0, 2.0)

    def width(self, features: int) -> int:
        """Return one number for each feature."""
        return features


@dataclass(frozen=True, kw_only=True)
class Schedule(ABC):
    """Everything public about a strict run: its stages in order, and their budget."""

    config: Config
    devices: int
    """Number of devices."""
    scaling: Scaling = "none"
    """How features are scaled before anything else is learnt; never `auto`."""
    bounded: bool = True
    """Whether all features lie between -1 and 1."""
    signed: bool = True
    """Whether features may be negative."""

    margin: ClassVar[float] = 0.0
    """What rounding to the fixed point may add to a norm, at most, as a share of it."""

    def __post_init__(self) -> None:
        if self.rest_epochs < 1:
            taken = [
                f"{stage.num_sums} for {stage.name}"
                for stage in self.epoch_stages
                if not stage.takes_rest and stage.num_sums
            ]
            raise UsageError(
                f"`epochs` must be above {self.config.train.epochs - self.rest_epochs} with these "
                f"settings: {', '.join(taken)}; got {self.config.train.epochs}"
            )

    @property
    @abstractmethod
    def kinds(self) -> list[type[Stage]]:
        """The stages of the task, in order."""

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """All stages of the task in order, those that the run does without included."""
        return tuple(kind(self) for kind in self.kinds)

    def __getitem__(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    def _when(self, when: When) -> tuple[Stage, ...]:
        return tuple(stage for stage in self.stages if stage.when is when)

    @cached_property
    def first_stages(self) -> tuple[Stage, ...]:
        """The stage of each sum before the first epoch: those that scale features."""
        return tuple(self[name] for name in STAGES[self.scaling])

    @cached_property
    def epoch_stages(self) -> tuple[Stage, ...]:
        """Stages whose sums are epochs."""
        return self._when(When.EPOCHS)

    @cached_property
    def last_stages(self) -> tuple[Stage, ...]:
        """The stage of each sum after the last epoch."""
        return self._when(When.LAST)

    @cached_property
    def rest_epochs(self) -> int:
        """Epochs that are left for the stage that takes the rest."""
        taken = sum(stage.num_sums for stage in self.epoch_stages if not stage.takes_rest)
        return self.config.train.epochs - taken

    def place(self, epoch: int) -> tuple[Stage, int]:
        """Return the stage of epoch number `epoch`, from 0, and its number among its sums."""
        for stage in self.epoch_stages:
            if epoch < stage.num_sums:
                return stage, epoch
            epoch -= stage.num_sums
        raise ValueError("there is no such epoch")

    @cached_property
    def sums(self) -> list[tuple[Stage, int]]:
        """Stage and step of every sum of the run, in order."""
        return [
            *((stage, 0) for stage in self.first_stages),
            *map(self.place, range(self.config.train.epochs)),
            *((stage, 0) for stage in self.last_stages),
        ]

    def first_randomness(self, place: int) -> int:
        """Return the name of the randomness of a sum before the first epoch: no other sum has it."""
        return self.config.train.epochs + len(self.last_stages) + place

    @property
    def strict(self) -> StrictSettings:
        """The strict settings."""
        return settings_of(self.config)

    # The account.

    @property
    def noisy(self) -> bool:
        """Whether sums carry noise."""
        return self.strict.protect == "noise"

    def left_of(self, share: float) -> float:
        """Return the share of the largest stage in the budget, less what scaling takes."""
        return share - SCALING_SHARE * len(self.first_stages)

    @cached_property
    def whole_mu(self) -> float:
        """μ of all updates together; searched for once, used in every epoch."""
        return mu_for(self.strict.update_epsilon, self.strict.update_delta)

    def account(self, mu: float) -> tuple[float, float] | None:
        """Return (ε, δ) of Gaussian mechanisms with this μ together; None for exact sums."""
        if not self.noisy:
            return None
        return epsilon_for(mu, self.strict.update_delta), self.strict.update_delta

    def stages_of(self, role: Role = Role.NOBODY) -> tuple[Stage, ...]:
        """Return the stages of the run in which a device's own vector is not zero."""
        return tuple(stage for stage in self.stages if role in stage.roles and stage.num_sums)

    def mu(self, question: str, role: Role = Role.NOBODY) -> float:
        """Return μ of all sums of a device of some role, for a field of `Sensitivity`."""
        square = 0.0
        for stage in self.stages_of(role):
            change = getattr(stage.sensitivity, question)
            for step in range(stage.num_sums):
                noise = stage.noise(step)
                if noise is not None:
                    square += (change / (noise.sigma * noise.clip)) ** 2
        return math.sqrt(square)

    def run_mu(self, role: Role = Role.NOBODY) -> dict[str, float]:
        """Return by question μ of all sums of a device of some role; at one end of an edge.

        Another label moves a vector only where sums see the label itself: otherwise everything is a
        function of the randomized one.
        """
        features = self.mu("features", role)
        label = self.mu("label", role) if math.isinf(self.strict.sums_epsilon) else 0.0
        return {
            LABEL: label,
            FEATURES: features,
            RECORD: max(label, features),
            NORM: self.mu("norm", role),
            EDGE: self.mu("edge", role),
        }

    def sum_charge(self, role: Role = Role.NOBODY) -> Charge:
        """Return what a book counts for all sums of a device of some role."""
        return sum_charge(self.strict, self.run_mu(role))

    # Noise.

    def rounding_error(self, width: int) -> float:
        """Return the largest norm of what rounding adds to a vector of `width` numbers."""
        return math.sqrt(width) * 0.5 ** (self.config.updates.fraction_bits + 1)

    def gaussian(self, mu: float, change: float, norm: float) -> Noise:
        """Return noise under which a change of a vector by `change` has the given μ.

        Args:
            norm: largest norm of a vector.

        Raises:
            UsageError: it would fall between the steps of the fixed point.
        """
        noise = Noise.of(mu * (norm / change), 1, norm, self.devices, self.config.updates)
        if noise.share * 2.0**self.config.updates.fraction_bits < MIN_NOISE_STEPS:
            raise UsageError(
                "`clip` is so small, or `update_epsilon` so large, that noise would fall between "
                "the steps of the fixed point"
            )
        limit = limit_for(self.config.updates, self.devices)
        if norm + NOISE_TAIL_SIGMAS * noise.share > limit:
            raise UsageError(
                f"noise may exceed the `limit` of masked sums ({limit:g}), "
                "and would be refused or cut off; raise `limit` or `update_epsilon`"
            )
        return noise

    def check(self) -> None:
        """Refuse settings under which sums would carry less noise than the table counts with.

        Raises:
            UsageError: there is one.
        """
        updates, strict = self.config.updates, self.strict
        if not self.noisy:
            return
        if strict.update_delta > 1 / self.devices:
            raise UsageError(
                f"`update_delta={strict.update_delta:g}` is above 1/n = {1 / self.devices:.3g} for "
                f"{self.devices:,} devices: a mechanism that shows one device in full would be "
                f"permitted; use {10.0 ** math.floor(math.log10(1 / self.devices)):g} or less"
            )
        if updates.clip:
            raise UsageError(
                "`clip` of masked sums cuts off noise together with the vector; leave it out: "
                "vectors are clipped before noise is added"
            )
        for name in ("neighbours", "threshold"):
            if getattr(updates, name) is not None:
                raise UsageError(
                    f"`{name}` of masked sums is not set by hand under `protect='noise'`: it "
                    "follows from `corrupt`, `dropped` and `security_bits`; leave it out"
                )
        if updates.security_bits < MIN_SECURITY_BITS:
            raise UsageError(
                f"`security_bits` of masked sums must be {MIN_SECURITY_BITS} or more under "
                f"`protect='noise'`, got {updates.security_bits}: the table of guarantees takes it "
                "for granted"
            )
        for stage, step in self.sums:
            stage.noise(step)

    def described(self, sizes: RunSizes) -> list[SumStage]:
        """Return the stages of a finished run in words, with the widths of their sums."""
        places = [(stage, 0, 0) for stage in self.first_stages]
        first = 1
        for stage in (*self.epoch_stages, *self.last_stages):
            if stage.num_sums:
                places.append((stage, first, first + stage.num_sums - 1))
                first += stage.num_sums
        return [
            SumStage(
                name=stage.title or stage.name,
                learns=stage.learns,
                first=begin,
                last=end,
                numbers=stage.width(sizes.features),
                loss=stage.loss,
            )
            for stage, begin, end in places
        ]
