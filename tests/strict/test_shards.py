"""However devices are divided into shards, a run is the same bit by bit."""

from typing import Any

import pytest
from tests.narrow import present
from tests.runs.running import Wire
from tests.strict.strictly import (
    ALL_TAKE_PART,
    identical,
    run_with_wire,
    small,
    sums,
    the_same_randomness,
)

from lumos.runs.run import Run

pytestmark = pytest.mark.usefixtures("short")

DEVICES = 14
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "without propagated labels": {"propagated_labels": 0, "epochs": 7},
    "three propagated labels": {"propagated_labels": 3, "propagated_epsilon": 2.0},
    "label epsilon": {"label_epsilon": 4.0},
    "trees": {"tree_network": True, "epochs": 13},
    "attention": {"tree_network": True, "epochs": 13, "backbone": "gat", "propagated_labels": 1},
    "digits": {"mechanism": "digits", "graph": small(DEVICES, 14)},
    "signed": {"graph": small(DEVICES, signed=True)},
    "sizes": {"scaling": "size"},
    "words": {"graph": "demo:14"},
    "exact": {"protect": "none"},
    "all devices": ALL_TAKE_PART,
}


def watched(**settings: Any) -> tuple[Run, Wire, list[tuple[int, bytes]]]:
    """A run, its messages between devices, and the bytes of every sum."""
    graph = settings.pop("graph", None) or small(DEVICES)
    with sums() as opened:
        run, wire = run_with_wire(graph, **settings)
    return run, wire, [(step, total.tobytes()) for step, total in opened]


IDEAL_ONLY = {"true labels", "attention", "exact"}
"""Their sums are added up like all others."""
SHORT = ("default", "trees", "words")
LONG = {"three propagated labels", "attention", "sizes", "true labels"}


@pytest.mark.parametrize(
    ("name", "aggregate"),
    [
        pytest.param(name, "ideal", marks=pytest.mark.long if name in LONG else ())
        for name in SETTINGS
    ]
    + [
        pytest.param(name, "secure", marks=() if name in SHORT else pytest.mark.long)
        for name in SETTINGS
        if name not in IDEAL_ONLY
    ],
)
def test_shards_change_nothing(name: str, aggregate: str, ledger_differences: Any) -> None:
    settings = {**SETTINGS[name], "aggregate": aggregate}
    one, wire, totals = watched(**settings)
    assert len(totals) >= one.config.train.epochs + 2
    for shards in (3, DEVICES) if name == "default" else (DEVICES,):
        other, wire_there, totals_there = watched(shards=shards, **settings)
        identical(one, other)
        assert totals == totals_there
        for topic in ("strict/symbol", "strict/opinion"):
            assert wire.of(topic) == wire_there.of(topic)
        assert ledger_differences(one.ledger, other.ledger) == []


@pytest.mark.parametrize("name", ["default", "digits", "signed", "sizes", "words", "trees"])
def test_masked_sums_without_noise_are_the_ideal_ones(name: str) -> None:
    settings = {**SETTINGS[name], "protect": "none"}
    with the_same_randomness():  # only the way of adding up differs
        ideal, _, totals = watched(**settings)
        masked, _, masked_totals = watched(aggregate="secure", shards=2, **settings)
    assert totals == masked_totals
    assert present(ideal.model.logits).tobytes() == present(masked.model.logits).tobytes()
