"""Standard deviations of scores, against simulated draws."""

from pathlib import Path

import numpy as np
import pytest
from tests.report.run_files import changed

import lumos
from lumos.report.metric import deviation


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
    coins = np.random.default_rng(1)
    scores = []
    for _ in range(3000):
        good, bad = coins.exponential(ratio, count), coins.exponential(1.0, count)
        scores.append((good[:, None] > bad[None, :]).mean())
    assert np.mean(scores) == pytest.approx(ratio / (1 + ratio), abs=0.005)
    assert deviation(run, ratio / (1 + ratio)) == pytest.approx(np.std(scores), rel=0.06)
