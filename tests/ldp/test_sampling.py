"""Drawing without replacement: every set by every draw, and the number of coordinates."""

from collections import Counter
from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from lumos.ldp.multibit import distinct_columns, draw_bounds, sampled_features


@pytest.mark.parametrize(("width", "sampled"), [(1, 1), (4, 1), (5, 2), (5, 3), (4, 4)])
def test_every_set_has_as_many_draws(width: int, sampled: int) -> None:
    bounds = draw_bounds(width, sampled)
    draws = np.array(list(product(*(range(bound) for bound in bounds))))
    sets = Counter(tuple(sorted(row)) for row in distinct_columns(draws, width).tolist())
    assert set(sets) == set(combinations(range(width), sampled))
    assert set(sets.values()) == {len(draws) // comb(width, sampled)}


@pytest.mark.parametrize(
    ("epsilon", "width", "expected"),
    [(0.1, 5, 1), (2.0, 4714, 1), (2.18, 9, 1), (4.36, 9, 2), (10.0, 9, 4), (1e9, 9, 9), (1, 1, 1)],
)
def test_number_of_features(epsilon: float, width: int, expected: int) -> None:
    assert sampled_features(epsilon, width) == expected
