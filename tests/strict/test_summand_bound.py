"""The largest norm of an honest device's summand, stage by stage."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi
from tests.strict.classifying import schedule_of
from tests.strict.linking import schedule as link_schedule
from tests.strict.strictly import ALL_TAKE_PART, QUICK, small

from lumos import train
from lumos.device.randomness import PrivateRandomness, simulated_secrets
from lumos.strict.stages import SUMMAND_TAIL_SIGMAS, Schedule, Stage
from lumos.strict.trainer import StrictTrainer
from lumos.training.sums import RunSums

FEATURES = 30
EVERYBODY: dict[str, Any] = {**ALL_TAKE_PART}
SCHEDULES: dict[str, Schedule] = {
    "classify": schedule_of(scaling="standard", tree_network=True, **EVERYBODY),
    "link": link_schedule(scaling="standard"),
}


@pytest.mark.parametrize("width", [1, 2, 5, 36, 256, 3607, 18861, 113136])
def test_a_share_of_noise_is_longer_than_the_bound_allows_with_probability_2_to_the_minus_58(
    width: int,
) -> None:
    assert chi.sf(math.sqrt(width) + SUMMAND_TAIL_SIGMAS, width) < 2.0**-58


@pytest.mark.parametrize("task", SCHEDULES)
def test_the_bound_is_that_of_clipped_vector_and_share(task: str) -> None:
    schedule = SCHEDULES[task]
    for stage, step in schedule.sums:
        width, noise = stage.width(FEATURES), stage.noise(step)
        bound = stage.summand_bound(step, width)
        assert noise is not None
        assert bound > stage.clip + noise.share * (math.sqrt(width) + SUMMAND_TAIL_SIGMAS)
        assert bound < 1.0001 * (stage.clip + noise.share * (math.sqrt(width) + 9))
        largest = math.sqrt(width) * 2.0**-schedule.config.updates.fraction_bits
        assert bound >= stage.clip + largest  # both parts are rounded


def test_exact_sums_bound_counts_only() -> None:
    schedule = schedule_of(protect="none")
    bounds = {stage.name: stage.summand_bound(step, 10) for stage, step in schedule.sums}
    assert bounds["encoder"] == bounds["evidence_weights"] == math.inf
    assert bounds["counts"] == pytest.approx(1.0)
    assert bounds["selection"] == pytest.approx(math.sqrt(2))


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("task", ["classify", "link"])
def test_summands_of_real_vectors_are_within_the_bound(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All stages of a run, with shares of noise of its devices beside the vectors."""
    seen: dict[str, float] = {}
    original = RunSums.sum
    places: list[tuple[Stage, int]] = []

    def going(self: StrictTrainer, stage: Stage, step: int, randomness: int) -> Any:
        places.append((stage, step))
        return (yield from stage.sum(self, step, randomness))

    def adding(self: RunSums, update: Any, noise: Any, step: int, **more: Any) -> Any:
        vectors = self.rounded(update(True))
        stage, number = places[-1]
        hosted, width = vectors.shape
        shares = noise.shares(
            PrivateRandomness(simulated_secrets(7, np.arange(hosted))), hosted, width, step
        )
        norms = np.linalg.norm(vectors + self.rounded(shares), axis=1)
        share = norms.max() / stage.summand_bound(number, width)
        seen[stage.name] = max(share, seen.get(stage.name, 0.0))
        return (yield from original(self, update, noise, step, **more))

    monkeypatch.setattr(StrictTrainer, "_sum", going)
    monkeypatch.setattr(RunSums, "sum", adding)
    settings: dict[str, Any] = {
        "classify": {**QUICK, **ALL_TAKE_PART, "tree_network": True, "epochs": 14},
        "link": {"profile": "strict", "task": "link"},
    }
    train(small(30), scaling="standard", **settings[task])
    assert len(seen) >= 5
    assert 0.05 < max(seen.values()) <= 1.0
