"""Sums that honest devices cannot add up to are left out, and the run says so."""

from typing import Any

import numpy as np
import pytest
from tests.strict.classifying import schedule_of
from tests.strict.linking import schedule
from tests.strict.strictly import ALL_TAKE_PART, QUICK, small

from lumos import load_run, train
from lumos.runs.run import Run
from lumos.strict.classify.stages import CLASSIFY_STAGES
from lumos.strict.stages import Stage
from lumos.strict.trainer import StrictTrainer

SETTINGS: dict[str, dict[str, Any]] = {
    "classify": {
        **QUICK,
        **ALL_TAKE_PART,
        "tree_network": True,
        "scaling": "standard",
        "epochs": 14,
    },
    "link": {"profile": "strict", "task": "link", "scaling": "standard"},
}

pytestmark = pytest.mark.usefixtures("short")


def lied_to(name: str, task: str, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Run:
    """Return a run in which one device adds a large number to every sum of a stage."""
    original = StrictTrainer._sum

    def lying(self: StrictTrainer, stage: Stage, step: int, randomness: int) -> Any:
        total = yield from original(self, stage, step, randomness)
        if stage.name == name:
            total = total.copy()
            total[0] += 1e9
        return total

    with monkeypatch.context() as patch:
        patch.setattr(StrictTrainer, "_sum", lying)
        return train(small(30), **SETTINGS[task], **settings)


@pytest.mark.parametrize(
    ("name", "task"),
    [(stage.name, "classify") for stage in CLASSIFY_STAGES]
    + [(kind.name, "link") for kind in schedule().kinds],
)
def test_each_stage_can_be_left_out(
    name: str, task: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    run = lied_to(name, task, monkeypatch, out=tmp_path / "run", shards=2)
    warned = [line for line in run.warnings if repr(name) in line]
    assert len(warned) == 1
    assert "left out" in warned[0]
    assert int(warned[0].split()[0]) >= (2 if name == "encoder" else 1)
    arrays = [*run.model.weights.values(), run.model.embeddings]
    numbers = [array for array in arrays if array is not None and array.dtype.kind == "f"]
    assert numbers
    assert all(np.isfinite(array).all() for array in numbers)
    assert all(0 <= value <= 1 for key, value in run.model.estimates.items() if "error" not in key)
    if name == "selection":
        assert run.model.choice == "own"
        assert not run.model.estimates
    assert warned[0] in load_run(tmp_path / "run").warnings


def test_totals_at_the_bounds_pass_with_noise_and_a_larger_one_does_not() -> None:
    """All devices at the largest count: one in 10^9 such sums may be refused, by its noise."""
    made = schedule_of(devices=2000, training=1000, validation=500)
    random = np.random.default_rng(0)
    for name, adding in (("selection", 500), ("counts", 1000), ("agreement", 500)):
        stage = made[name]
        most, noise = adding * stage.clip, stage.spread()
        assert stage.adding == adding
        for edge in (0.0, most):
            drawn = edge + noise * random.standard_normal((20_000, 5))
            assert all(stage.possible(total, 0) for total in drawn)
        assert not stage.possible(np.array([0.0, most + 8 * noise]), 0)
        assert not stage.possible(np.array([-8 * noise, most]), 0)
    assert made["encoder"].possible(np.full(4, -999 * made["encoder"].clip), 0)
