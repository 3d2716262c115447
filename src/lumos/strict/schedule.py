"""What the public schedules of both tasks share: settings, budget of the updates, noise."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lumos.aggregate.fixed_point import limit_for
from lumos.aggregate.noise import Noise, epsilon_for, mu_for
from lumos.errors import UsageError
from lumos.strict.feature_scaling import STAGES, Scaling
from lumos.strict.settings import StrictSettings, settings_of
from lumos.training.config import Config

LEAST_STEPS = 1000
"""Steps of the fixed point that a share of noise spans at least."""
WIDEST = 12.0
"""Standard deviations of a share of noise that fit below the limit of the fixed point, beside the
vector itself. A normal number is beyond them with a probability of 3.6e-33, so none of 2^67 numbers
of a run is, but for a chance below 2^-40."""
SCALING_SHARE = 0.04
"""The share in the budget μ² of each sum that scales features; the largest stage gives it."""
LEAST_SECURITY = 40
"""Bits of security that the table of promises takes for granted."""


@dataclass(frozen=True, kw_only=True)
class Schedule(ABC):
    """Everything public about a strict run: its sums in order, and the noise of each."""

    config: Config
    devices: int
    """Number of devices."""
    scaling: Scaling = "none"
    """How features are scaled before anything else is learnt; never `auto`."""
    bounded: bool = True
    """Whether all features lie between -1 and 1."""

    @property
    def strict(self) -> StrictSettings:
        """The strict settings."""
        return settings_of(self.config)

    @property
    def noisy(self) -> bool:
        """Whether sums carry noise."""
        return self.strict.protect == "noise"

    @property
    @abstractmethod
    def sums(self) -> Mapping[str, int]:
        """The stages that are epochs, and the number of sums of each, in order."""

    def stage(self, epoch: int) -> str:
        """The stage of epoch number `epoch`, from 0."""
        return self._place(epoch)[0]

    def step(self, epoch: int) -> int:
        """Number of an epoch among those of its stage."""
        return self._place(epoch)[1]

    def _place(self, epoch: int) -> tuple[str, int]:
        for stage, many in self.sums.items():
            if epoch < many:
                return stage, epoch
            epoch -= many
        raise ValueError("there is no such epoch")

    @property
    @abstractmethod
    def last_stages(self) -> tuple[str, ...]:
        """Stages of the single sums after the last epoch."""

    @abstractmethod
    def noise(self, stage: str, step: int = 0) -> Noise | None:
        """The noise of a sum of a stage; None for exact sums.

        Args:
            step: number of the sum among those of its stage.
        """

    @property
    def paired_stages(self) -> tuple[str, ...]:
        """Stages whose sums are over products of matched devices."""
        return ()

    @property
    def first_stages(self) -> tuple[str, ...]:
        """Stages of the single sums before the first epoch: those that scale features."""
        return STAGES[self.scaling]

    def first_coins(self, place: int) -> int:
        """Names the coins of a sum before the first epoch: a number that no other sum has."""
        return self.config.train.epochs + len(self.last_stages) + place

    def many(self, stage: str) -> int:
        """Number of sums of a stage."""
        return self.first_stages.count(stage) or self.sums.get(stage, 1)

    def left_of(self, share: float) -> float:
        """The share of the largest stage in the budget, less what scaling features takes."""
        return share - SCALING_SHARE * len(self.first_stages)

    @cached_property
    def whole_mu(self) -> float:
        """μ of all updates together; searched for once, used in every epoch."""
        return mu_for(self.strict.update_epsilon, self.strict.update_delta)

    def account(self, mu: float) -> tuple[float, float] | None:
        """(ε, δ) of Gaussian mechanisms with this μ together; None for exact sums."""
        if not self.noisy:
            return None
        return epsilon_for(mu, self.strict.update_delta), self.strict.update_delta

    def rounding_error(self, width: int) -> float:
        """Largest norm of what rounding to the fixed point adds to a vector of `width` numbers."""
        return math.sqrt(width) * 0.5 ** (self.config.updates.fraction_bits + 1)

    def gaussian(self, mu: float, change: float, norm: float, sums: int = 1) -> Noise:
        """Noise under which a change of a vector by `change`, in every sum, has the given μ.

        Args:
            norm: largest norm of a vector.
            sums: number of sums that share μ.

        Raises:
            UsageError: it would fall between the steps of the fixed point.
        """
        noise = Noise.of(mu * (norm / change), sums, norm, self.devices, self.config.updates)
        if noise.share * 2.0**self.config.updates.fraction_bits < LEAST_STEPS:
            raise UsageError(
                "`clip` is so small, or `update_epsilon` so large, that noise would fall between "
                "the steps of the fixed point"
            )
        limit = limit_for(self.config.updates, self.devices)
        if norm + WIDEST * noise.share > limit:
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
        if updates.security_bits < LEAST_SECURITY:
            raise UsageError(
                f"`security_bits` of masked sums must be {LEAST_SECURITY} or more under "
                f"`protect='noise'`, got {updates.security_bits}: the table of promises takes it "
                "for granted"
            )
        for epoch in range(self.config.train.epochs):
            self.noise(self.stage(epoch), self.step(epoch))
        for stage in (*self.first_stages, *self.last_stages):
            self.noise(stage)
