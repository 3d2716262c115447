"""(ε, δ) of Gaussian mechanisms from first principles: privacy losses, composed by convolution.

With noise of standard deviation s, a change by Δ has μ = Δ/s, and its privacy loss is normal with
mean μ²/2 and variance μ². Losses of all sums add up, and δ(ε) = E[max(0, 1 - e^(ε - loss))].
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from scipy.special import ndtr

STEP, POINTS = 2e-3, 1 << 17
"""Losses are rounded to multiples of a step, from -131 to 131."""


def epsilon_of(mus: Iterable[float], delta: float) -> float:
    """The ε at which mechanisms with these μ have this δ together."""
    losses = STEP * (np.arange(POINTS) - POINTS // 2)
    transform = np.ones(POINTS // 2 + 1, np.complex128)
    for mu, times in Counter(round(mu, 15) for mu in mus if mu > 0).items():
        edges = (np.append(losses, losses[-1] + STEP) - STEP / 2 - mu**2 / 2) / mu
        chances = np.diff(ndtr(edges))
        transform *= np.fft.rfft(np.fft.ifftshift(chances)) ** times
    chances = np.fft.fftshift(np.fft.irfft(transform, POINTS))
    # δ falls as ε grows: bisection between 0 and the largest loss.
    low, high = 0.0, float(losses[-1])
    if _delta(losses, chances, 0.0) <= delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(losses, chances, middle) > delta else (low, middle)
    return high


def _delta(losses: np.ndarray, chances: np.ndarray, epsilon: float) -> float:
    above = losses > epsilon
    return float((chances[above] * -np.expm1(epsilon - losses[above])).sum())
