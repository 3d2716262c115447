"""The schedule of `link`: its stages, their sums, and the noise of each."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from lumos.aggregate.noise import Noise
from lumos.errors import UsageError
from lumos.strict.codebook import EPOCHS as CODEBOOK_EPOCHS
from lumos.strict.schedule import Schedule

CODEBOOK, MATRIX, TRUST = "codebook", "matrix", "trust"
BACKBONE, CHOICE = "backbone", "choice"
SHARES = {CODEBOOK: 0.30, MATRIX: 0.03, TRUST: 0.30, BACKBONE: 0.22, CHOICE: 0.15}
"""The stages, and the share of each in the updates' budget μ²: every device takes part in all."""
TRUST_EPOCHS = 60
MARGIN = 2.0**-10
"""Relative room between the norm that vectors are clipped to and the norm that the noise assumes:
rounding to the fixed point may add to a norm."""
CANDIDATES = ("own", "evidence", "backbone")
"""Predictions by the own features, with the neighbours' log-likelihood, with the tree network:
validation chooses one."""
BINS = 64
"""Number of ranges in the histograms of validation scores."""
SHARED = 64
"""Devices per colour, where the number of colours is not given."""


@dataclass(frozen=True, kw_only=True)
class LinkSchedule(Schedule):
    """Everything public about a run of `link`."""

    def __post_init__(self) -> None:
        if self.backbone_epochs < 1:
            raise UsageError(
                f"`epochs` must be above {CODEBOOK_EPOCHS + TRUST_EPOCHS} in the strict profile: "
                f"{CODEBOOK_EPOCHS} for the codebook, {TRUST_EPOCHS} for trust; got "
                f"{self.config.train.epochs}"
            )

    @property
    def hops(self) -> int:
        """Number of hops that symbols travel."""
        if self.strict.relay == "auto":
            return 4
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
        """Epochs before the release."""
        return CODEBOOK_EPOCHS

    @property
    def backbone_epochs(self) -> int:
        """Epochs left for the tree network."""
        return self.config.train.epochs - self.before_release - TRUST_EPOCHS

    def stage(self, epoch: int) -> str:
        """The stage of epoch number `epoch` (from 0); the single sums of others lie between."""
        if epoch < self.before_release:
            return CODEBOOK
        return TRUST if epoch < self.before_release + TRUST_EPOCHS else BACKBONE

    def step(self, epoch: int) -> int:
        """Number of an epoch among those of its stage."""
        before = {
            CODEBOOK: 0,
            TRUST: self.before_release,
            BACKBONE: self.before_release + TRUST_EPOCHS,
        }
        return epoch - before[self.stage(epoch)]

    def stages_before(self, epoch: int) -> tuple[str, ...]:
        """The matrix, right after the release."""
        return (MATRIX,) if epoch == self.before_release else ()

    @property
    def last_stages(self) -> tuple[str, ...]:
        """The choice."""
        return (CHOICE,)

    def limit(self, stage: str) -> float:
        """The norm that vectors are clipped to: `clip` less the largest rounding error."""
        if stage == CODEBOOK:  # rows of norm 1, and no shorter for their rounding
            return 1 + MARGIN / 2
        return self.clip(stage) * (1 - MARGIN)

    def clip(self, stage: str) -> float:
        """Largest norm of one device's vector in a stage, as the noise assumes it."""
        if stage in (MATRIX, CODEBOOK):
            return 1.0 + MARGIN
        if stage == CHOICE:  # for each candidate, one range of an edge's score and one of another's
            return math.sqrt(2 * len(CANDIDATES))
        return self.strict.clip if self.noisy else float("inf")

    def noise(self, stage: str, step: int = 0) -> Noise | None:
        """The noise of every sum of a stage."""
        if not self.noisy:
            return None
        part = self.whole_mu * math.sqrt(SHARES[stage])
        norm = self.clip(stage)
        return self.gaussian(part, norm, norm, self._sums(stage))

    def _sums(self, stage: str) -> int:
        """Number of sums of a stage."""
        sums = {CODEBOOK: CODEBOOK_EPOCHS, TRUST: TRUST_EPOCHS, BACKBONE: self.backbone_epochs}
        return sums.get(stage, 1)

    def spent(self) -> tuple[float, float] | None:
        """(ε, δ) of all updates of one device: its data in the sums, or zeros in their place."""
        return self.account(self._mu(dict.fromkeys(SHARES, 1.0)))

    def _mu(self, changes: Mapping[str, float]) -> float:
        """μ of all sums of some stages, given the change of each in clipping norms."""
        square = 0.0
        for stage, change in changes.items():
            noise = self.noise(stage)
            if noise is not None:
                square += self._sums(stage) * (change / noise.sigma) ** 2
        return math.sqrt(square)
