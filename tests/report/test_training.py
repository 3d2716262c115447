"""Training on the page: whether a noisy series moved, and what a run knows of its own accuracy."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lumos
from lumos.report.page import Figure, Text
from lumos.report.run_scores import Movement, estimates, with_error


def test_noise_is_estimated_and_a_course_seen() -> None:
    noise = np.random.default_rng(0).normal(0, 0.5, 3000)
    still = Movement((2 + noise).tolist())
    assert still.noise == pytest.approx(0.5, rel=0.1)
    assert still.error == pytest.approx(0.5 / math.sqrt(1000), rel=0.1)
    assert not still.visible
    falling = Movement((2 - np.linspace(0, 0.3, 3000) + noise).tolist())
    assert falling.noise == pytest.approx(0.5, rel=0.1)
    assert falling.last - falling.first == pytest.approx(-0.2, abs=0.06)
    assert falling.visible


def test_noise_alone_is_rarely_called_a_course() -> None:
    """Two standard deviations: about one series in twenty."""
    generator = np.random.default_rng(1)
    seen = [Movement(generator.normal(0, 1, 40).tolist()).visible for _ in range(2000)]
    assert 0.02 < np.mean(seen) < 0.09


def test_gaps_and_few_values() -> None:
    assert not Movement([None, math.nan]).visible
    assert not Movement([1.0]).visible
    assert Movement([None, 3.0, 2.0, 1.0, None]).first == 3.0
    assert Movement([3.0, 2.0, 1.0, 0.5]).visible is True


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [(1.234, 0.36, "1.23 ± 0.36"), (0.3, 0.0099, "0.3000 ± 0.0099"), (12.3, 4.1, "12.3 ± 4.1"),
     (0.5, 0.0, "0.500 ± 0.000")],
)  # fmt: skip
def test_errors_have_two_digits(value: float, error: float, words: str) -> None:
    assert with_error(value, error) == words


@pytest.mark.parametrize("error", [0.033, 0.21])
def test_the_selection_is_drawn_where_it_tells_something(
    runs: dict[str, Path], error: float
) -> None:
    run = lumos.load_run(runs["strict"])
    found = {"selected_accuracy": 0.96, "selected_accuracy_error": error}
    found |= {"own_selected_accuracy": 0.73, "own_selected_accuracy_error": 0.03}
    model = dataclasses.replace(run.model, estimates=found)
    scores: Any = {**run.scores, "run": {**run.metrics, "val_accuracy": 0.95}}
    (block,) = estimates(dataclasses.replace(run, model=model, scores=scores))
    if error > 0.2:
        assert isinstance(block, Text)
        assert "a standard error of 21 points" in block.text
        return
    assert isinstance(block, Figure)
    for words in ("96.0 ± 3.3 %", "95.0 %", "73.0 ± 3.0 %"):
        assert f">{words}</text>" in block.svg


def test_profiles_without_estimates_have_none(runs: dict[str, Path]) -> None:
    assert estimates(lumos.load_run(runs["paper"])) == []
