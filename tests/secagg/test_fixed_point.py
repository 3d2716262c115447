"""Numbers as words: exact, never wrapped, refused or clipped beyond the range."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos.errors import InputError, UsageError
from lumos.secagg import AggregateSettings, FixedPoint


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


@pytest.mark.parametrize("wire", range(1, 9))
@pytest.mark.parametrize("shape", [(3, 5), (4,), (0, 2), (2, 0)])
def test_numbers_travel_in_as_few_bytes_as_hold_every_sum(wire: int, shape: tuple[int]) -> None:
    """The ends of the range survive, also beneath carries that say nothing."""
    most = 2 ** (8 * wire - 1)
    fixed = FixedPoint.of(AggregateSettings(limit=most // 8, fraction_bits=0), 7)
    assert fixed.wire == wire
    assert fixed.word == (4 if wire <= 4 else 8)
    values = np.random.default_rng(0).integers(-most, most, shape, np.int64)
    values.ravel()[:2] = [-most, most - 1][: values.size]
    words = values.astype(fixed.dtype)
    packed = fixed.pack(words)
    assert packed.shape == (*shape[:-1], shape[-1] * wire)
    assert np.array_equal(fixed.unpack(packed), words)
    if wire < fixed.word:
        carried = words + np.array(5 << (8 * wire), fixed.dtype)
        assert np.array_equal(fixed.unpack(fixed.pack(carried)), words)


def test_the_limit_gives_way_where_there_are_very_many_devices() -> None:
    """Halved as often as sums need to fit 64 bits, down to the least."""
    settings = AggregateSettings(limit=2.0**18, least_limit=1024.0, fraction_bits=24)
    for total in (10, 2_000_000, 2_097_152, 10_000_000, 100_000_000, 536_870_911):
        fixed = FixedPoint.of(settings, total)
        fits = [k for k in range(10, 19) if total * 2 ** (k + 24) < 2**63]
        assert fixed.limit == 2.0 ** max(fits)
    with pytest.raises(UsageError, match="do not fit 64 bits"):
        FixedPoint.of(settings, 536_870_912)
    with pytest.raises(UsageError, match="do not fit 64 bits"):
        FixedPoint.of(AggregateSettings(limit=2.0**18, fraction_bits=24), 10_000_000)
