"""Numbers cut into classes, compared with quantiles by brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos.graph.labels import binned

numbers = st.lists(st.integers(-20, 20).map(lambda n: n / 2), min_size=2).filter(
    lambda values: len(set(values)) > 1
)


@given(numbers, st.integers(2, 8))
def test_classes_are_intervals_in_order(values: list[float], bins: int) -> None:
    index, classes = binned(np.array(values), bins)
    assert 2 <= len(classes) <= bins
    assert set(index.tolist()) == set(range(len(classes)))
    assert len(set(classes)) == len(classes)
    for (one, a), (other, b) in combinations(zip(values, index, strict=True), 2):
        if one < other:
            assert a <= b
        elif one == other:
            assert a == b


@given(st.integers(2, 8), st.integers(1, 9))
def test_different_values_fill_the_classes_evenly(bins: int, each: int) -> None:
    values = np.random.default_rng(each).permutation(bins * each).astype(float)
    index, classes = binned(values, bins)
    assert len(classes) == bins
    assert np.bincount(index).tolist() == [each] * bins


@given(numbers)
def test_the_border_in_the_middle_is_the_best_there_is(values: list[float]) -> None:
    ordered = sorted(set(values))
    if len(ordered) == 2:
        return
    index, _ = binned(np.array(values), 2)
    wanted = min(abs(sum(v < border for v in values) - len(values) / 2) for border in ordered[1:])
    assert abs(np.sum(index == 0) - len(values) / 2) == wanted


def test_names_are_ranges_and_hide_the_extremes() -> None:
    index, classes = binned(np.array([3.0, 1e9, 5, 4, 7, 6]), 3)
    assert classes == ("< 5", "5 to < 7", "≥ 7")
    assert index.tolist() == [0, 2, 1, 0, 2, 1]
    assert binned(np.array([0.1, 0.2, 0.3, 0.4]), 2)[1] == ("< 0.3", "≥ 0.3")


def test_few_values_are_a_class_each() -> None:
    index, classes = binned(np.array([0.5, 1.0, 1.5, 0.5]), 3)
    assert (index.tolist(), classes) == ([0, 1, 2, 0], ("0.5", "1", "1.5"))


def test_names_that_would_coincide_are_longer() -> None:
    values = np.array([1.0000001, 1.0000002, 1.0000003])
    assert len(set(binned(values, 3)[1])) == 3


@pytest.mark.parametrize("zeros", [10, 50, 90])
def test_a_heap_of_equal_values_stays_together(zeros: int) -> None:
    values = np.array([0.0] * zeros + [float(value) for value in range(1, 101 - zeros)])
    index, classes = binned(values, 4)
    assert len(classes) >= 2
    assert len(set(index[:zeros].tolist())) == 1
