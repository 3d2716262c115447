"""Sharing: every t shares give the secret, t - 1 say nothing (by enumeration)."""

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.secagg.federation import some_elements

from lumos.secagg import shares as shamir


def evaluated(coefficients: list[int], point: int, prime: int) -> int:
    """The oracle: a polynomial, lowest coefficient first, in whole numbers."""
    return sum(c * point**power for power, c in enumerate(coefficients)) % prime


@pytest.mark.parametrize("threshold", [1, 2, 3, 4])
def test_every_subset_of_t_shares_gives_the_secret(threshold: int) -> None:
    polynomials = some_elements(3, 2, threshold)
    shares = np.array(
        [
            [[evaluated(c.tolist(), x, shamir.PRIME) for c in row] for x in range(1, 7)]
            for row in polynomials
        ],
        np.uint16,
    )
    for slots in combinations(range(6), threshold):
        chosen = np.array(slots)
        points = np.tile(chosen + 1, (3, 1))
        secrets = shamir.reconstruct(points, shares[:, chosen])
        assert np.array_equal(secrets, polynomials[:, :, 0])
        rest = np.setdiff1d(np.arange(6), chosen)
        found = shamir.interpolate(points, shares[:, chosen], np.tile(rest + 1, (3, 1)))
        assert np.array_equal(found, shares[:, rest])


@pytest.mark.parametrize(("prime", "threshold"), [(5, 2), (5, 3), (7, 3)])
def test_fewer_shares_leave_every_secret_as_likely(prime: int, threshold: int) -> None:
    """All values of t shares in a tiny field: given t - 1 shares, each secret occurs once."""
    everything = np.array(list(product(range(prime), repeat=threshold)), np.uint16)
    points = np.tile(np.arange(1, threshold + 1), (len(everything), 1))
    others = np.arange(threshold + 1, prime)
    wanted = np.tile(np.append(0, others), (len(everything), 1))
    found = shamir.interpolate(points, everything[:, :, None], wanted, prime)[:, :, 0]
    shares = np.hstack([everything, found[:, 1:]])
    for slots in combinations(range(prime - 1), threshold - 1):
        seen = Counter(zip(map(tuple, shares[:, list(slots)].tolist()), found[:, 0], strict=True))
        assert len(seen) == prime**threshold
        assert set(seen.values()) == {1}


@given(st.integers(1, 300), st.integers(0, 2**32 - 1), st.booleans())
def test_interpolation_is_exact_at_the_largest_values(t: int, seed: int, same: bool) -> None:
    """With the same points for all, and with points of each: values are the oracle's."""
    generator = np.random.default_rng(seed)
    places = [generator.permutation(400)[: t + 2] + 1 for _ in range(2)]
    points = np.array([places[0], places[0] if same else places[1]])
    coefficients = generator.integers(shamir.PRIME - 3, shamir.PRIME, (2, t))
    values = np.array(
        [
            [_horner(c.tolist(), x, shamir.PRIME) for x in row.tolist()]
            for c, row in zip(coefficients, points, strict=True)
        ],
        np.uint16,
    )
    found = shamir.interpolate(points[:, :t], values[:, :t, None], points[:, t:])
    assert np.array_equal(found[:, :, 0], values[:, t:])


def _horner(coefficients: list[int], point: int, prime: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % prime
    return value


def test_elements_are_uniform_but_for_a_known_factor() -> None:
    """Of 2^32 words each element has 65,551 or 65,552."""
    least, more = divmod(2**32, shamir.PRIME)
    assert (least, least + 1) == (65_551, 65_552)
    words = np.array([0, shamir.PRIME - 1, shamir.PRIME, 2**32 - 1], np.uint32)
    assert shamir.elements_of(words).tolist() == [0, shamir.PRIME - 1, 0, more - 1]
