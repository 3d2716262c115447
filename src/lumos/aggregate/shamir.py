"""Shamir's secret sharing over GF(65521), for many secrets at once.

A secret s is the value at 0 of a polynomial of degree t - 1 whose other coefficients are uniform;
the share at point x ≠ 0 is its value there.

*Any t shares give the secret*: t values determine a polynomial of degree t - 1 (Lagrange).
*Any t - 1 shares say nothing*: for t - 1 points and any secret s' there is exactly one polynomial
of degree t - 1 with those values and s' at 0. So for each secret the t - 1 shares are uniform on
GF(p)^(t-1), whatever the secret: secrecy is perfect, not computational.

p = 65521 is the largest prime below 2^16: elements travel in two bytes, and since
t · (p - 1)^2 < 2^53 for t < 2^21, products of matrices of elements are exact in float64, where
they are fast. A secret of 16 elements has 16 · log2 p > 255.99 bits.
"""

import numpy as np
import numpy.typing as npt

from lumos.crypto import entropy
from lumos.typing import Ints

PRIME = 65521
LIMBS = 16
"""Field elements of one secret."""

Elements = npt.NDArray[np.uint16]


def uniform(count: int) -> Elements:
    """[count] uniform elements of the field, from the operating system."""
    drawn = np.frombuffer(entropy.draw(2 * count), "<u2").astype(np.uint16)
    while (outside := np.flatnonzero(drawn >= PRIME)).size:
        drawn[outside] = np.frombuffer(entropy.draw(2 * outside.size), "<u2")
    return drawn


def split(secrets: Elements, threshold: int, count: int) -> Elements:
    """[secrets, elements] → [secrets, count, elements]: shares at the points 1, 2, …, count."""
    rows, elements = secrets.shape
    hidden = uniform((threshold - 1) * secrets.size).reshape(threshold - 1, secrets.size)
    shares = evaluate(np.vstack([secrets.reshape(1, -1), hidden]), np.arange(1, count + 1))
    return shares.reshape(count, rows, elements).transpose(1, 0, 2)


def evaluate(coefficients: Elements, points: Ints, prime: int = PRIME) -> Elements:
    """[t, polynomials] lowest first, at [points] → [points, polynomials]."""
    powers = np.ones((len(points), len(coefficients)), np.int64)
    for degree in range(1, len(coefficients)):
        powers[:, degree] = powers[:, degree - 1] * points % prime
    values = powers.astype(np.float64) @ coefficients.astype(np.float64)
    return (values % prime).astype(np.uint16)


def reconstruct(points: Ints, shares: Elements, prime: int = PRIME) -> Elements:
    """The secrets behind shares at distinct points.

    Args:
        points: [secrets, t] where each share was taken.
        shares: [secrets, t, elements].
    """
    # s = Σ_i λ_i share_i with λ_i = Π_{j≠i} x_j / (x_j - x_i)
    above = np.ones_like(points)
    below = np.ones_like(points)
    for j in range(points.shape[1]):
        x = points[:, j, None]
        own = np.arange(points.shape[1]) == j
        above = np.where(own, above, above * x % prime)
        below = np.where(own, below, below * (x - points) % prime)
    weights = above * _inverse(below, prime) % prime
    summed: Ints = np.einsum("st,ste->se", weights, shares.astype(np.int64))
    return (summed % prime).astype(np.uint16)


def _inverse(values: Ints, prime: int) -> Ints:
    """values^(p-2), by squaring."""
    result, power, exponent = np.ones_like(values), values % prime, prime - 2
    while exponent:
        if exponent & 1:
            result = result * power % prime
        power = power * power % prime
        exponent >>= 1
    return result
