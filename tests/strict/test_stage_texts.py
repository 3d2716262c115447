"""The stages of a run in words, with the widths of sums that the ledger counted."""

from typing import Any

import pytest

import lumos
from lumos.report.run_scores import stages_of

FEW = {"encoder_epochs": 2, "epochs": 10, "seed": 3}


@pytest.mark.parametrize(
    "settings",
    [
        FEW,
        {**FEW, "tree_network": True, "epochs": 60},
        {"task": "link", "epochs": 7},
    ],
)
def test_all_numbers_of_all_sums_were_sent(settings: dict[str, Any]) -> None:
    """A sum has 7 bytes a number; stages follow each other without a gap."""
    run = lumos.train("demo:60", **settings)
    stages = stages_of(run)
    numbers = sum((stage.last - stage.first + 1) * stage.numbers for stage in stages)
    assert run.ledger.topics["aggregate/sum/ideal"].bytes == 7 * 60 * numbers
    within = [stage for stage in stages if stage.last > 0]
    assert within[0].first == 1
    assert [stage.first for stage in within[1:]] == [stage.last + 1 for stage in within[:-1]]
    assert all(stage.learns for stage in stages)
    for stage in within:
        losses = [event.loss for event in run.history[stage.first - 1 : stage.last]]
        assert any(loss is not None for loss in losses) == bool(stage.loss), stage.name
