"""Intervals against closed forms, and against how often they hold."""

import math

import numpy as np
import pytest
from scipy import stats

from lumos.audit.table import Area, CertifiedEpsilon, Exactly, NoiseRatio, Proportion
from lumos.secagg.noise import epsilon_for
from lumos.training.metrics import auc


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (10, 10), (7, 10), (812, 1000)])
def test_proportions_have_the_interval_of_scipy(hits: int, trials: int) -> None:
    low, high = Proportion(hits, trials).interval(0.99)
    known = stats.binomtest(hits, trials).proportion_ci(0.99, method="exact")
    assert low == pytest.approx(known.low)
    assert high == pytest.approx(known.high)


def test_the_area_under_the_curve_is_covered() -> None:
    """Scores of two normal distributions: the area is Φ(d/√2)."""
    generator, distance = np.random.default_rng(0), 0.7
    truth = stats.norm.cdf(distance / math.sqrt(2))
    held = 0
    for _ in range(400):
        positive, negative = generator.normal(distance, 1, 80), generator.normal(0, 1, 120)
        low, high = Area(auc(positive, negative), 80, 120).interval(0.95)
        held += low <= truth <= high
    assert held / 400 > 0.93


def test_certified_epsilon_is_never_more_than_that_of_the_mechanism() -> None:
    """Randomized response has ε, a Gaussian (ε, δ); a thousand audits of each exceed it hardly."""
    generator, trials = np.random.default_rng(1), 400
    epsilon = 1.5
    kept = math.exp(epsilon) / (1 + math.exp(epsilon))
    mu, delta = 1.2, 1e-3
    gaussian = epsilon_for(mu, delta)
    exceeded = [0, 0]
    for _ in range(1000):
        hits, false = generator.binomial(trials, kept), generator.binomial(trials, 1 - kept)
        certified = CertifiedEpsilon(hits, trials, false, trials)
        exceeded[0] += certified.interval(0.95)[0] > epsilon
        above = generator.normal(mu, 1, trials) > 1.6
        beside = generator.normal(0, 1, trials) > 1.6
        normal = CertifiedEpsilon(int(above.sum()), trials, int(beside.sum()), trials, delta)
        exceeded[1] += normal.interval(0.95)[0] > gaussian
    assert max(exceeded) <= 50
    # … and with many trials it comes close.
    many = 10**7
    close = CertifiedEpsilon(round(kept * many), many, round((1 - kept) * many), many)
    assert close.interval(0.999)[0] == pytest.approx(epsilon, abs=0.01)


def test_the_best_of_many_tests_needs_more() -> None:
    alone, chosen = (CertifiedEpsilon(90, 100, 10, 100, tests=tests) for tests in (1, 100))
    assert chosen.interval(0.99)[0] < alone.interval(0.99)[0]


@pytest.mark.parametrize("numbers", [3, 11, 440])
def test_less_noise_than_stated_is_shown_as_chi_square_says(numbers: int) -> None:
    """The lower end is above 1 just where χ² is below its quantile; 0.8 of the noise gives 1.25."""
    border = float(stats.chi2(numbers).ppf(0.0005))
    for square, shown in ((0.999 * border, True), (1.001 * border, False)):
        assert (NoiseRatio(square, numbers).interval(0.999)[0] > 1) == shown
    assert NoiseRatio(0.64 * numbers, numbers).value == pytest.approx(1.25)


def test_exact_numbers_have_no_width() -> None:
    assert Exactly(3.0).interval(0.999) == (3.0, 3.0)
