"""The assumed federation: closed forms, and samples that have the numbers that were asked for."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from lumos.errors import UsageError
from lumos.strict.forecast import (
    CIRCLE,
    CLUSTERED,
    INDEPENDENT,
    MAX_CERTAIN,
    Scenario,
    calibrated_logits,
    draw_federation,
    largest_chance,
    looking_like_home,
    mixing,
    signal,
)
from lumos.training.profile import Population


def population(**changed: float) -> Population:
    given = {"devices": 8000, "classes": 4, "degree": 8.0, "homophily": 0.7, "own_accuracy": 0.6}
    merged = given | changed
    return Population(
        devices=int(merged["devices"]),
        classes=int(merged["classes"]),
        degree=merged["degree"],
        homophily=merged["homophily"],
        own_accuracy=merged["own_accuracy"],
    )


@pytest.mark.parametrize("mean", [0.0, 0.5, 2.0, 6.0])
def test_the_largest_of_two_scores_in_closed_form(mean: float) -> None:
    """x1 - x2 is normal with mean s and variance 2."""
    assert largest_chance(mean, 2) == pytest.approx(float(ndtr(mean / math.sqrt(2))), abs=1e-9)


@pytest.mark.parametrize("classes", [2, 5, 40])
def test_the_signal_inverts_the_chance(classes: int) -> None:
    assert largest_chance(0.0, classes) == pytest.approx(1 / classes)
    assert signal(1 / classes, classes) == pytest.approx(0, abs=1e-6)
    for accuracy in (0.6, 0.98):
        assert largest_chance(signal(accuracy, classes), classes) == pytest.approx(accuracy)


def test_own_logits_are_calibrated_and_have_the_accuracy() -> None:
    generator = np.random.default_rng(1)
    seen = generator.integers(0, 3, 60_000)
    logits = calibrated_logits(seen, 3, 0.7, generator)
    assert (logits.argmax(axis=1) == seen).mean() == pytest.approx(0.7, abs=0.01)
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    for low in (0.0, 0.2, 0.5, 0.8):
        here = (chances[:, 0] >= low) & (chances[:, 0] < low + 0.2)
        assert (seen[here] == 0).mean() == pytest.approx(chances[here, 0].mean(), abs=0.02)


@pytest.mark.parametrize("classes", [2, 4, 18])
@pytest.mark.parametrize("homophily", [0.56, 0.8, 1.0])
def test_misplaced_devices_alone_make_the_homophily(classes: int, homophily: float) -> None:
    misplaced, within = mixing(population(classes=classes, homophily=homophily), CLUSTERED)
    assert within == 1.0
    same = (1 - misplaced) ** 2 + misplaced**2 / (classes - 1)
    assert same == pytest.approx(homophily)
    assert mixing(population(classes=classes, homophily=homophily), INDEPENDENT) == (0, homophily)


@pytest.mark.parametrize("scenario", [CLUSTERED, INDEPENDENT])
@pytest.mark.parametrize("homophily", [0.1, 0.25, 0.7, 1.0])
def test_a_sample_has_the_assumed_numbers(scenario: Scenario, homophily: float) -> None:
    wanted = population(homophily=homophily, own_accuracy=0.6)
    drawn = draw_federation(wanted, scenario, 8000, np.random.default_rng(2))
    first, second = drawn.truth[drawn.pairs].T
    assert (first == second).mean() == pytest.approx(homophily, abs=0.03)
    assert 2 * len(drawn.pairs) / 8000 == 8.0
    assert (drawn.own.argmax(axis=1) == drawn.truth).mean() == pytest.approx(0.6, abs=0.02)
    assert np.bincount(drawn.truth) / 8000 == pytest.approx([0.25] * 4, abs=0.02)
    between = [(second[(first == 0)] == c).mean() for c in (1, 2, 3)]
    assert between == pytest.approx([(1 - homophily) / 3] * 3, abs=0.04)


def test_clustered_errors_are_shared_and_edges_local() -> None:
    """Wrong by own features and by neighbours at once; friends of friends are friends."""

    def both_wrong(scenario: Scenario) -> tuple[float, float]:
        wanted = population(homophily=0.8, own_accuracy=0.8, degree=20.0)
        drawn = draw_federation(wanted, scenario, 4000, np.random.default_rng(3))
        counts = np.zeros((4000, 4))
        for one, other in (drawn.pairs.T, drawn.pairs.T[::-1]):
            np.add.at(counts, (one, drawn.truth[other]), 1)
        by_own = drawn.own.argmax(axis=1) != drawn.truth
        by_neighbours = counts.argmax(axis=1) != drawn.truth
        partners = len(np.unique(np.sort(drawn.pairs, axis=1), axis=0)) / len(drawn.pairs)
        return float(by_neighbours[by_own].mean() - by_neighbours[~by_own].mean()), partners

    clustered, independent = both_wrong(CLUSTERED), both_wrong(INDEPENDENT)
    assert clustered[0] > 0.25
    assert abs(independent[0]) < 0.03
    assert clustered[1] < independent[1] - 0.05  # circles of so few devices repeat pairs
    assert CIRCLE < 4000 / 4


@pytest.mark.parametrize("accuracy", [0.3, 0.6, 0.9, 0.97, 0.985])
@pytest.mark.parametrize("misplaced", [0.0, 0.1, 0.4])
def test_features_of_the_community_keep_the_accuracy(accuracy: float, misplaced: float) -> None:
    looks, about = looking_like_home(population(own_accuracy=accuracy), misplaced)
    assert 0 <= looks <= 1
    assert about <= max(MAX_CERTAIN, accuracy)
    apart = misplaced * looks
    assert (1 - apart) * about + apart * (1 - about) / 3 == pytest.approx(accuracy)
    if looks < 1:
        assert about == pytest.approx(max(MAX_CERTAIN, accuracy))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("devices", 7),
        ("classes", 1),
        ("degree", 0.0),
        ("degree", 8000.0),
        ("homophily", -0.1),
        ("homophily", 1.1),
        ("own_accuracy", 0.2),
        ("own_accuracy", 1.0),
    ],
)
def test_assumptions_that_cannot_be(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"`{name}` must be"):
        population(**{name: value})
