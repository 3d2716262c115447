"""The choice by validation pairs: AUC from counts, its error, and the rule of one error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from lumos.strict.link_choice import REACH, auc_of_ranges, choose, ranges
from lumos.strict.link_schedule import BINS
from lumos.training.metrics import auc


def counts(scores: np.ndarray, bins: int = BINS) -> np.ndarray:
    return np.bincount(ranges(scores, bins), minlength=bins).astype(float)


def table(candidates: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """[candidates, 2, bins] from (scores of edges, scores of strangers)."""
    return np.stack([np.stack([counts(others), counts(edges)]) for edges, others in candidates])


def drawn(rng: np.random.Generator, shift: float, many: int = 300) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(shift, 1, many), rng.normal(0, 1, many)


@pytest.mark.parametrize("bins", [3, 64, 100_000])
def test_the_area_is_the_exact_one(bins: int) -> None:
    """Of scores in ranges: ties count half. With fine ranges, of the scores themselves."""
    edges, others = drawn(np.random.default_rng(0), 0.7, 200)
    area, _ = auc_of_ranges(counts(edges, bins), counts(others, bins), 0.0)
    places = [ranges(some, bins).astype(float) for some in (edges, others)]
    by_hand = np.mean([(a > b) + (a == b) / 2 for a in places[0] for b in places[1]])
    assert area == pytest.approx(by_hand)
    assert area == pytest.approx(auc(*places))
    if bins > 1000:
        assert area == pytest.approx(auc(edges, others), abs=2e-4)


@pytest.mark.parametrize(("shift", "noise"), [(0.3, 0.0), (1.5, 0.0), (0.3, 2.0), (1.0, 4.0)])
def test_the_error_is_as_large_as_it_is(shift: float, noise: float) -> None:
    """Of 400 validations: the spread of the areas is the error that each of them states.

    In few and full ranges, so that hardly a noisy count falls below 0 and is cut. A spread of 400
    numbers is known to 3.6 %.
    """
    rng, bins = np.random.default_rng(1), 6
    areas, errors = [], []
    for _ in range(400):
        both = []
        for scores in drawn(rng, shift, 600):
            place = np.clip(np.floor(scores + bins / 2).astype(int), 0, bins - 1)
            some = np.bincount(place, minlength=bins) + 0.0
            both.append(some + noise * rng.normal(size=bins))
        edges, strangers = both
        area, error = auc_of_ranges(edges, strangers, noise)
        areas.append(area)
        errors.append(error)
    # Scores of equal spread: Hanley and McNeil's formula is for exponential ones, near enough.
    assert np.std(areas) == pytest.approx(np.mean(errors), rel=0.2)


def test_noise_alone_makes_the_error_larger() -> None:
    edges, others = (counts(some) for some in drawn(np.random.default_rng(2), 1.0))
    errors = [auc_of_ranges(edges, others, noise)[1] for noise in (0.0, 1.0, 5.0)]
    assert errors == sorted(errors)
    assert errors[0] < errors[-1]


@pytest.mark.parametrize("empty", [0.0, -3.0, 0.01])
def test_nobody_to_judge_by(empty: float) -> None:
    some = counts(np.zeros(10))
    nothing = np.full(BINS, empty / BINS)
    assert auc_of_ranges(nothing, some, 1.0) == (0.5, 1.0)
    assert auc_of_ranges(some, nothing, 1.0) == (0.5, 1.0)
    assert choose(np.full((3, 2, BINS), empty / BINS), 1.0) == 0


def test_ranges_cover_everything() -> None:
    scores = np.array([-1e9, -REACH, -1e-9, 0.0, REACH - 1e-9, REACH, 1e9])
    assert_array_equal(ranges(scores, BINS), [0, 0, BINS // 2 - 1, BINS // 2, *[BINS - 1] * 3])
    fine = np.linspace(-REACH, REACH, 5000, endpoint=False)
    assert (np.diff(ranges(fine, BINS)) >= 0).all()
    assert np.ptp(np.bincount(ranges(fine, BINS))) <= 1


@given(st.integers(0, 10_000), st.floats(0, 6), st.integers(1, 60))
def test_no_other_than_the_best_and_only_if_it_is_better_by_an_error(
    seed: int, noise: float, many: int
) -> None:
    rng = np.random.default_rng(seed)
    counts = table([drawn(rng, rng.uniform(-0.5, 1.5), many) for _ in range(3)])
    counts += noise * rng.normal(size=counts.shape)
    areas = [auc_of_ranges(edges, others, noise) for others, edges in counts]
    chosen = choose(counts, noise)
    if chosen:
        assert areas[chosen][0] == max(area for area, _ in areas)
        assert areas[chosen][0] - areas[0][0] > areas[chosen][1]
    else:
        best = int(np.argmax([area for area, _ in areas]))
        assert best == 0 or areas[best][0] - areas[0][0] <= areas[best][1]


def test_equals_change_nothing() -> None:
    same = drawn(np.random.default_rng(3), 1.0)
    assert choose(table([same] * 3)) == 0


@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_a_worse_candidate_is_hardly_ever_chosen(noise: float) -> None:
    """Worse by 0.08 where an error is about 0.03: not once in 200; a better one nearly always."""
    rng = np.random.default_rng(4)
    worse = better = 0
    for _ in range(200):
        good, bad = drawn(rng, 1.2), drawn(rng, 0.8)
        hiss = noise * rng.normal(size=(2, 3, 2, BINS))
        worse += choose(table([good, bad, bad]) + hiss[0], noise) != 0
        better += choose(table([bad, bad, good]) + hiss[1], noise) == 2
    assert worse <= 4
    assert better >= 100
