"""Scales hold their values, and ticks are round numbers."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos.report.scale import Scale, fit_scale, format_tick


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.booleans())
def test_scales_hold_their_values(values: list[float], from_zero: bool) -> None:
    scale = fit_scale(values, 10, 500, from_zero=from_zero)
    dust = 1e-6 * (scale.high - scale.low)
    assert scale.low <= min(values) + dust
    assert scale.high >= max(values) - dust
    assert (scale(scale.low), scale(scale.high)) == (10, 500)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 12
    assert all(scale.low - dust <= tick <= scale.high + dust for tick in ticks)
    if from_zero:
        assert scale.low <= 0 <= scale.high


def test_logarithmic_scales_space_out_small_values() -> None:
    scale = Scale(0, 1000, 0, 500, logarithmic=True)
    assert scale(0) == 0
    assert scale(1000) == pytest.approx(500)
    assert scale(9) == pytest.approx(500 * np.log(10) / np.log(1001))
    ticks = scale.ticks()
    assert ticks[0] == 0
    assert all(scale(b) - scale(a) > 500 / 11 for a, b in pairwise(ticks))


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0"), (-0.0, "0"), (2.5, "2.5"), (-1, "−1"), (12345, "12,345"), (0.0001, "0.0001")],
)
def test_ticks_as_people_write_them(number: float, words: str) -> None:
    assert format_tick(number) == words
