"""Scores: their standard deviations, against simulated draws, and what the summary concludes."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.run_files import changed, page

import lumos
from lumos.report.run_page import verdict
from lumos.report.run_scores import deviation

pytestmark = pytest.mark.usefixtures("drawn_once")


def test_the_deviation_of_a_share(runs: dict[str, Path], tmp_path: Path) -> None:
    split = {"train": 1, "validation": 1, "test": 400}
    run = lumos.load_run(changed(runs["paper"], tmp_path / "run", split=split))
    draws = np.random.default_rng(1).binomial(400, 0.8, 100_000) / 400
    assert deviation(run, 0.8) == pytest.approx(draws.std(), rel=0.02)


def test_the_deviation_of_a_ranking(runs: dict[str, Path], tmp_path: Path) -> None:
    """Hanley and McNeil's formula is exact for exponential scores."""
    count, ratio = 60, 3.0
    split = {"train": 1, "validation": 1, "test": count}
    run = lumos.load_run(changed(runs["link"], tmp_path / "run", test_auc=0.75, split=split))
    randomness = np.random.default_rng(1)
    scores = []
    for _ in range(3000):
        good, bad = randomness.exponential(ratio, count), randomness.exponential(1.0, count)
        scores.append((good[:, None] > bad[None, :]).mean())
    assert np.mean(scores) == pytest.approx(ratio / (1 + ratio), abs=0.005)
    assert deviation(run, ratio / (1 + ratio)) == pytest.approx(np.std(scores), rel=0.06)


@pytest.mark.parametrize(
    ("run_score", "own", "control", "words"),
    [
        (0.90, 0.86, 0.86, "seem to have helped"),
        (
            0.901,
            0.86,
            0.90,
            "does not show that the releases helped. What both gain over the local model",
        ),
        (0.861, 0.86, 0.86, "does not show that the releases helped."),
        (0.80, 0.86, 0.86, "done harm"),
    ],
)
def test_verdicts(
    runs: dict[str, Path], tmp_path: Path, run_score: float, own: float, control: float, words: str
) -> None:
    many = {"train": 10_000, "validation": 5000, "test": 5000}
    scores: dict[str, Any] = {
        "test_accuracy": run_score,
        "own_test_accuracy": own,
        "control_test_accuracy": control,
    }
    run = lumos.load_run(changed(runs["paper"], tmp_path / "run", split=many, **scores))
    assert words in verdict(run)
    if words.endswith("helped."):
        assert verdict(run).endswith(words)
    few = dataclasses.replace(run, split_sizes=lumos.load_run(runs["paper"]).split_sizes)
    assert "does not show" in verdict(few)  # 15 test devices show nothing


def test_equal_scores_are_called_level(runs: dict[str, Path], tmp_path: Path) -> None:
    same: dict[str, Any] = {
        "test_accuracy": 0.8,
        "own_test_accuracy": 0.80001,
        "control_test_accuracy": 0.75,
    }
    text = page(changed(runs["paper"], tmp_path / "run", **same)).text()
    assert "This run is level with the local model and 5.00 points above the control." in text
