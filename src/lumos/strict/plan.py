"""The public plan of a strict run: which sums there are, how wide, and how much noise each has."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lumos.aggregate.noise import Noise, epsilon_for, mu_for
from lumos.errors import UsageError
from lumos.strict.settings import StrictSettings
from lumos.training.settings import Config
from lumos.training.split import Role

ENCODER, MATRIX, TRUST, BACKBONE, CHOICE = "encoder", "matrix", "trust", "backbone", "choice"

STAGES = (ENCODER, MATRIX, TRUST, BACKBONE, CHOICE)

PARTS = {ENCODER: 0.70, MATRIX: 0.03, TRUST: 0.10, BACKBONE: 0.17}
"""How the updates' budget μ² is divided. Devices that validate spend theirs on the choice alone."""
TRUST_EPOCHS = 60
MARGIN = 2.0**-10
CANDIDATES = 3
"""Own answer, with evidence, with the tree network: validation devices choose."""


@dataclass(frozen=True)
class Plan:
    """Everything public about a strict run.

    Args:
        config: settings.
        devices: number of devices.
        trainers: number of training devices (the split is public).
    """

    config: Config
    devices: int
    trainers: int

    def __post_init__(self) -> None:
        if self.backbone_epochs < 1:
            raise UsageError(
                f"--epochs must be above {self.strict.encoder_epochs + TRUST_EPOCHS} in the strict "
                f"profile: {self.strict.encoder_epochs} for the encoder, {TRUST_EPOCHS} for trust; "
                f"got {self.config.train.epochs}"
            )

    @property
    def strict(self) -> StrictSettings:
        """The strict settings."""
        return self.config.strict

    @property
    def backbone_epochs(self) -> int:
        """Epochs left for the tree network."""
        return self.config.train.epochs - self.strict.encoder_epochs - TRUST_EPOCHS

    def stage(self, epoch: int) -> str:
        """What epoch number `epoch` (from 0) trains."""
        if epoch < self.strict.encoder_epochs:
            return ENCODER
        return TRUST if epoch < self.strict.encoder_epochs + TRUST_EPOCHS else BACKBONE

    @property
    def noisy(self) -> bool:
        """Whether there is noise in the sums."""
        return self.strict.protect == "noise"

    def limit(self, stage: str) -> float:
        """What vectors are clipped to: less than `clip` by what rounding may add."""
        return self.clip(stage) * (1 - MARGIN)

    def clip(self, stage: str) -> float:
        """Largest norm of one device's vector in a stage, as the noise assumes it."""
        if stage == MATRIX:
            return 1.0 + MARGIN
        if stage == CHOICE:
            return math.sqrt(2 * CANDIDATES - 1)
        return self.strict.clip if self.noisy else float("inf")

    def noise(self, stage: str) -> Noise | None:
        """The noise of every sum of a stage."""
        if not self.noisy:
            return None
        part = self._whole_mu * math.sqrt(PARTS.get(stage, 1.0))
        steps = self._steps(stage)
        noise = Noise.of(part, steps, self.clip(stage), self.devices, self.config.updates)
        if noise.share * 2.0**self.config.updates.fraction_bits < 1000:
            raise UsageError(
                "--clip is so small, or --update-epsilon so large, that noise would fall between "
                "the steps of the fixed point"
            )
        return noise

    @cached_property
    def _whole_mu(self) -> float:
        """μ of all updates together; searched for once, and asked for in every epoch."""
        return mu_for(self.strict.update_epsilon, self.strict.update_delta)

    def _steps(self, stage: str) -> int:
        """Number of sums of a stage."""
        several = {
            ENCODER: self.strict.encoder_epochs,
            TRUST: TRUST_EPOCHS,
            BACKBONE: self.backbone_epochs,
        }
        return several.get(stage, 1)

    def spent(self) -> tuple[float, float] | None:
        """(ε, δ) of all updates of one device: its data in the sums, or nothing in their place."""
        training = dict.fromkeys(PARTS, 1.0)
        return self._account(max(self._mu(training), self._mu({CHOICE: 1.0})))

    def spent_on_edge(self) -> tuple[float, float] | None:
        """(ε, δ) of one edge: there, or not there.

        It is in the vectors of two devices, once symbols are out, and each may turn into another
        one: a gradient by twice its norm, frequencies by √2, votes by their norm.
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

    def _mu(self, moves: Mapping[str, float]) -> float:
        """μ of all sums of some stages, each moved by so many clipping norms."""
        square = 0.0
        for stage, move in moves.items():
            noise = self.noise(stage)
            if noise is not None:
                square += self._steps(stage) * (move / noise.sigma) ** 2
        return math.sqrt(square)

    def _account(self, mu: float) -> tuple[float, float] | None:
        if not self.noisy:
            return None
        return epsilon_for(mu, self.strict.update_delta), self.strict.update_delta
