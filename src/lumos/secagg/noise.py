"""Noise inside a sum, and its account: (ε, δ) of everything that a run's sums reveal.

Every device adds a share of Gaussian noise, rounded to the grid of the fixed point, to its clipped
vector before it is masked. The sum then carries noise of standard deviation σ·C (C: the clipping
norm) even if the colluding and the dropped devices, whose shares the adversary knows or misses, add
nothing. Shares span thousands of grid steps, so a sum of rounded shares differs from a Gaussian on
the grid by less than any number that a computer prints.

**Account.** A sum of vectors of norm at most C with noise σ·C is a Gaussian mechanism with
μ = 1/σ, for the question whether a device's data were in the sum or replaced by nothing (zeroing
out). Gaussian mechanisms compose exactly (Dong, Roth, Su 2022): μ² adds up, adaptively, and

    δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from lumos.device.randomness import PrivateRandomness
from lumos.errors import UsageError
from lumos.secagg.parameters import AggregateSettings
from lumos.typing import Doubles, Ints

PURPOSE = "noise"
Update = Callable[[bool], Doubles]
"""Called with True, the vectors of the devices [hosted, width]; with False, their sum [width]."""
Bound = Callable[[int], float]
"""From the width of a vector to the norm of an honest device's summand; infinite for no bound."""
DrawnNoise = Callable[[], Doubles]
"""Draws the noise [width] of all devices together, where a simulation does not draw each share."""


def delta_of(epsilon: float, mu: float) -> float:
    """δ(ε) of a Gaussian mechanism with parameter μ."""
    if mu <= 0:
        return 0.0
    first = float(ndtr(-epsilon / mu + mu / 2))
    second = math.exp(epsilon + float(log_ndtr(-epsilon / mu - mu / 2)))
    return max(0.0, first - second)


def mu_for(epsilon: float, delta: float) -> float:
    """The largest μ that is (ε, δ)-private, from below."""
    if not 0 < epsilon < math.inf or not 0 < delta < 1:
        raise UsageError(
            f"`feature_epsilon` must be above 0 and `delta` between 0 and 1, "
            f"got {epsilon} and {delta}"
        )
    low, high = 0.0, 1.0
    while delta_of(epsilon, high) < delta:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(epsilon, middle) <= delta else (low, middle)
    return low


def epsilon_for(mu: float, delta: float) -> float:
    """The least ε for which a Gaussian mechanism with parameter μ is (ε, δ)-private."""
    low, high = 0.0, 1.0
    if delta_of(0.0, mu) <= delta:
        return 0.0
    while delta_of(high, mu) > delta:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle, mu) > delta else (low, middle)
    return high


@dataclass(frozen=True)
class Noise:
    """Noise in one kind of sum.

    Args:
        sigma: standard deviation of the sum's noise, in units of the clipping norm.
        clip: C, largest Euclidean norm of one device's vector.
        devices: how many devices add a share.
        absent: how many of their shares may be known to the adversary, or missing.
    """

    sigma: float
    clip: float
    devices: int
    absent: int

    @staticmethod
    def of(
        mu: float, steps: int, clip: float, devices: int, settings: AggregateSettings
    ) -> "Noise":
        """Noise for `steps` sums that together spend μ.

        A sum is opened as soon as `minimum` vectors have arrived: all others may be missing, also
        where they are more than `dropped`.
        """
        missing = math.ceil(settings.dropped * devices)
        if settings.minimum is not None:
            missing = max(missing, devices - settings.minimum)
        absent = math.ceil(settings.corrupt * devices) + missing
        return Noise(math.sqrt(steps) / mu, clip, devices, min(absent, devices - 1))

    @property
    def share(self) -> float:
        """Standard deviation of one device's share."""
        return self.sigma * self.clip / math.sqrt(self.devices - self.absent)

    @property
    def total(self) -> float:
        """Standard deviation of all shares together."""
        return self.share * math.sqrt(self.devices)

    def shares(self, randomness: PrivateRandomness, hosted: int, width: int, step: int) -> Doubles:
        """[hosted, width] the shares of hosted devices, from their private randomness."""
        return self.share * normal(randomness, np.arange(hosted), width, step)


def normal(randomness: PrivateRandomness, rows: Ints, width: int, step: int) -> Doubles:
    """[rows, width] standard normal numbers from private randomness (Box and Muller 1958)."""
    pairs = -(-width // 2)
    uniform = randomness.uniform(rows, PURPOSE, step, 2 * pairs)
    radius = np.sqrt(-2 * np.log(uniform[:, :pairs]))
    angle = 2 * np.pi * uniform[:, pairs:]
    both = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return both[:, :width]


def clip_factors(norms: Doubles, limit: float) -> Doubles:
    """[devices] what to multiply vectors of these norms with, so that none exceeds the limit."""
    factors: Doubles = np.minimum(1.0, limit / np.maximum(norms, 1e-300))
    return factors
