"""(ε, δ) of Gaussian mechanisms from first principles: privacy losses, composed by convolution.

With noise of standard deviation s, a change by Δ has μ = Δ/s, and its privacy loss is normal with
mean μ²/2 and variance μ². Losses of all sums add up, and δ(ε) = E[max(0, 1 - e^(ε - loss))].
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

STEP, POINTS = 1e-3, 1 << 16
"""Losses are rounded to multiples of a step, from -32 to 32."""
LOSSES = STEP * (np.arange(POINTS) - POINTS // 2)


def epsilon_of(mus: Iterable[float], delta: float) -> float:
    """The ε at which mechanisms with these μ have this δ together."""
    transform = np.ones(POINTS // 2 + 1, np.complex128)
    for mu, times in Counter(round(mu, 15) for mu in mus if mu > 0).items():
        transform *= _transform(mu) ** times
    chances = np.fft.fftshift(np.fft.irfft(transform, POINTS))
    # δ falls as ε grows: bisection between 0 and the largest loss.
    if _delta(chances, 0.0) <= delta:
        return 0.0
    low, high = 0.0, float(LOSSES[-1])
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(chances, middle) > delta else (low, middle)
    return high


@lru_cache(maxsize=64)
def _transform(mu: float) -> np.ndarray:
    """Of the privacy loss of one mechanism, rounded to the grid."""
    edges = (np.append(LOSSES, LOSSES[-1] + STEP) - STEP / 2 - mu**2 / 2) / mu
    return np.fft.rfft(np.fft.ifftshift(np.diff(ndtr(edges))))


def _delta(chances: np.ndarray, epsilon: float) -> float:
    gain = -np.expm1(np.minimum(0.0, epsilon - LOSSES))
    return float((chances * gain).sum())
