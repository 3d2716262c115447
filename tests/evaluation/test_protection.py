"""The whole guarantee in one line: the weakest of each row, nothing left out."""

from typing import Any

import lumos
from lumos.evaluation.result import protection, protection_of

TABLE = [
    {"about": "label replaced", "training": "ε = 3, pure", "other": "not used"},
    {"about": "features replaced", "training": "(8, 1e-05)", "other": "(9.5, 1e-05)"},
    {"about": "edge added or removed", "training": "(17.8, 1e-05)", "other": "ε = 16, pure"},
    {"about": "edge replaced at one end", "training": "(28, 1e-05)", "other": "ε = 2"},
    {"about": "degree", "training": "no guarantee: many", "other": "no guarantee"},
    {"about": "device absent", "training": "(1, 1e-05)", "other": "no guarantee"},
]
NUMBERS = {"told_apart": 0.99, "weak": True, "against": "everyone"}


def test_the_weakest_guarantee_of_a_row_counts() -> None:
    assert protection([{**row, **NUMBERS} for row in TABLE]) == (
        "label replaced: ε = 3, pure; features replaced: (9.5, 1e-05); edge added or removed: "
        "(17.8, 1e-05); edge replaced at one end: (28, 1e-05); degree, device absent: no guarantee"
    )


def test_what_is_only_counted_is_said() -> None:
    counted = "no guarantee beyond their number: 34 bits at most in 16 answers"
    row = {"about": "features replaced", "by sums": "(8, 1e-05)", "by answers": counted}
    assert protection([row]) == f"features replaced: (8, 1e-05) and by answers, {counted}"
    label = {"about": "label replaced", "by sums": "not used"}
    assert protection([label]) == "label replaced: not used"


def test_of_runs_and_baselines() -> None:
    strict = lumos.train("demo:60", encoder_epochs=2, epochs=47)
    assert protection_of(strict.summary()) == protection(strict.guarantees)
    assert protection(strict.guarantees).startswith(
        "label replaced: ε = 3, pure; features replaced: (8, 1e-05); "
    )
    quick: dict[str, Any] = {"compare": "ideal", "iterations": 5, "floor": False, "epochs": 1}
    paper = lumos.train("demo:60", profile="paper", **quick)
    assert protection_of(paper.summary()) == (
        "no guarantee: other messages leave without protection; ε = 2 covers releases alone"
    )
    lpgnn = lumos.baseline("demo:60", system="lpgnn", epochs=1)
    assert protection_of(lpgnn.summary()) == (
        "label: ε = 3; features: ε = 8; edges: none, the server knows them"
    )
