"""Random schedules of kills: every run ends, and nobody is left out who was not away for long."""

from typing import Any

import pytest
from tests.deploy.schedules import Schedule, play

from lumos.graph.parts import PartsFolder
from lumos.training.config import Config

PAPER: dict[str, Any] = {
    "profile": "paper",
    "balancer": "greedy",
    "compare": "secure",
    "aggregate": "secure",
}
SETTINGS = {
    "classify": Config.asked(aggregate="secure", encoder_epochs=2, propagated_labels=1, epochs=8),
    "link": Config.asked(task="link", aggregate="secure", random_marks=4),
    "trees": Config.asked(**PAPER, epochs=1),
    "paper": Config.asked(**PAPER, epochs=3),
}
PACKETS = {"classify": 1600, "link": 12700, "trees": 660, "paper": 3100}


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        # A neighbour that is in a later phase is restarted while the device needs its envelopes.
        ("classify", 10),
        ("classify", 16),
        ("classify", 55),
        # A device is restarted after its last phase.
        ("classify", 74),
        # A coordinator, and then a device, are restarted in a phase with sessions.
        ("trees", 4),
        # Some devices have opened the sum of a phase, and others are restarted.
        ("link", 3),
        pytest.param("link", 4, marks=pytest.mark.long),
        *(("trees", seed) for seed in range(10, 14)),
        *(pytest.param("trees", seed, marks=pytest.mark.long) for seed in range(14, 30)),
        *(("paper", seed) for seed in range(3)),
        *(pytest.param("paper", seed, marks=pytest.mark.long) for seed in range(3, 30)),
    ],
)
def test_a_run_with_kills_ends(
    twelve: PartsFolder, few_words_parts: PartsFolder, kind: str, seed: int
) -> None:
    schedule = Schedule(seed, PACKETS[kind], lost=seed % 2 == 1)
    parts = few_words_parts if kind == "link" else twelve
    _, wrong = play(parts, SETTINGS[kind], schedule)
    assert not wrong, (schedule.kills, wrong)
