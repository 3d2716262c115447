"""What devices send to a server: frequencies, densities and calibration against closed forms."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.sparse import csr_array
from scipy.stats import binom, chi2, norm
from tests.narrow import sparse

from lumos.baselines.naive import (
    MAX_NOISY_EDGES,
    flip_probability,
    noisy_edges,
    noisy_features,
    sensitivity,
)
from lumos.baselines.network import noisy_labels, transition
from lumos.baselines.systems import BaselineSettings
from lumos.errors import UsageError
from lumos.ldp.bounds import unit_rows


@pytest.mark.parametrize("classes", [2, 4, 9])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_labels_are_said_with_the_frequencies_of_randomized_response(
    classes: int, epsilon: float
) -> None:
    each = 8_000
    labels = np.repeat(np.arange(classes), each)
    said = noisy_labels(labels, classes, epsilon, np.random.default_rng(3))
    seen = np.zeros((classes, classes))
    np.add.at(seen, (labels, said), 1)
    truth = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    expected = np.full((classes, classes), (1 - truth) / (classes - 1))
    np.fill_diagonal(expected, truth)
    distance = ((seen - each * expected) ** 2 / (each * expected)).sum()
    assert distance < chi2.ppf(1 - 1e-6, classes * (classes - 1))
    assert_allclose(transition(classes, epsilon).numpy(), expected, atol=1e-6)


def test_labels_that_nobody_has_are_not_said() -> None:
    labels = np.array([-1, 0, 1, -1, 2])
    said = noisy_labels(labels, 3, 0.1, np.random.default_rng(0))
    assert_array_equal(said[[0, 3]], -1)
    assert_array_equal(noisy_labels(labels, 3, math.inf, np.random.default_rng(0)), labels)
    assert_array_equal(transition(3, math.inf).numpy(), np.eye(3))


def pairs_of(found: np.ndarray) -> set[tuple[int, int]]:
    return set(map(tuple, found.tolist()))


EDGES = np.array([[0, 1], [0, 4], [1, 2], [3, 4], [4, 5]])


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_every_pair_is_flipped_with_the_same_probability(epsilon: float) -> None:
    """Brute force on six devices: frequencies of all fifteen pairs, and of pairs of pairs."""
    runs, devices = 6_000, 6
    flipped = np.zeros((runs, devices, devices), np.bool_)
    true = pairs_of(EDGES)
    generator = np.random.default_rng(5)
    for run in range(runs):
        for u, v in pairs_of(noisy_edges(EDGES, devices, epsilon, generator)) ^ true:
            flipped[run, u, v] = True
    above = np.triu_indices(devices, 1)
    assert not flipped.transpose(0, 2, 1)[:, above[0], above[1]].any()  # u < v always
    flips = flipped[:, above[0], above[1]].astype(float)
    chance = 1 / (math.exp(epsilon) + 1)
    assert flip_probability(epsilon) == pytest.approx(chance)
    error = math.sqrt(chance * (1 - chance) / runs)
    assert (np.abs(flips.mean(axis=0) - chance) < 5 * error).all()
    together = flips.T @ flips / runs
    off = ~np.eye(len(together), dtype=bool)
    both = chance**2
    assert (np.abs(together[off] - both) < 5.5 * math.sqrt(both * (1 - both) / runs)).all()
    counts = flips.sum(axis=1)  # independent flips: their number is binomial
    assert counts.var() == pytest.approx(15 * chance * (1 - chance), rel=0.1)


def test_density_of_a_larger_noisy_graph() -> None:
    devices, epsilon = 700, 2.0
    generator = np.random.default_rng(2)
    some = np.unique(np.sort(generator.integers(0, devices, (2_000, 2)), axis=1), axis=0)
    edges = some[some[:, 0] < some[:, 1]]
    noisy = noisy_edges(edges, devices, epsilon, generator)
    assert (noisy[:, 0] < noisy[:, 1]).all()
    keys = noisy[:, 0] * devices + noisy[:, 1]
    assert (np.diff(keys) > 0).all()  # ascending, each once
    kept = np.isin(keys, edges[:, 0] * devices + edges[:, 1]).sum()
    possible, q = devices * (devices - 1) // 2, 1 / (math.exp(epsilon) + 1)
    assert 1e-7 < binom.cdf(kept, len(edges), 1 - q) < 1 - 1e-7
    assert 1e-7 < binom.cdf(len(noisy) - kept, possible - len(edges), q) < 1 - 1e-7


def test_noisy_edges_at_the_ends() -> None:
    generator = np.random.default_rng(0)
    assert_array_equal(noisy_edges(EDGES, 6, math.inf, generator), EDGES)
    assert_array_equal(noisy_edges(EDGES, 6, 60.0, generator), EDGES)  # q = 9e-27
    assert noisy_edges(EDGES[:0], 1, 1.0, generator).shape == (0, 2)
    assert pairs_of(noisy_edges(EDGES[:0], 2, 1e-3, generator)) <= {(0, 1)}
    with pytest.raises(UsageError, match=f"{MAX_NOISY_EDGES:,}"):
        noisy_edges(EDGES, 1_000_000, 2.0, generator)


def delta_by_integration(epsilon: float, sigma: float, distance: float) -> float:
    """∫ max(0, p - e^ε q) for two Gaussians at a distance, on the line through them."""

    def over(x: float) -> float:
        p = norm.pdf(x, distance, sigma)
        return max(0.0, float(p - math.exp(epsilon) * norm.pdf(x, 0.0, sigma)))

    start = epsilon * sigma**2 / distance + distance / 2  # where p = e^ε q
    return float(quad(over, start, start + 40 * sigma, epsabs=1e-14, limit=500)[0])


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-3])
@pytest.mark.parametrize("low", [0.0, -1.0])
def test_gaussian_noise_spends_delta_and_no_more(epsilon: float, delta: float, low: float) -> None:
    settings = BaselineSettings(system="naive", feature_epsilon=epsilon, delta=delta, low=low)
    rows = np.eye(3, dtype=np.float32)
    _, sigma = noisy_features(rows, settings, np.random.default_rng(0))
    found = delta_by_integration(epsilon, sigma, sensitivity(low))
    assert found == pytest.approx(delta, rel=1e-4)


def test_gaussian_noise_is_what_it_says() -> None:
    settings = BaselineSettings(system="naive", feature_epsilon=2.0)
    words = csr_array((np.random.default_rng(1).random((400, 300)) < 0.05).astype(np.float32))
    noisy, sigma = noisy_features(words, settings, np.random.default_rng(4))
    assert isinstance(noisy, np.ndarray)
    rest = (noisy - unit_rows(words).toarray()).ravel() / sigma
    assert abs(rest.mean()) < 5 / math.sqrt(rest.size)
    assert abs(rest.var() - 1) < 5 * math.sqrt(2 / rest.size)
    clear, none = noisy_features(
        words, BaselineSettings(system="naive", feature_epsilon=math.inf), np.random.default_rng(4)
    )
    assert none == 0
    assert_allclose(sparse(clear).toarray(), unit_rows(words).toarray())


@pytest.mark.parametrize("sparse", [False, True])
def test_no_two_rows_are_further_apart_than_the_sensitivity(sparse: bool) -> None:
    rows = np.array([[3, 0, 0], [0, 4, 0], [0, 0, 0], [1, 1, 1]], np.float32)
    unit = unit_rows(csr_array(rows)).toarray() if sparse else unit_rows(rows)
    assert_allclose(np.linalg.norm(unit, axis=1), [1, 1, 0, 1], atol=1e-6)
    apart = torch.cdist(torch.from_numpy(unit), torch.from_numpy(unit)).max()
    assert float(apart) == pytest.approx(sensitivity(0.0))  # two words that exclude each other
    assert sensitivity(-1.0) == 2.0
