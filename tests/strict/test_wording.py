"""Figures and sentences that the tables of both tasks share."""

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.strict.classifying import schedule_of

from lumos.strict.guarantees import shortcuts, up

ROUNDING = 1e-8
"""Share of a number that is taken for an error of floating point."""


@given(st.floats(1e-9, 1e9))
@example(8.0)
@example(10.000001)
@example(9.991)
@example(999.1)
@example(0.1 + 0.2)
@example(1e-5)
def test_numbers_are_rounded_up(number: float) -> None:
    printed, exact = Fraction(up(number)), Fraction(number)
    assert printed >= exact * Fraction(1 - ROUNDING)
    assert printed <= exact * Fraction(1.01 + ROUNDING)  # three digits


@given(st.integers(100, 999), st.integers(-8, 8))
def test_numbers_of_three_digits_stay(digits: int, power: int) -> None:
    number = float(f"{digits}e{power}")
    assert math.isclose(float(up(number)), number, rel_tol=1e-12)
    assert up(0) == "0"


@pytest.mark.parametrize(
    ("settings", "simulated"),
    [
        ({}, "sums were computed in the clear and randomness comes from the run seed."),
        ({"aggregate": "secure"}, "simulation: randomness comes from the run seed."),
        ({"randomness": "system"}, "simulation: sums were computed in the clear."),
        ({"aggregate": "secure", "randomness": "system"}, None),
    ],
)
def test_a_simulation_says_what_real_devices_must_not_do(
    settings: dict[str, Any], simulated: str | None
) -> None:
    sentences = shortcuts(schedule_of(**settings))
    assert len(sentences) == (simulated is not None)
    assert all(str(simulated) in sentence for sentence in sentences)
