"""Shamir's secret sharing over GF(65521), for many secrets at once.

A secret is the value at 0 of a polynomial of degree t - 1 that is determined by its values at t
other points; the share at point x ≠ 0 is its value there.

*Any t shares give the secret*: t values determine a polynomial of degree t - 1 (Lagrange).
*Any t - 1 shares say nothing*: for t - 1 points and any secret s' there is exactly one polynomial
of degree t - 1 with those values and s' at 0. So where t values are uniform, the secret is uniform
given any t - 1 shares: secrecy is perfect, not computational.

p = 65521 is the largest prime below 2^16: elements travel in two bytes, and since
t · (p - 1)^2 < 2^53 for t < 2^21, products of matrices of elements are exact in float64, where
they are fast. A secret of 8 elements has 8 · log2 p > 127.99 bits.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from lumos.typing import Ints, Words

PRIME = 65521
LIMBS = 8
"""Field elements of one secret."""

Elements = npt.NDArray[np.uint16]


def elements_of(words: Words) -> Elements:
    """Field elements from uniform words of 32 bits: uniform but for a factor 1 ± 2^-16."""
    return (words % np.uint32(PRIME)).astype(np.uint16)


def interpolate(points: Ints, values: Elements, wanted: Ints, prime: int = PRIME) -> Elements:
    """The values of polynomials at further points.

    Args:
        points: [secrets, t] distinct points.
        values: [secrets, t, elements] the values there.
        wanted: [secrets, wanted] where to evaluate, none of `points`.

    Returns:
        [secrets, wanted, elements].
    """
    secrets, t, elements = values.shape
    if secrets and (points == points[0]).all() and (wanted == wanted[0]).all():
        # The same points for all: one product of matrices.
        columns = values.transpose(1, 0, 2).reshape(t, secrets * elements)
        found = _weights(points[:1], wanted[:1], prime)[0] @ columns.astype(np.float64)
        found = found.reshape(-1, secrets, elements).transpose(1, 0, 2)
    else:
        found = _weights(points, wanted, prime) @ values.astype(np.float64)
    result: Elements = (found % prime).astype(np.uint16)
    return result


def reconstruct(points: Ints, shares: Elements, prime: int = PRIME) -> Elements:
    """The secrets behind shares at distinct points.

    Args:
        points: [secrets, t] where each share was taken.
        shares: [secrets, t, elements].
    """
    return interpolate(points, shares, np.zeros((len(points), 1), np.int64), prime)[:, 0]


def _weights(points: Ints, wanted: Ints, prime: int) -> npt.NDArray[np.float64]:
    """[secrets, wanted, t] λ_i(x) = Π_{j≠i} (x - x_j) / (x_i - x_j) of each point."""
    above = np.ones(wanted.shape, np.int64)  # Π_j (x - x_j)
    below = np.ones_like(points)
    for j in range(points.shape[1]):
        x = points[:, j, None]
        above = above * (wanted - x) % prime
        apart = points - x
        apart[:, j] = 1
        below = below * apart % prime
    inverses = _inverses(prime)
    weights: Ints = above[:, :, None] * inverses[below][:, None, :] % prime
    weights = weights * inverses[(wanted[:, :, None] - points[:, None, :]) % prime] % prime
    exact: npt.NDArray[np.float64] = weights.astype(np.float64)
    return exact


@cache
def _inverses(prime: int) -> Ints:
    """[prime] 1/x of each x; 0 of 0."""
    values = np.arange(prime)
    result, power, exponent = np.ones_like(values), values, prime - 2  # x^(p-2), by squaring
    while exponent:
        if exponent & 1:
            result = result * power % prime
        power = power * power % prime
        exponent >>= 1
    return result
