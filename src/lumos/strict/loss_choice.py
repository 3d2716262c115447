"""Choosing one of a few scales of logits by the losses of validation devices, in one narrow sum.

For each scale a device adds the loss of its randomized label, less that of a device that knows
nothing; all scales together are clipped. The sum is smallest where probabilities are calibrated
best (Guo et al. 2017 choose temperatures by the same loss).
"""

from collections.abc import Sequence

import numpy as np

from lumos.aggregate.noise import clip_factors
from lumos.strict.noisy_labels import NoisyLabels
from lumos.typing import Doubles, Ints


def loss_vectors(
    logits: Doubles, scales: Sequence[float], labels: NoisyLabels, rows: Ints, clip: float
) -> Doubles:
    """[rows, scales] clipped losses of the devices `rows` above those without knowledge."""
    ignorant = labels.slopes(np.zeros((len(rows), logits.shape[1])), rows)[1]
    logits = logits[rows]
    losses = np.stack(
        [labels.slopes(scale * logits, rows)[1] - ignorant for scale in scales], axis=1
    )
    losses *= clip_factors(np.sqrt((losses**2).sum(axis=1)), clip)[:, None]
    return losses
