"""Means over seeds, against their definitions."""

import math

import numpy as np
import pytest

from lumos.evaluation.result import mean_of, paired_difference


def test_mean_deviation_and_error() -> None:
    score = mean_of({4: 0.5, 5: 0.7, 6: 0.9})
    assert score.mean == pytest.approx(0.7)
    assert score.sd == pytest.approx(math.sqrt((0.04 + 0.0 + 0.04) / 2))
    assert score.se == pytest.approx(0.2 / math.sqrt(3))
    assert score.seeds == 3


def test_one_seed_has_no_deviation_and_none_has_no_mean() -> None:
    assert mean_of({0: 0.5}).as_json() == {"mean": 0.5, "sd": None, "se": None, "seeds": 1}
    assert mean_of({}).as_json() == {"mean": None, "sd": None, "se": None, "seeds": 0}


def test_differences_are_paired() -> None:
    """Scores that vary together: their difference varies much less than either."""
    randomness = np.random.default_rng(0)
    common, noise = randomness.normal(0.8, 0.1, 50), randomness.normal(0.02, 0.001, 50)
    one = dict(enumerate(common + noise))
    other = dict(enumerate(common))
    found = paired_difference(one, other)
    assert found.mean == pytest.approx(noise.mean())
    assert found.sd == pytest.approx(noise.std(ddof=1))
    assert mean_of(one).sd == pytest.approx(0.1, rel=0.3)


def test_only_seeds_that_both_have_count() -> None:
    found = paired_difference({0: 0.5, 1: 0.75, 2: 0.9}, {1: 0.5, 2: 0.65, 3: 0.1})
    assert found.mean == pytest.approx(0.25)
    assert found.seeds == 2
