"""The one-bit mechanism (section VI-A): pure functions of ε, d, ρ and the bounds [a, b].

A device with d features and ρ receivers sends each element to exactly one of them. The largest bin
holds s = ⌈d/ρ⌉ elements, each is released with ε' = ε/s, so no receiver ever gets more than ε,
and all ρ together at most d·ε' ≤ ρ·ε. (The paper divides by the workload instead: errata 6.)
"""

import math
from dataclasses import dataclass

import numpy as np

from lumos.errors import UsageError
from lumos.typing import Doubles, Flags, Ints

COIN = 2.0**32
"""Values of the coin that decides one bit."""
LEAST_EPSILON = 2.0**-20
"""Least ε' of one element: below it, coins of 32 bits would bias the recovery by over 1e-6."""


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """What a device releases of its features to the devices that carry its leaf."""

    epsilon: float = 2.0
    """ε of one device towards one receiver; inf releases features without noise."""
    low: float = 0.0
    """a: public lower bound of every feature."""
    high: float = 1.0
    """b: public upper bound of every feature."""
    bins: bool = False
    """With ε = inf: still send each element to one receiver only, instead of all to all."""

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise UsageError(f"`epsilon` must be above 0 (or inf), got {self.epsilon}")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise UsageError(f"bounds must be finite, low < high, got [{self.low}, {self.high}]")

    @property
    def noisy(self) -> bool:
        """Whether there is noise: ε is finite."""
        return math.isfinite(self.epsilon)

    @property
    def midpoint(self) -> float:
        """(a + b)/2: what stands for an element that was not sent."""
        return (self.low + self.high) / 2


def largest_bin(width: int, receivers: Ints) -> Ints:
    """s = ⌈d/ρ⌉, and 0 where there is no receiver."""
    return np.where(receivers > 0, -(-width // np.maximum(receivers, 1)), 0)


def element_epsilon(epsilon: float, largest: Ints) -> Doubles:
    """ε' = ε/s.

    Raises:
        UsageError: ε is so small, or s so large, that 32-bit coins cannot carry ε'.
    """
    each = epsilon / np.maximum(largest, 1)
    if (each < LEAST_EPSILON).any():
        raise UsageError(
            f"`epsilon={epsilon}` over {int(largest.max())} elements is less than "
            f"{LEAST_EPSILON:.0e} for one element, too little to carry anything"
        )
    return each


def message_epsilon(epsilon: float, count: Ints, largest: Ints) -> Doubles:
    """k·ε' for a bin of k elements, written ε·(k/s) so that rounding never exceeds ε."""
    if math.isinf(epsilon):
        return np.full(len(count), np.inf)
    return epsilon * (count / np.maximum(largest, 1))


def collusion_epsilon(epsilon: float, width: int, receivers: Ints) -> Doubles:
    """[devices] what all receivers of a device hold together: d·ε', at most ρ·ε."""
    if math.isinf(epsilon):
        return np.where(receivers > 0, np.inf, 0.0)
    largest = largest_bin(width, receivers)
    return np.where(receivers > 0, epsilon * (width / np.maximum(largest, 1)), 0.0)


def probability_of_one(features: Doubles, each: Doubles | float, a: float, b: float) -> Doubles:
    """Pr(x' = 1) = 1/(e^ε' + 1) + (x - a)/(b - a) · (e^ε' - 1)/(e^ε' + 1)."""
    tilt = np.tanh(np.asarray(each) / 2)  # (e^ε' - 1)/(e^ε' + 1), without overflow
    chance: Doubles = (1 - tilt) / 2 + (features - a) / (b - a) * tilt
    return chance


def threshold(features: Doubles, each: Doubles | float, a: float, b: float) -> Doubles:
    """How many of the 2^32 values of a coin give the bit 1: Pr(x' = 1)·2^32 as a whole number.

    The least probability is rounded up and the greatest down, so the ratio of two probabilities
    is at most e^ε' exactly, not only up to rounding.
    """
    tilt = np.tanh(np.asarray(each) / 2)
    least = np.floor(COIN * (1 - tilt) / 2) + 1
    span = COIN - 2 * least
    ones: Doubles = least + np.rint((features - a) / (b - a) * span)
    return ones


def recovery_scale(each: Doubles | float, a: float, b: float) -> Doubles:
    """(b - a)/2 · (e^ε' + 1)/(e^ε' - 1): how far a recovered element is from (a + b)/2."""
    scale: Doubles = (b - a) / 2 / np.tanh(np.asarray(each, np.float64) / 2)
    return scale


def recovered(bits: Flags, each: float, a: float, b: float) -> Doubles:
    """x'' = (2x' - 1)·scale + (a + b)/2, unbiased: E[x''] = x."""
    signs = np.where(bits, 1.0, -1.0)
    return signs * recovery_scale(each, a, b) + (a + b) / 2


def recovered_variance(features: Doubles, each: float, a: float, b: float) -> Doubles:
    """Var[x''] = scale² - (x - (a + b)/2)², as x'' takes two values around the midpoint."""
    variance: Doubles = recovery_scale(each, a, b) ** 2 - (features - (a + b) / 2) ** 2
    return variance
