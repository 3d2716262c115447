"""The multi-bit mechanism: likelihoods by counting randomness, moments in closed form."""

import math
from collections import Counter
from decimal import Decimal, localcontext
from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.stats import chi2
from tests.ldp.formulas import probability_of_one, rectified, rectified_variance

from lumos.device.randomness import PrivateRandomness, simulated_secrets
from lumos.errors import InputError, UsageError
from lumos.ldp import multibit
from lumos.ldp.multibit import sampled_features
from lumos.ldp.one_bit import COIN, threshold


def randomness(devices: int, seed: int = 0) -> PrivateRandomness:
    return PrivateRandomness(simulated_secrets(seed, np.arange(devices)))


@pytest.mark.parametrize("m", [1, 2, 5])
@pytest.mark.parametrize("sparse", [False, True])
def test_m_bits_leave_each_device_and_nothing_else(m: int, sparse: bool) -> None:
    features = (np.random.default_rng(1).random((300, 5)) < 0.4).astype(np.float32)
    given = csr_array(features) if sparse else features
    said = multibit.release(given, 3.0, randomness(300), sampled=m)
    assert_array_equal(np.diff(said.indptr), m)
    assert set(np.unique(said.data)) == {-1, 1}
    assert said.has_canonical_format  # each feature at most once
    other = multibit.release(csr_array(features), 3.0, randomness(300), sampled=m)
    assert_array_equal(said.toarray(), other.toarray())  # the form of the features is no matter


def test_every_set_of_features_is_equally_likely() -> None:
    devices, width, m = 20_000, 5, 3
    said = multibit.release(
        np.zeros((devices, width), np.float32), 1.0, randomness(devices), sampled=m
    )
    seen = Counter(map(tuple, said.indices.reshape(devices, m).tolist()))
    sets = list(combinations(range(width), m))
    assert set(seen) == set(sets)
    expected = devices / len(sets)
    distance = sum((seen[s] - expected) ** 2 / expected for s in sets)
    assert distance < chi2.ppf(1 - 1e-6, len(sets) - 1)


def test_which_features_are_drawn_does_not_depend_on_their_values() -> None:
    low = multibit.release(np.zeros((500, 8), np.float32), 1.0, randomness(500), sampled=2)
    high = multibit.release(np.ones((500, 8), np.float32), 1.0, randomness(500), sampled=2)
    assert_array_equal(low.indices, high.indices)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 2.0, 5.0, 12.0])
@pytest.mark.parametrize("width", [1, 4, 11])
@pytest.mark.parametrize("one_bit", [False, True])
def test_likelihood_ratio_is_at_most_e_to_epsilon(
    epsilon: float, width: int, one_bit: bool
) -> None:
    """Any two vectors, any release: the features drawn are as likely, the m bits multiply up."""
    m = width if one_bit else sampled_features(epsilon, width)
    values = np.array([0.0, 0.3, 1.0])
    ones = [int(count) for count in threshold(values, epsilon / m, 0.0, 1.0)]
    with localcontext() as context:
        context.prec = 60
        for counts in (ones, [int(COIN) - count for count in ones]):
            ratio = Decimal(max(counts)) / Decimal(min(counts))
            assert ratio**m <= Decimal(epsilon).exp()
    # … and not much less: the mechanism spends what it may.
    assert max(ones) / min(ones) > math.exp(epsilon / m) * (1 - 1e-4)


@pytest.mark.parametrize(("epsilon", "m"), [(1.0, 1), (4.4, 2), (2.0, 6)])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 3.0)])
def test_rectified_features_are_unbiased(epsilon: float, m: int, low: float, high: float) -> None:
    """Expectation and variance from the probabilities of x* = +1, -1, 0."""
    width = 6
    values = np.linspace(low, high, width)
    one = probability_of_one(values, epsilon / m, low, high)
    scale = multibit.rectify_scale(epsilon, width, low, high, m)
    middle = (low + high) / 2
    chances = np.stack([m / width * one, m / width * (1 - one), np.full(width, 1 - m / width)])
    outcomes = np.array([scale + middle, -scale + middle, middle])[:, None]
    mean = (chances * outcomes).sum(axis=0)
    assert_allclose(mean, values, atol=1e-9)
    variance = (chances * (outcomes - mean) ** 2).sum(axis=0)
    assert_allclose(rectified_variance(values, epsilon, low, high, m), variance)


def test_rectified_features_average_to_the_features() -> None:
    devices, epsilon = 60_000, 3.0
    row = np.array([0.0, 0.25, 0.5, 1.0, 1.0], np.float32)
    said = multibit.release(np.tile(row, (devices, 1)), epsilon, randomness(devices))
    found = rectified(said, epsilon).mean(axis=0)
    error = np.sqrt(rectified_variance(row.astype(float), epsilon, 0, 1) / devices)
    assert (np.abs(found - row) < 5 * error).all()


def test_randomness_decide_and_each_step_has_its_own() -> None:
    features = np.full((400, 7), 0.5, np.float32)
    first = multibit.release(features, 2.0, randomness(400))
    again = multibit.release(features, 2.0, randomness(400))
    later = multibit.release(features, 2.0, randomness(400), step=1)
    assert_array_equal(first.toarray(), again.toarray())
    assert (first.toarray() != later.toarray()).any()


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_that_is_none(epsilon: float) -> None:
    with pytest.raises(UsageError, match="epsilon"):
        multibit.release(np.zeros((3, 3), np.float32), epsilon, randomness(3))


def test_bad_input() -> None:
    with pytest.raises(InputError, match="outside the public bounds"):
        multibit.release(np.full((3, 3), 2.0, np.float32), 1.0, randomness(3))
    with pytest.raises(InputError, match="not finite"):
        multibit.release(np.full((3, 3), np.nan, np.float32), 1.0, randomness(3))
    for m in (0, 4):
        with pytest.raises(UsageError, match="sampled"):
            multibit.release(np.zeros((3, 3), np.float32), 1.0, randomness(3), sampled=m)
