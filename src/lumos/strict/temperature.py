"""The temperature of the final probabilities: as sure, on average, as the vote finds them right.

Each validation device adds the probability of its most likely class at a few temperatures, a vector
that depends on no label. The mean over all devices is how sure the run is; the vote says how often
it is right (`vote`). The temperature at which both agree best is chosen; 1 stays where they agree
up to one standard error already. Losses of randomized labels would hardly tell temperatures apart:
a label that was changed by noise costs as much as one that is predicted wrongly.
"""

import math
from collections.abc import Sequence

import numpy as np

from lumos.strict.short_rows import row_maxima, row_sums
from lumos.strict.vote import Vote
from lumos.typing import Doubles, Ints


def confidence_vectors(logits: Doubles, scales: Sequence[float], rows: Ints) -> Doubles:
    """[rows, scales] probability of the most likely class of the devices `rows`."""
    shifted = logits[rows]
    shifted -= row_maxima(shifted)[:, None]
    sure = [1 / row_sums(np.exp(scale * shifted)) for scale in scales]  # the best class has e^0
    return np.stack(sure, axis=1)


def choose_scale(
    total: Doubles, scales: Sequence[float], vote: Vote, devices: int, noise: float
) -> float:
    """By what the final logits are to be multiplied.

    Args:
        total: [scales] noisy sum of the devices' vectors; `scales` begin with 1.
        devices: number of devices in it.
        noise: standard deviation of its noise.
    """
    accuracy, error = vote.accuracy
    gaps = np.abs(total / max(1, devices) - accuracy)
    if not gaps[0] > math.hypot(error, noise / max(1, devices)):
        return 1.0
    return float(scales[int(np.argmin(gaps))])
