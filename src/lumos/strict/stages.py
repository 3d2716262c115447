"""Stages: the sums of a strict run, one class for each kind of sum.

A run is a list of stages. A stage defines its participants, the width of its sums, their
sensitivity, its share of the privacy budget, the messages before its sums, and what is learnt from
them. The public half needs no private data: the coordinator, the accountant, the table of
guarantees, the reports and the audit read it. The private half (`before`, `vectors`, `learn`) is
called with the state of a trainer, on its own shard.

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
from scipy.special import ndtri

from lumos.crypto.shortness import proved_factor
from lumos.errors import UsageError
from lumos.exchange.endpoint import Program
from lumos.ldp.account import EDGE, FEATURES, LABEL, NORM, RECORD
from lumos.secagg.noise import Noise, epsilon_for, mu_for
from lumos.secagg.parameters import limit_for
from lumos.strict.features import BUCKETS, CENTRES, SIZES, STAGES, Scaling
from lumos.strict.settings import StrictSettings, settings_of
from lumos.training.config import Config
from lumos.training.profile import RunSizes, SumStage
from lumos.training.split import Role
from lumos.typing import Doubles, Ints

if TYPE_CHECKING:
    from lumos.strict.features import OuterVectors

MIN_NOISE_STEPS = 1000
"""Smallest standard deviation of a share of noise, in steps of the fixed point."""
NOISE_TAIL_SIGMAS = 12.0
"""Standard deviations of a share of noise that fit below the limit of the fixed point, beside the
vector itself. A normal number exceeds them with probability 3.6e-33, so the chance that one of 2^67
numbers of a run does is below 2^-40."""
SCALING_SHARE = 0.04
"""Share in the budget μ² of each sum that scales features, taken from the largest stage."""
SUMMAND_TAIL_SIGMAS = 9.0
"""Standard deviations by which the norm of a share of noise may exceed √width: that of a normal
vector does with probability below e^(-9²/2) = 2^-58 (Gaussian concentration)."""
FALSE_ALARM = 1e-9
"""Probability that a sum of honest devices is left out, at most."""
MIN_SECURITY_BITS = 40
"""Bits of security that the table of guarantees assumes."""


class When(Enum):
    """The part of a run that a stage belongs to."""

    FIRST = "before the first epoch"
    EPOCHS = "an epoch for each sum"
    LAST = "after the last epoch"


class Sensitivity(NamedTuple):
    """Largest change of one device's vector in one sum of a stage, as a Euclidean norm."""

    norm: float
    """Change to zero: the largest norm of a vector."""
    features: float
    """Change by other features, with the same randomized label."""
    edge: float = 0.0
    """Change of the sum by one edge more or less, that of both ends together. 0 for links: the
    table of guarantees has no bound about edges there."""


class Stage(ABC):
    """One kind of sum.

    Args:
        schedule: everything public about the run.
    """

    name: ClassVar[str]
    """Name of the stage, also in saved state."""
    title: ClassVar[str] = ""
    """The heading in reports; the name, if empty."""
    learns: ClassVar[str]
    """Description of what its sums learn, for reports."""
    loss: ClassVar[str] = ""
    """Description of the loss of its epochs; empty if they have none."""
    when: ClassVar[When] = When.EPOCHS
    roles: frozenset[Role] = frozenset(Role)
    """Devices whose vectors are not zero."""
    share: ClassVar[float]
    """Share of all its sums together in the budget μ², for the change in `question`."""
    question: ClassVar[str] = FEATURES
    """The change that its noise is calibrated to: a field of `Sensitivity`."""
    bounded: ClassVar[bool] = False
    """True if vectors are never longer than `sensitivity.norm`, even without clipping."""
    sessions: ClassVar[bool] = False
    """True if sessions of two devices are open before its sums."""
    ends: ClassVar[int] = 2
    """Number of ends of an edge whose vectors may depend on it: 1 if vectors depend on the edges
    that a device uses only (`lumos.strict.messages.uses_edge`)."""
    least: ClassVar[float] = -1.0
    """Smallest number in a vector, as a share of the largest norm: 0 for counts."""
    needed: ClassVar[bool] = False
    """True if other stages read its result: a sum that is left out counts as 0. Otherwise nothing
    is learnt from it."""
    replayed: ClassVar[bool] = False
    """True if messages before its sums are sent again when a run is resumed."""

    def __init__(self, schedule: Any) -> None:
        self.schedule = schedule

    # Public.

    @property
    def num_sums(self) -> int:
        """Number of sums in the run; 0 if the run skips this stage."""
        return 1

    @property
    def takes_rest(self) -> bool:
        """True if the stage has all epochs that the other stages leave."""
        return False

    @property
    @abstractmethod
    def moves(self) -> Sensitivity:
        """The sensitivity without rounding errors; docs/strict-proofs.md proves each number."""

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """The sensitivity that noise is calibrated to, rounding errors included."""
        return Sensitivity(*(move * (1 + self.schedule.margin) for move in self.moves))

    @abstractmethod
    def width(self, features: int) -> int:
        """Return the number of elements of a sum, for `features` features."""

    def part(self, role: Role) -> float:
        """Return the largest norm of vectors of a role, as a share of that of all."""
        return 1.0

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

    def limit(self, width: int, part: float = 1.0) -> float:
        """Return the norm that vectors are clipped to, so that none exceeds `clip` when rounded.

        Args:
            part: share of `clip` that these vectors may have. If it is less than 1 and the rounding
                error is larger, vectors are 0.

        Raises:
            UsageError: the rounding error is larger than `clip`.
        """
        limit: float = (part and part * self.clip) - self.schedule.rounding_error(width)
        if part < 1:
            return max(0.0, limit)
        if not limit > 0:
            raise UsageError(
                f"`label_epsilon={self.schedule.strict.label_epsilon:g}` for "
                f"{self.schedule.classes:,} classes leaves gradients smaller than the steps of the "
                "fixed point; use a larger one"
            )
        return limit

    @property
    def adding(self) -> int:
        """Number of devices whose vectors are not zero."""
        devices: int = self.schedule.devices
        return devices

    def summand_bound(self, step: int, width: int) -> float:
        """Return the largest norm of an honest device's summand: its vector and share of noise.

        An honest summand of noisy sums exceeds it with probability below 2^-58; the rounding of
        both parts is included. Infinite where no norm can be proved: vectors of exact sums are not
        clipped unless they are `bounded`.

        Args:
            width: number of elements of the sum.
        """
        noise = self.noise(step)
        spread = 0.0 if noise is None else noise.share * (math.sqrt(width) + SUMMAND_TAIL_SIGMAS)
        rounding: float = 2 * self.schedule.rounding_error(width)
        return self.clip + spread + rounding

    def proved_bound(self, step: int, width: int) -> float:
        """Return the largest norm of a summand that passes its proof, as far as it is proved.

        That is `summand_bound` for few numbers, and a multiple of it for many.
        """
        return self.summand_bound(step, width) * proved_factor(width)

    def possible(self, total: Doubles, step: int) -> bool:
        """Return whether honest devices can have added up to `total`.

        No number of a vector exceeds `clip`, so no total exceeds that of all devices by more than
        noise. The check discloses nothing: it reads an opened sum. A device that lies within these
        bounds passes it.
        """
        if math.isinf(self.clip):
            return True
        most = self.adding * self.clip
        noise = -float(ndtri(FALSE_ALARM / (2 * len(total)))) * self.spread(step)
        return bool((total >= self.least * most - noise).all() and (total <= most + noise).all())

    # Private: `state` is the trainer of a shard.

    def before(self, state: Any, step: int) -> Program[None]:
        """Send the messages before a sum."""
        yield from ()

    def participants(self, state: Any) -> Ints:
        """Return the positions of the hosted devices whose vectors are not zero."""
        return np.arange(len(state.shard))

    def vectors(self, state: Any) -> "Doubles | OuterVectors":
        """Return [participants, width] vectors for the next sum."""
        raise NotImplementedError(f"stage {self.name!r} has no vectors")

    def update(self, state: Any, each: bool) -> Doubles:
        """Return [hosted, width] vectors of the hosted devices, or the sum of the rounded ones."""
        vectors: Any = self.vectors(state)
        if not each:
            total: Doubles = state.sums.rounded(vectors).sum(axis=0)
            return total
        of_all = np.zeros((len(state.shard), vectors.shape[1]))
        of_all[self.participants(state)] = vectors
        return of_all

    def sum(self, state: Any, step: int, randomness: int) -> Program[Doubles]:
        """Add up the vectors of all devices; `randomness` names the randomness of the noise."""
        update = partial(self.update, state)
        bound = partial(self.summand_bound, step)
        total: Doubles = yield from state.sums.sum(
            update, self.noise(step), randomness, bound=bound
        )
        return total

    def leave_out(self, state: Any, width: int, step: int) -> None:
        """Go on without a sum of `width` numbers that is not `possible`."""
        if self.needed:
            self.learn(state, np.zeros(width), step)

    @abstractmethod
    def learn(self, state: Any, total: Doubles, step: int) -> float | None:
        """Update the state by a sum; return the mean loss in it, if there is one."""


class Sizes(Stage):
    """Histograms of each feature over powers of two."""

    name = SIZES
    learns = "the size of each feature, in histograms over powers of two"
    when = When.FIRST
    share = SCALING_SHARE
    bounded = True
    least = 0.0
    needed = True

    @property
    def num_sums(self) -> int:
        """Number of times that the kind of scaling uses this stage."""
        return STAGES[self.schedule.scaling].count(self.name)

    moves = Sensitivity(1.0, math.sqrt(2))
    """One count of 1/√d for each feature, at any octave."""

    def width(self, features: int) -> int:
        """Return the buckets of all features."""
        return features * BUCKETS

    def participants(self, state: Any) -> Ints:
        """Return the positions of the devices whose features set the scale."""
        rows: Ints = state.scaling_sums.adding
        return rows

    def vectors(self, state: Any) -> Doubles:
        """Return the vectors of these devices."""
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
    least = -1.0
    needed = False

    moves = Sensitivity(1.0, 2.0)
    """From one bound to the other."""

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
    """Scaling of features before anything else is learnt; never `auto`."""
    bounded: bool = True
    """True if all features lie between -1 and 1."""
    signed: bool = True
    """True if features may be negative."""

    @property
    def margin(self) -> float:
        """Largest relative increase of a norm by rounding to the fixed point."""
        return 0.0

    def __post_init__(self) -> None:
        fixed = [stage for stage in self.epoch_stages if not stage.takes_rest]
        more = len(fixed) < len(self.epoch_stages)  # a stage takes the rest: at least one epoch
        if self.rest_epochs < 1 if more else self.rest_epochs:
            taken = [f"{stage.num_sums} for {stage.name}" for stage in fixed if stage.num_sums]
            epochs = self.config.train.epochs
            raise UsageError(
                f"`epochs` must be {'above ' * more}{epochs - self.rest_epochs} with these "
                f"settings: {', '.join(taken)}; got {epochs}"
            )

    @property
    @abstractmethod
    def kinds(self) -> list[type[Stage]]:
        """The stages of the task, in order."""

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """All stages of the task in order, including those that the run skips."""
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
        """Epochs that are left for the stage that takes the rest, if there is one."""
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
        """Return the number that names the randomness of a sum before the first epoch."""
        return self.config.train.epochs + len(self.last_stages) + place

    @property
    def strict(self) -> StrictSettings:
        """The strict settings."""
        return settings_of(self.config)

    @property
    @abstractmethod
    def num_propagated(self) -> int:
        """Number of propagated labels that a device sends."""

    # The account.

    @property
    def noisy(self) -> bool:
        """True if sums carry noise."""
        return self.strict.protect == "noise"

    def left_of(self, share: float) -> float:
        """Return a share in the budget, less the share of scaling."""
        return share - SCALING_SHARE * len(self.first_stages)

    @cached_property
    def whole_mu(self) -> float:
        """μ of all sums together; computed once, used in every epoch."""
        return mu_for(self.strict.feature_epsilon, self.strict.delta)

    def account(self, mu: float) -> tuple[float, float] | None:
        """Return (ε, δ) of Gaussian mechanisms with this total μ; None for exact sums."""
        if not self.noisy:
            return None
        return epsilon_for(mu, self.strict.delta), self.strict.delta

    def stages_of(self, role: Role = Role.NOBODY) -> tuple[Stage, ...]:
        """Return the stages of the run in which a device's own vector is not zero."""
        return tuple(stage for stage in self.stages if role in stage.roles and stage.num_sums)

    def mu(self, question: str, role: Role = Role.NOBODY) -> float:
        """Return the total μ of a device of some role, for a field of `Sensitivity`."""
        square = 0.0
        for stage in self.stages_of(role):
            part = stage.part(role) ** 2
            for step in range(stage.num_sums):
                square += part * self.square(stage, question, step)
        return math.sqrt(square)

    def square(self, stage: Stage, question: str, step: int) -> float:
        """Return μ² of one sum, for a field of `Sensitivity`; 0 for exact sums."""
        noise = stage.noise(step)
        if noise is None:
            return 0.0
        change: float = getattr(stage.sensitivity, question)
        return (change / (noise.sigma * noise.clip)) ** 2

    def run_mu(self, role: Role = Role.NOBODY) -> dict[str, float]:
        """Return the total μ of a device of some role by question; of both ends of an edge.

        The label itself enters no sum: vectors are functions of the randomized label.
        """
        features = self.mu("features", role)
        return {
            LABEL: 0.0,
            FEATURES: features,
            RECORD: features,
            NORM: self.mu("norm", role),
            EDGE: self.mu("edge", role),
        }

    # Noise.

    def rounding_error(self, width: int) -> float:
        """Return the largest norm of the rounding error of a vector of `width` numbers."""
        return math.sqrt(width) * 0.5 ** (self.config.updates.fraction_bits + 1)

    def gaussian(self, mu: float, change: float, norm: float) -> Noise:
        """Return the noise under which a change of norm `change` has the given μ.

        Args:
            norm: largest norm of a vector.

        Raises:
            UsageError: the fixed point is too coarse, or its limit too small.
        """
        noise = Noise.of(mu * (norm / change), 1, norm, self.devices, self.config.updates)
        if noise.share * 2.0**self.config.updates.fraction_bits < MIN_NOISE_STEPS:
            larger = "raise `clip` or `label_epsilon`, or " * (self.config.train.task == "classify")
            raise UsageError(
                "noise would fall between the steps of the fixed point; "
                f"{larger}lower `feature_epsilon`"
            )
        limit = limit_for(self.config.updates, self.devices)
        if norm + NOISE_TAIL_SIGMAS * noise.share > limit:
            raise UsageError(
                f"noise may exceed the `limit` of masked sums ({limit:g}), and would be refused or "
                "cut off; raise `feature_epsilon`"
            )
        return noise

    def check(self) -> None:
        """Refuse settings under which sums would carry less noise than the table assumes.

        Raises:
            UsageError: a setting is refused.
        """
        updates, strict = self.config.updates, self.strict
        if not self.noisy:
            return
        if strict.delta > 1 / self.devices:
            raise UsageError(
                f"`delta={strict.delta:g}` is above 1/n = {1 / self.devices:.3g} for "
                f"{self.devices:,} devices, which would permit a mechanism that publishes one "
                f"device's data; use {10.0 ** math.floor(math.log10(1 / self.devices)):g} or less"
            )
        if updates.clip:
            raise UsageError(
                "`clip` of masked sums would cut off noise together with the vector; leave it out: "
                "vectors are clipped before noise is added"
            )
        for name in ("neighbours", "threshold"):
            if getattr(updates, name) is not None:
                raise UsageError(
                    f"`{name}` of masked sums cannot be set under `protect='noise'`: it follows "
                    "from `corrupt`, `dropped` and `security_bits`; leave it out"
                )
        if updates.security_bits < MIN_SECURITY_BITS:
            raise UsageError(
                f"`security_bits` of masked sums must be {MIN_SECURITY_BITS} or more under "
                f"`protect='noise'`, got {updates.security_bits}: the table of guarantees assumes "
                "it"
            )
        for stage, step in self.sums:
            stage.noise(step)

    def described(self, sizes: RunSizes) -> list[SumStage]:
        """Return descriptions of the stages of a finished run, with the widths of their sums."""
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
