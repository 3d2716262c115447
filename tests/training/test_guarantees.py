"""Bounds as probabilities: against numerical Neyman–Pearson tests, and against (ε, δ)."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from lumos.secagg.noise import epsilon_for
from lumos.training.guarantees import guess_bound, in_percent, is_weak, told_apart, worst

EPSILONS, MUS = (0.0, 0.1, 1.0, 3.0, 8.0), (0.0, 0.05, 0.7, 1.67, 5.0)


def best_test(epsilon: float, mu: float) -> float:
    """How often the likelihood ratio is right, by numerical integration.

    One bit under randomized response and one normal number: half of ∫ max of both densities.
    """
    step = 1e-4
    grid = np.arange(-12, 12 + mu, step) + step / 2
    kept = math.exp(epsilon) / (1 + math.exp(epsilon))
    one, other = norm.pdf(grid), norm.pdf(grid, loc=mu)
    bits = [np.maximum((1 - a) * one, a * other).sum() for a in (kept, 1 - kept)]
    return float(sum(bits)) * step / 2


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_likelihood_ratio_reaches_the_bound(epsilon: float, mu: float) -> None:
    assert told_apart(epsilon, mu) == pytest.approx(best_test(epsilon, mu), abs=1e-7)


def test_limits() -> None:
    assert told_apart(0.0, 0.0) == 0.5
    assert told_apart(3.0, 0.0) == pytest.approx(math.exp(3) / (1 + math.exp(3)))
    assert told_apart(3.0, 1e-9) == pytest.approx(told_apart(3.0, 0.0))
    assert told_apart(0.0, 2.0) == pytest.approx(norm.cdf(1.0))
    assert told_apart(1e-9, 2.0) == pytest.approx(norm.cdf(1.0))
    assert told_apart(math.inf, 1.0) == told_apart(5000.0, 1.0) == 1.0


def test_more_is_never_less() -> None:
    bounds = np.array([[told_apart(epsilon, mu) for mu in MUS] for epsilon in EPSILONS])
    assert (np.diff(bounds, axis=0) > 0).all()
    assert (np.diff(bounds, axis=1) >= 0).all()
    assert (np.diff(bounds[:4], axis=1)[:, 1:] > 0).all()


@pytest.mark.parametrize("mu", MUS[1:])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_it_is_never_above_what_epsilon_and_delta_allow(epsilon: float, mu: float) -> None:
    """(ε, δ) alone allow (e^ε + δ)/(1 + e^ε): the printed pairs are all implied."""
    for delta in (1e-2, 1e-5, 1e-9):
        whole = epsilon + epsilon_for(mu, delta)
        assert told_apart(epsilon, mu) <= (1 + delta * math.exp(-whole)) / (1 + math.exp(-whole))


@pytest.mark.parametrize(("classes", "epsilon"), [(2, 1.0), (4, 3.0), (6, 0.5), (10, 8.0)])
def test_the_bound_is_that_of_the_best_guess(classes: int, epsilon: float) -> None:
    """Randomized response of equally likely classes meets it: its output is the best guess."""
    kept = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    assert guess_bound(epsilon, 1 / classes) == pytest.approx(kept)
    assert guess_bound(epsilon, 0.0) == 0
    assert guess_bound(epsilon, 1.0) == 1


def test_examples_of_the_screen() -> None:
    assert 100 * guess_bound(3.0, 0.25) == pytest.approx(87.0, abs=0.01)
    assert 100 * guess_bound(3.0, 0.9) == pytest.approx(99.45, abs=0.01)
    assert in_percent(told_apart(3.0, 0.0)) == "at most 95.3 % of cases (weak)"


def test_words_round_up_and_call_more_than_nine_of_ten_weak() -> None:
    assert in_percent(0.5) == "at most 50 % of cases"
    assert in_percent(0.79751) == "at most 79.8 % of cases"
    assert in_percent(0.9) == "at most 90 % of cases"
    assert in_percent(0.90001) == "at most 90.1 % of cases (weak)"
    assert in_percent(1 - 1e-12) == "up to 100 % of cases (no useful bound)"
    assert in_percent(None) == "no guarantee"
    assert [is_weak(bound) for bound in (None, 0.9, 0.91)] == [False, False, True]
    assert is_weak(0.6, 0.95)


def test_the_worst_role_counts_and_none_is_worse_than_any() -> None:
    assert worst([0.5, 0.8, 0.7]) == 0.8
    assert worst([0.5, None]) is None
