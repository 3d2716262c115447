"""The multi-bit mechanism (Sajadmanesh and Gatica-Perez 2021): m of d features, one bit of each.

A device draws m of its d features without replacement and releases one bit of each with ε/m; the
others are not sent. Which features are drawn does not depend on their values, so the release is
ε-LDP for the whole feature vector. The receiver rectifies:

    x'' = d/m · (b - a)/2 · (e^(ε/m) + 1)/(e^(ε/m) - 1) · x* + (a + b)/2,   x* in {-1, 0, +1}

which is unbiased: E[x''] = x. The one-bit mechanism is the case m = d.
"""

import math
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from lumos.device.randomness import PrivateRandomness
from lumos.errors import UsageError
from lumos.ldp.bounds import Features, within
from lumos.ldp.one_bit import element_epsilon, recovery_scale, threshold
from lumos.typing import Floats, Ints

PER_BIT = 2.18
"""ε at which one more bit is worth more than a surer one (Sajadmanesh and Gatica-Perez 2021,
Proposition 3.5)."""

_ROWS = 1 << 22  # randomness that are tossed at a time


def release(
    features: Features,
    epsilon: float,
    randomness: PrivateRandomness,
    *,
    low: float = 0.0,
    high: float = 1.0,
    sampled: int | None = None,
    step: int = 0,
) -> "csr_array[np.int8, tuple[int, int]]":
    """[devices, d] what leaves: +1 or -1 at the m features that each device drew, 0 elsewhere.

    The ratio of probabilities of any release, for any two feature vectors, is at most e^ε exactly.

    Args:
        features: [devices, d] dense or CSR, between `low` and `high`.
        epsilon: ε of the whole vector, finite.
        randomness: private randomness of these devices, in the same order.
        sampled: m; by default that of `sampled_features`. d gives the one-bit mechanism.
        step: number of this release: each has randomness of its own.
    """
    devices, width = features.shape
    if not 0 < epsilon < math.inf:
        raise UsageError(f"`epsilon` must be above 0 and finite, got {epsilon}")
    m = sampled_features(epsilon, width) if sampled is None else sampled
    if not 1 <= m <= width:
        raise UsageError(f"sampled: 1 … {width} features can be drawn, got {m}")
    within(features, low, high)
    each = float(element_epsilon(epsilon, np.array([m]))[0])
    indices = np.empty((devices, m), np.int32)
    signs = np.empty((devices, m), np.int8)
    batch = max(1, _ROWS // m)
    for start in range(0, devices, batch):
        rows = np.arange(start, min(start + batch, devices))
        columns = _drawn(randomness, rows, step, m, width)
        values = _at(features, rows, columns).astype(np.float64)
        coin = randomness.words(rows, "multi-bit", step, m)
        ones = coin < threshold(values, each, low, high)
        indices[rows], signs[rows] = columns, np.where(ones, 1, -1)
    offsets = np.arange(devices + 1, dtype=np.int64) * m
    return csr_array((signs.ravel(), indices.ravel(), offsets), shape=(devices, width))


def rectify_scale(
    epsilon: float, width: int, low: float, high: float, sampled: int | None = None
) -> float:
    """d/m · (b - a)/2 · (e^(ε/m) + 1)/(e^(ε/m) - 1): what ±1 stands for, from the midpoint."""
    m = sampled_features(epsilon, width) if sampled is None else sampled
    return width / m * float(recovery_scale(epsilon / m, low, high))


def _drawn(randomness: PrivateRandomness, rows: Ints, step: int, m: int, width: int) -> Ints:
    """[rows, m] distinct features of each device, ascending: every set is equally likely."""
    if m == width:
        return np.broadcast_to(np.arange(width), (len(rows), width))
    chance = randomness.uniform(rows, "multi-bit features", step, m)
    draws = np.floor(chance * draw_bounds(width, m)).astype(np.int64)
    return np.sort(distinct_columns(draws, width), axis=1)


def _at(features: Features, rows: Ints, columns: Ints) -> Floats:
    """[rows, m] the features of each row at its columns."""
    here = features[rows]
    if not issparse(here):
        return np.take_along_axis(np.asarray(here), columns, axis=1)
    matrix = csr_array(here)
    if columns.shape[1] == matrix.shape[1]:
        return np.asarray(matrix.toarray())
    local = np.repeat(np.arange(len(rows)), columns.shape[1])
    chosen: Any = matrix[local, columns.ravel()]  # an array, or a sparse one: scipy has had both
    dense = getattr(chosen, "toarray", lambda: chosen)()
    return np.asarray(dense).reshape(columns.shape)


# m of d coordinates without replacement.


def sampled_features(epsilon: float, width: int) -> int:
    """m = max(1, min(d, ⌊ε/2.18⌋)): the number of coordinates that keeps the variance least."""
    return max(1, min(width, math.floor(min(epsilon, PER_BIT * width) / PER_BIT)))


def draw_bounds(width: int, sampled: int) -> Ints:
    """[m] d - m + 1 … d: what each draw of `distinct_columns` must lie below."""
    return np.arange(width - sampled + 1, width + 1)


def distinct_columns(draws: Ints, width: int) -> Ints:
    """[rows, m] distinct columns below `width`: every set of m is equally likely.

    Robert Floyd's algorithm: for j = d - m … d - 1 draw t from 0 … j, and take j where t is taken.

    Args:
        draws: [rows, m] t, uniform below `draw_bounds(width, m)`.
        width: d.
    """
    sampled = draws.shape[1]
    chosen = np.empty(draws.shape, np.int64)
    for place, last in enumerate(range(width - sampled, width)):
        taken = (chosen[:, :place] == draws[:, place, None]).any(axis=1)
        chosen[:, place] = np.where(taken, last, draws[:, place])
    return chosen
