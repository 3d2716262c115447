"""The public schedule of a strict run: its stages, their sums, and the noise of each."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lumos.aggregate.noise import Noise, epsilon_for, mu_for
from lumos.errors import UsageError
from lumos.strict.codebook import EPOCHS as CODEBOOK_EPOCHS
from lumos.strict.settings import StrictSettings, settings_of
from lumos.training.config import Config
from lumos.training.settings import Task
from lumos.training.split import Role

ENCODER, MATRIX, TRUST, BACKBONE, CHOICE = "encoder", "matrix", "trust", "backbone", "choice"
CODEBOOK = "codebook"

AFTER_RELEASE = {MATRIX: 0.03, TRUST: 0.10, BACKBONE: 0.17, CHOICE: 1.0}
BUDGET_SHARES: dict[tuple[Task, str], dict[str, float]] = {
    ("classify", "answer"): {ENCODER: 0.70, **AFTER_RELEASE},
    ("classify", "codebook"): {ENCODER: 0.55, CODEBOOK: 0.15, **AFTER_RELEASE},
    ("link", "codebook"): {CODEBOOK: 0.30, MATRIX: 0.03, TRUST: 0.30, BACKBONE: 0.22, CHOICE: 0.15},
}
"""The stages by task and meaning of the symbol, and the share of each in the updates' budget μ². In
classify, validation devices spend theirs on the choice alone; in link, every device takes part in
every stage."""
TRUST_EPOCHS = 60
MARGIN = 2.0**-10
"""Relative room between the norm that vectors are clipped to and the norm that the noise assumes:
rounding to the fixed point may add to a norm."""
CANDIDATES = ("own", "evidence", "backbone")
"""Predictions by the own features, with the neighbours' log-likelihood, with the tree network:
validation chooses one."""
BINS = 64
"""Number of ranges in the histograms of validation scores (link)."""
SHARED = 64
"""Devices per colour, where the number of colours is not given."""


@dataclass(frozen=True)
class Schedule:
    """Everything public about a strict run.

    Args:
        config: settings.
        devices: number of devices.
        training_devices: their number (the split is public; in link, all devices train).
    """

    config: Config
    devices: int
    training_devices: int

    def __post_init__(self) -> None:
        if self.backbone_epochs < 1:
            before = " and ".join(f"{many} for the {stage}" for stage, many in self._before.items())
            raise UsageError(
                f"`epochs` must be above {self.before_release + TRUST_EPOCHS} in the strict "
                f"profile: {before}, {TRUST_EPOCHS} for trust; got {self.config.train.epochs}"
            )

    @property
    def strict(self) -> StrictSettings:
        """The strict settings."""
        return settings_of(self.config)

    @property
    def task(self) -> Task:
        """classify or link."""
        return self.config.train.task

    @property
    def coded(self) -> bool:
        """Whether symbols name entries of a codebook."""
        return self.task == "link" or self.strict.symbol == "codebook"

    @property
    def parts(self) -> dict[str, float]:
        """The stages, and the share of each in the updates' budget."""
        return BUDGET_SHARES[self.task, "codebook" if self.coded else "answer"]

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages in order; the choice comes last."""
        return tuple(self.parts)

    @property
    def hops(self) -> int:
        """Number of hops that symbols travel."""
        if self.strict.relay == "auto":
            return 1 if self.task == "classify" else 4
        return 1 if self.strict.relay == "none" else int(self.strict.relay)

    @property
    def colours(self) -> int:
        """Number of colours; 0 for none."""
        if self.strict.colours == "none":
            return 0
        if self.strict.colours == "auto":
            return max(2, min(256, self.devices // SHARED))
        return self.strict.colours

    @property
    def before_release(self) -> int:
        """Epochs before the release: of the own encoder, and of the codebook."""
        return sum(self._before.values())

    @property
    def _before(self) -> dict[str, int]:
        epochs = {ENCODER: self.strict.encoder_epochs, CODEBOOK: CODEBOOK_EPOCHS}
        return {stage: many for stage, many in epochs.items() if stage in self.parts}

    def codebook_epoch(self, epoch: int) -> int:
        """Number of an epoch among those of the codebook, from 0."""
        return epoch - (self.before_release - CODEBOOK_EPOCHS)

    @property
    def backbone_epochs(self) -> int:
        """Epochs left for the tree network."""
        return self.config.train.epochs - self.before_release - TRUST_EPOCHS

    def stage(self, epoch: int) -> str:
        """The stage of epoch number `epoch` (from 0); the single sums of others lie between."""
        if epoch < self.before_release:
            in_codebook = self.coded and self.codebook_epoch(epoch) >= 0
            return CODEBOOK if in_codebook else ENCODER
        return TRUST if epoch < self.before_release + TRUST_EPOCHS else BACKBONE

    @property
    def noisy(self) -> bool:
        """Whether sums carry noise."""
        return self.strict.protect == "noise"

    def limit(self, stage: str) -> float:
        """The norm that vectors are clipped to: `clip` less the largest rounding error."""
        if stage == CODEBOOK:  # rows of norm 1, and no shorter for their rounding
            return 1 + MARGIN / 2
        return self.clip(stage) * (1 - MARGIN)

    def clip(self, stage: str) -> float:
        """Largest norm of one device's vector in a stage, as the noise assumes it."""
        if stage in (MATRIX, CODEBOOK):
            return 1.0 + MARGIN
        if stage == CHOICE and self.task == "classify":
            # Ones and zeros: right or wrong by candidate, and changed or not for all but the first.
            return math.sqrt(2 * len(CANDIDATES) - 1)
        if stage == CHOICE:  # for each candidate, one range of an edge's score and one of another's
            return math.sqrt(2 * len(CANDIDATES))
        return self.strict.clip if self.noisy else float("inf")

    def noise(self, stage: str) -> Noise | None:
        """The noise of every sum of a stage."""
        if not self.noisy:
            return None
        part = self._whole_mu * math.sqrt(self.parts[stage])
        steps = self._steps(stage)
        noise = Noise.of(part, steps, self.clip(stage), self.devices, self.config.updates)
        if noise.share * 2.0**self.config.updates.fraction_bits < 1000:
            raise UsageError(
                "`clip` is so small, or `update_epsilon` so large, that noise would fall between "
                "the steps of the fixed point"
            )
        return noise

    @cached_property
    def _whole_mu(self) -> float:
        """μ of all updates together; searched for once, used in every epoch."""
        return mu_for(self.strict.update_epsilon, self.strict.update_delta)

    def _steps(self, stage: str) -> int:
        """Number of sums of a stage."""
        sums = {**self._before, TRUST: TRUST_EPOCHS, BACKBONE: self.backbone_epochs}
        return sums.get(stage, 1)

    def spent(self) -> tuple[float, float] | None:
        """(ε, δ) of all updates of one device: its data in the sums, or zeros in their place."""
        everything = dict.fromkeys(self.stages, 1.0)
        if self.task == "link":
            return self._account(self._mu(everything))
        del everything[CHOICE]  # validation devices, not training ones, take part in it
        return self._account(max(self._mu(everything), self._mu({CHOICE: 1.0})))

    def spent_on_edge(self) -> tuple[float, float] | None:
        """(ε, δ) of one edge: neighbouring inputs have it, or do not (classify).

        After the release it is in the vectors of two devices, and each may change: a gradient by
        twice its norm, frequencies by √2, votes by their norm.
        """
        ends = {
            Role.TRAIN: {MATRIX: math.sqrt(2), TRUST: 2.0, BACKBONE: 2.0},
            Role.VALIDATION: {CHOICE: 1.0},
        }
        worst = 0.0
        for one in ends.values():
            for other in ends.values():
                stages = one.keys() | other.keys()
                both = {stage: one.get(stage, 0.0) + other.get(stage, 0.0) for stage in stages}
                worst = max(worst, self._mu(both))
        return self._account(worst)

    def _mu(self, changes: Mapping[str, float]) -> float:
        """μ of all sums of some stages, given the change of each in clipping norms."""
        square = 0.0
        for stage, change in changes.items():
            noise = self.noise(stage)
            if noise is not None:
                square += self._steps(stage) * (change / noise.sigma) ** 2
        return math.sqrt(square)

    def _account(self, mu: float) -> tuple[float, float] | None:
        if not self.noisy:
            return None
        return epsilon_for(mu, self.strict.update_delta), self.strict.update_delta
