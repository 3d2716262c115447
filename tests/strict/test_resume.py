"""Strict runs that are interrupted, in every stage, go on as if nothing had happened."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runs.running import listening
from tests.strict.strictly import ALL_TAKE_PART, identical, run_with_wire, small, strict

from lumos.runs.run import Run
from lumos.training.trainer import EpochEvent

pytestmark = pytest.mark.usefixtures("short")

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {"epochs": 9},
    "trees": {"tree_network": True, "propagated_labels": 1, "epochs": 12},
    "labels": {"propagated_labels": 0, "label_epsilon": 4.0, "epochs": 6},
    "exact": {"protect": "none", "propagated_labels": 1, "shards": 3, "epochs": 7},
    "masked": {"aggregate": "secure", "shards": 2, "propagated_labels": 3, "epochs": 9},
    "digits": {"mechanism": "digits", "control": True, "epochs": 8},
    "all devices": {**ALL_TAKE_PART, "shards": 2},
}
STAGES = {
    "default": [1, 2, 3, 4, 5, 6, 7, 8, 9],
    "trees": [6, 7, 9, 10, 11, 12],
    "labels": [3, 4, 5, 6],
    "exact": [1, 3, 5, 6],
    "masked": [4, 6, 9],
    "digits": [4, 6, 8],
    "all devices": [2, 3, 4, 5, 6, 7, 8, 9],
}
"""Epochs after which a run is interrupted: around every change of stage."""


class Pulled(KeyboardInterrupt):
    """Somebody pulled the plug."""


def graph_of(name: str) -> Any:
    return small(30, 14) if name == "digits" else small(30)


@pytest.fixture(scope="module")
def uninterrupted(short: Any) -> dict[str, Run]:
    every = {"checkpoint_every": 1}
    return {name: strict(graph_of(name), **SETTINGS[name], **every) for name in SETTINGS}


@pytest.mark.parametrize("name", STAGES)
def test_an_interrupted_run_goes_on_exactly(
    name: str, uninterrupted: dict[str, Run], tmp_path: Path, ledger_differences: Any
) -> None:
    """Interrupted, gone on with, and interrupted again, after each of these epochs."""
    settings = {**SETTINGS[name], "checkpoint_every": 1, "out": tmp_path / "run"}
    variants = 1 + ("control" in settings)

    def interrupted_after(epoch: int) -> Callable[[EpochEvent], None]:
        def interrupt(event: EpochEvent) -> None:
            if event.epoch == epoch:
                raise Pulled

        return interrupt

    graph = graph_of(name)
    for number, epoch in enumerate(STAGES[name]):
        with pytest.raises(Pulled), listening() as wire:
            strict(graph, on_epoch=interrupted_after(epoch), resume=number > 0, **settings)
        assert len(wire.of("strict/symbol")) <= variants  # repeated, none twice
    resumed, wire = run_with_wire(graph, resume=True, **settings)
    whole = uninterrupted[name]
    identical(whole, resumed)
    assert ledger_differences(whole.ledger, resumed.ledger) == []
    assert whole.ledger.edge_epsilon == resumed.ledger.edge_epsilon
    assert whole.cost.per_epoch == resumed.cost.per_epoch
    assert len(wire.of("strict/symbol")) <= variants
