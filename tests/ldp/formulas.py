"""Formulas of the mechanisms that only tests need: probabilities, variances, collusion."""

import math

import numpy as np
from scipy.sparse import csr_array

from lumos.ldp.multibit import rectify_scale, sampled_features
from lumos.ldp.one_bit import largest_bin, recovery_scale
from lumos.typing import Doubles, Flags, Ints


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


def recovered(bits: Flags, each: float, a: float, b: float) -> Doubles:
    """x'' = (2x' - 1)·scale + (a + b)/2, unbiased: E[x''] = x."""
    signs = np.where(bits, 1.0, -1.0)
    return signs * recovery_scale(each, a, b) + (a + b) / 2


def recovered_variance(features: Doubles, each: float, a: float, b: float) -> Doubles:
    """Var[x''] = scale² - (x - (a + b)/2)², as x'' takes two values around the midpoint."""
    variance: Doubles = recovery_scale(each, a, b) ** 2 - (features - (a + b) / 2) ** 2
    return variance


def rectified(
    released: "csr_array[np.int8, tuple[int, int]]",
    epsilon: float,
    *,
    low: float = 0.0,
    high: float = 1.0,
    sampled: int | None = None,
) -> Doubles:
    """[devices, d] unbiased estimates of the features, dense."""
    scale = rectify_scale(epsilon, released.shape[1], low, high, sampled)
    estimates: Doubles = scale * released.toarray().astype(np.float64) + (low + high) / 2
    return estimates


def rectified_variance(
    features: Doubles, epsilon: float, low: float, high: float, sampled: int | None = None
) -> Doubles:
    """Var[x''] = m/d · scale² - (x - (a + b)/2)²: x* is ±1 with chance m/d, else 0."""
    width = features.shape[-1]
    m = sampled_features(epsilon, width) if sampled is None else sampled
    scale = rectify_scale(epsilon, width, low, high, m)
    variance: Doubles = m / width * scale**2 - (features - (low + high) / 2) ** 2
    return variance
