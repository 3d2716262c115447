"""Whether a noisy series moved."""

import math

import numpy as np
import pytest

from lumos.report.noisy_course import movement, with_error


def test_noise_is_estimated_and_a_course_seen() -> None:
    noise = np.random.default_rng(0).normal(0, 0.5, 3000)
    still = movement((2 + noise).tolist())
    assert still.noise == pytest.approx(0.5, rel=0.1)
    assert still.error == pytest.approx(0.5 / math.sqrt(1000), rel=0.1)
    assert not still.visible
    falling = movement((2 - np.linspace(0, 0.3, 3000) + noise).tolist())
    assert falling.noise == pytest.approx(0.5, rel=0.1)
    assert falling.last - falling.first == pytest.approx(-0.2, abs=0.06)
    assert falling.visible


def test_noise_alone_is_rarely_called_a_course() -> None:
    """Two standard deviations: about one series in twenty."""
    generator = np.random.default_rng(1)
    seen = [movement(generator.normal(0, 1, 40).tolist()).visible for _ in range(2000)]
    assert 0.02 < np.mean(seen) < 0.09


def test_gaps_and_few_values() -> None:
    assert not movement([None, math.nan]).visible
    assert not movement([1.0]).visible
    assert movement([None, 3.0, 2.0, 1.0, None]).first == 3.0
    assert movement([3.0, 2.0, 1.0, 0.5]).visible is True


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [(1.234, 0.36, "1.23 ± 0.36"), (0.3, 0.0099, "0.3000 ± 0.0099"), (12.3, 4.1, "12.3 ± 4.1"),
     (0.5, 0.0, "0.500 ± 0.000")],
)  # fmt: skip
def test_errors_have_two_digits(value: float, error: float, words: str) -> None:
    assert with_error(value, error) == words
