"""Sharing: every t shares give the secret, t - 1 say nothing (by enumeration)."""

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos.aggregate import shamir
from lumos.crypto import entropy


@pytest.mark.parametrize("threshold", [1, 2, 3, 4])
def test_every_subset_of_t_shares_gives_the_secret(threshold: int) -> None:
    secrets = shamir.uniform(3 * 2).reshape(3, 2)
    shares = shamir.split(secrets, threshold, 6)
    for slots in combinations(range(6), threshold):
        chosen = np.array(slots)
        points = np.tile(chosen + 1, (3, 1))
        assert np.array_equal(shamir.reconstruct(points, shares[:, chosen]), secrets)


@pytest.mark.parametrize(("prime", "threshold"), [(5, 2), (5, 3), (7, 3)])
def test_fewer_shares_are_uniform_whatever_the_secret(prime: int, threshold: int) -> None:
    """All polynomials of a tiny field: each tuple of t - 1 shares occurs equally often."""
    points = np.arange(1, prime)
    hidden = np.array(list(product(range(prime), repeat=threshold - 1)), np.uint16).T
    for secret in range(prime):
        constant = np.full((1, hidden.shape[1]), secret, np.uint16)
        shares = shamir.evaluate(np.vstack([constant, hidden]), points, prime)
        for slots in combinations(range(len(points)), threshold - 1):
            seen = Counter(map(tuple, shares[list(slots)].T.tolist()))
            assert len(seen) == prime ** (threshold - 1)
            assert set(seen.values()) == {1}


def test_a_sharing_with_one_coefficient_too_few_is_caught_by_the_same_count() -> None:
    """The broken twin: degree t - 2 lets t - 1 = 2 shares tell the secret."""
    prime = 5
    seen = set()
    for secret in range(prime):
        coefficients = np.array([[secret] * prime, range(prime)], np.uint16)
        shares = shamir.evaluate(coefficients, np.array([1, 2]), prime)
        seen.add(frozenset(map(tuple, shares.T.tolist())))
    assert len(seen) == prime  # a different set of shares for every secret


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_evaluation_is_exact_at_the_largest_values(threshold: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    coefficients = generator.integers(shamir.PRIME - 3, shamir.PRIME, (threshold, 2))
    points = generator.integers(1, shamir.PRIME, 3)
    values = shamir.evaluate(coefficients.astype(np.uint16), points)
    for row, point in enumerate(points.tolist()):
        for column in range(2):
            exact = sum(
                int(c) * pow(point, power, shamir.PRIME)
                for power, c in enumerate(coefficients[:, column])
            )
            assert int(values[row, column]) == exact % shamir.PRIME


def test_elements_are_uniform_and_below_the_prime(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [b"\xff\xff\x01\x00\xf1\xff", b"\xf1\xff\x02\x00", b"\x03\x00"]
    monkeypatch.setattr(entropy, "draw", lambda count: answers.pop(0))
    # 0xffff and 0xfff1 = 65521 lie outside and are drawn again, as often as it takes.
    assert shamir.uniform(3).tolist() == [3, 1, 2]
    assert answers == []
