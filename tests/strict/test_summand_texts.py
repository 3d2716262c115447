"""Sentences on what bounds the summand of a device that lies."""

import json
import math
import re
from pathlib import Path

import pytest
from reproduce.liars_tables import worst
from tests.strict.classifying import schedule_of
from tests.strict.linking import schedule as link_schedule

from lumos.strict.guarantees import MEASURED_LIARS, liars_measured, summands

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "liars.json"


SCHEDULES = {
    "classify": schedule_of(devices=2000, training=1000, validation=500, classes=6, proofs=True),
    "link": link_schedule(2000, proofs=True),
}


@pytest.mark.parametrize("task", SCHEDULES)
def test_the_bound_of_every_stage_is_named_and_not_too_small(task: str) -> None:
    schedule = SCHEDULES[task]
    text = summands(schedule, 600)
    named = {name: float(clips) for name, clips in re.findall(r"([a-z_]+) ([\d.]+)[,;]", text)}
    for stage, step in schedule.sums:
        width = stage.width(600)
        assert stage.proved_bound(step, width) <= named[stage.name] * stage.clip
        assert stage.proved_bound(0, width) > 0.2 * named[stage.name] * stage.clip
    assert text.endswith(liars_measured())


def test_runs_without_a_bound_say_so() -> None:
    assert "one that lies can ruin the run" in summands(schedule_of(), 30)
    assert "nothing bounds" in summands(schedule_of(protect="none"), 30)


def test_a_bound_above_what_all_devices_add_together_is_called_too_loose() -> None:
    few = schedule_of(devices=60, training=30, validation=15, classes=6, proofs=True)
    text = summands(few, 600)
    clips = max(
        stage.proved_bound(step, stage.width(600)) / stage.clip
        for stage, step in few.sums
        if stage.name == "encoder"
    )
    assert clips > 60
    assert "With 60 devices this is too loose to help for `encoder`" in text
    many = schedule_of(devices=2000, training=1000, validation=500, classes=6, proofs=True)
    assert "too loose" not in summands(many, 600)


def test_measured_points_are_those_of_the_results() -> None:
    """`python benchmarks/liars.py` writes them."""
    found = json.loads(RESULTS.read_text("utf-8"))["liars"]
    for graph, (devices, lost) in MEASURED_LIARS.items():
        assert found[graph]["devices"] == devices
        for liars, points in lost.items():
            assert math.isclose(points, worst(found[graph], str(liars)), abs_tol=0.05001)
