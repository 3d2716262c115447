"""What a run knows of its own accuracy: drawn where it tells something."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.report.svg_reading import texts

import lumos
from lumos.report.page import Figure, Text
from lumos.report.self_estimates import estimates


@pytest.mark.parametrize("error", [0.033, 0.21])
def test_the_vote_is_drawn_where_it_tells_something(runs: dict[str, Path], error: float) -> None:
    run = lumos.load_run(runs["strict"])
    found = {"voted_accuracy": 0.96, "voted_accuracy_error": error}
    found |= {"own_voted_accuracy": 0.73, "own_voted_accuracy_error": 0.03}
    model = dataclasses.replace(run.model, estimates=found)
    scores: Any = {**run.scores, "run": {**run.metrics, "val_accuracy": 0.95}}
    (block,) = estimates(dataclasses.replace(run, model=model, scores=scores))
    if error > 0.2:
        assert isinstance(block, Text)
        assert "a standard error of 21 points" in block.text
        return
    assert isinstance(block, Figure)
    drawn = texts(block.svg)
    assert {"96.0 ± 3.3 %", "95.0 %", "73.0 ± 3.0 %"} <= set(drawn)


def test_profiles_without_estimates_have_none(runs: dict[str, Path]) -> None:
    assert estimates(lumos.load_run(runs["paper"])) == []
