"""Drawing m of d coordinates without replacement, for mechanisms that release only some of them."""

import math

import numpy as np

from lumos.typing import Ints

PER_BIT = 2.18
"""ε at which one more bit is worth more than a surer one (Sajadmanesh and Gatica-Perez 2021,
Proposition 3.5)."""


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
