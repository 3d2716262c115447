"""Whether opened sums have the noise of the account: found by whoever knows what was added."""

import numpy as np

from lumos.aggregate.noise import Noise
from lumos.audit.audit_row import AuditRow
from lumos.audit.estimates import NoiseRatio
from lumos.typing import Doubles


def noise_square(found: Doubles, noise: Noise) -> float:
    """Σ of squares of the noise in a sum, in units of the deviation that all shares should have."""
    left = (noise.sigma * noise.clip) ** 2
    return float(np.square(found).sum()) / (left * noise.devices / (noise.devices - noise.absent))


def noise_row(attack: str, adversary: str, stage: str, found: NoiseRatio) -> AuditRow:
    """One row for all sums of a stage."""
    return AuditRow(
        attack=attack,
        adversary=adversary,
        about=f"noise in {found.numbers:,} numbers of {stage}: what the account says, by what was "
        "found",
        measure="ratio",
        estimate=found,
        bound=1.0,
        bound_is="the account of the sums",
        knows_mechanism=True,
    )
