"""What may be declared, and the public list of messages, its numbers written out."""

from typing import Any

import numpy as np
import pytest

from lumos.errors import BadValue, UsageError
from lumos.twoparty.lookup import Lookup, pad_bytes
from lumos.twoparty.score import LevelSpec, fitting_vectors, messages

FOUR = LevelSpec(thresholds=(10, 40, 90))


def lengths(*specs, first=True):
    return [message.length for message in messages(specs, first=first)]


def test_messages_as_documented():
    # opening | nonce + 24 points | 24 · 10 · 2 + check | 3 points | 2 · 128 + check | level
    assert lengths(FOUR) == [48, 16 + 768, 481, 96, 257, 1]
    assert lengths(FOUR, first=False) == [768, 481, 96, 257, 1]
    assert sum(lengths(FOUR)) == 1667
    assert [m.to_sender for m in messages([FOUR], first=True)] == [False, True] * 3
    two = LevelSpec(thresholds=(5,))
    assert lengths(two, FOUR, first=False) == [2 * 768, 2 * 480 + 1, 2 * 96, 128 + 256 + 1, 2]


@pytest.mark.parametrize(("levels", "outputs"), [(2, 1), (3, 2), (4, 2), (5, 3), (7, 3), (8, 3)])
def test_pads_fit_one_digest(levels, outputs):
    spec = LevelSpec(thresholds=tuple(range(1, levels)))
    assert spec.levels == levels
    assert spec.level_lookup == Lookup((4, 3, 3), outputs)
    largest = max(pad_bytes(spec.level_lookup, digit) for digit in range(3))
    assert largest == outputs * 128 // 8 <= 64
    assert pad_bytes(spec.coordinate_lookup, 0) == 2
    assert spec.digits == 27


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"width": 0}, "width must be an integer from 1"),
        ({"width": 24.0}, "width must be"),
        ({"bits": 5}, "bits must be an integer from 1 to 4"),
        ({"ring_bits": 13}, "ring_bits must be an integer from 2 to 12"),
        ({"thresholds": ()}, "number of thresholds must be an integer from 1 to 7"),
        ({"thresholds": tuple(range(8))}, "number of thresholds"),
        ({"thresholds": (3, 3)}, "thresholds must increase"),
        ({"thresholds": (4, 3)}, "thresholds must increase"),
        ({"thresholds": (512,)}, "threshold must be an integer from -512 to 511"),
        ({"thresholds": (-513,)}, "threshold must be"),
        ({"thresholds": (0.5,)}, "threshold must be"),
        ({"ring_bits": 11, "thresholds": (0, 1, 2, 3)}, "pads of more than 64 bytes"),
        ({"ring_bits": 12, "thresholds": (0, 1, 2, 3)}, "pads of more than 64 bytes"),
    ],
)
def test_specs_that_are_refused(wrong, text):
    with pytest.raises(UsageError, match=text):
        LevelSpec(**{"thresholds": (0,), **wrong})


def test_the_code_covers_every_field():
    base: dict[str, Any] = {"width": 5, "bits": 3, "ring_bits": 8, "thresholds": (1, 2)}
    changes: list[dict[str, Any]] = [
        {},
        {"width": 6},
        {"bits": 2},
        {"ring_bits": 9},
        {"thresholds": (1, 3)},
        {"thresholds": (1,)},
        {"thresholds": (1, 2, 3)},
    ]
    codes = {LevelSpec(**{**base, **change}).code for change in changes}
    assert len(codes) == len(changes)
    assert {len(code) for code in codes} == {16}
    assert LevelSpec(**base).code == LevelSpec(**base).code


SMALL = LevelSpec(width=3, bits=3, ring_bits=6, thresholds=(0,))


@pytest.mark.parametrize("vector", [[3, 3, 3], [-4, 3, 2], [0, 0, 0], np.array([1, 2, -3], "i1")])
def test_vectors_that_fit(vector):
    assert fitting_vectors(vector, SMALL).tolist() == list(vector)


@pytest.mark.parametrize(
    ("vector", "text"),
    [
        ([-4, 4, 0], "does not fit the 3 bits"),
        ([-5, 0, 0], "does not fit the 3 bits"),
        ([-4, -4, 0], "squared norm of a vector is above 31"),
        ([1, 2], "does not have the 3 coordinates"),
        ([1, 2, 3, 0], "does not have the 3 coordinates"),
        (1, "does not have the 3 coordinates"),
        ([1.0, 2.0, 3.0], "not an integer"),
        ([True, False, True], "not an integer"),
        ("abc", "not an integer"),
        (None, "not an integer"),
        ([1, 2, 10**30], "not an integer"),
        ([[1, 2, 3], [-4, -4, 1]], "squared norm"),
    ],
)
def test_vectors_that_do_not(vector, text):
    with pytest.raises(BadValue, match=text) as caught:
        fitting_vectors(vector, SMALL)
    assert "-4" not in str(caught.value)


def test_the_largest_norm_cannot_wrap_around():
    # The longest vectors that are allowed, with themselves and against themselves.
    for ring_bits in range(2, 13):
        spec = LevelSpec(width=200, bits=4, ring_bits=ring_bits, thresholds=(0,))
        assert spec.largest_norm < 2 ** (ring_bits - 1)
        ones = np.zeros(200, np.int64)
        ones[: min(200, spec.largest_norm)] = 1
        fitting_vectors(ones, spec)
        if spec.largest_norm < 200:
            ones[spec.largest_norm] = 1
            with pytest.raises(BadValue):
                fitting_vectors(ones, spec)
