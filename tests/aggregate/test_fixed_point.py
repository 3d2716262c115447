"""Numbers as words: exact, never wrapped, refused or clipped beyond the range."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos.aggregate import AggregateSettings, FixedPoint
from lumos.errors import InputError, UsageError


@pytest.mark.parametrize(
    ("limit", "bits", "total", "word"),
    [(1024, 32, 2000, 8), (8, 16, 2000, 4), (8, 16, 4096, 8), (1024, 32, 2**21 - 1, 8)],
)
def test_the_shortest_word_that_holds_every_sum(
    limit: float, bits: int, total: int, word: int
) -> None:
    fixed = FixedPoint.of(AggregateSettings(limit=limit, fraction_bits=bits), total)
    assert fixed.word == word
    largest = total * round(limit * 2**bits)
    for sign in (1, -1):  # everybody at the limit: the sum is read back as it is
        words = fixed.encode(np.array([sign * float(limit)]))
        summed = np.array([int(words[0]) * total % 2 ** (8 * word)], fixed.dtype)
        assert fixed.decode(summed)[0] == sign * largest / 2**bits


def test_too_many_devices_are_refused() -> None:
    with pytest.raises(UsageError, match="do not fit 64 bits"):
        FixedPoint.of(AggregateSettings(), 2**21)


@given(st.lists(st.floats(-1024, 1024), min_size=1, max_size=8))
def test_a_number_is_rounded_to_the_nearest_step(values: list[float]) -> None:
    fixed = FixedPoint.of(AggregateSettings(), 10)
    read = fixed.decode(fixed.encode(np.array(values)))
    assert np.abs(read - values).max() <= 2.0**-33


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("clip", [False, True])
def test_what_is_not_finite_is_refused(bad: float, clip: bool) -> None:
    fixed = FixedPoint.of(AggregateSettings(clip=clip), 10)
    with pytest.raises(InputError, match="not finite"):
        fixed.encode(np.array([1.0, bad, 2.0]))


def test_beyond_the_limit_is_refused_without_the_number_or_clipped() -> None:
    values = np.array([[0.5, -1024.25]])
    with pytest.raises(InputError) as refused:
        FixedPoint.of(AggregateSettings(), 10).encode(values)
    assert "24.25" not in str(refused.value)
    clipping = FixedPoint.of(AggregateSettings(clip=True), 10)
    assert clipping.decode(clipping.encode(values)).tolist() == [[0.5, -1024.0]]
    assert values[0, 1] == -1024.25  # the caller's array is left alone


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0.0},
        {"limit": float("inf")},
        {"fraction_bits": 53},
        {"corrupt": 1.0},
        {"dropped": -0.1},
        {"security_bits": 0},
        {"minimum": 1},
    ],
)
def test_settings_state_the_rule_that_was_broken(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        AggregateSettings(**wrong)
