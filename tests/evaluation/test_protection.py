"""The whole guarantee in one line: the weakest of each row, nothing left out."""

from typing import Any

import lumos
from lumos.evaluation.result import protection, protection_of

TABLE = [
    {"about": "label: this one or another", "training": "ε = 3, pure", "other": "not used"},
    {"about": "features: these or others", "training": "(8, 1e-05)", "other": "(9.5, 1e-05)"},
    {"about": "one edge: there or not", "training": "(17.8, 1e-05)", "other": "ε = 16, pure"},
    {"about": "one edge: this or another at one end", "training": "(28, 1e-05)", "other": "ε = 2"},
    {"about": "degree", "training": "no guarantee: many", "other": "no guarantee"},
    {"about": "membership: there", "training": "(1, 1e-05)", "other": "no guarantee"},
]


def test_the_weakest_guarantee_of_a_row_counts() -> None:
    assert protection(TABLE) == (
        "label: ε = 3, pure; features: (9.5, 1e-05); one edge: (17.8, 1e-05); "
        "degree, membership: no guarantee"
    )


def test_what_is_only_counted_is_said() -> None:
    counted = "no guarantee beyond their number: 34 bits at most in 16 answers"
    row = {"about": "features: these", "by sums": "(8, 1e-05)", "by answers": counted}
    assert protection([row]) == f"features: (8, 1e-05) and by answers, {counted}"
    assert protection([{"about": "label", "by sums": "not used"}]) == "label: not used"


def test_of_runs_and_baselines() -> None:
    strict = lumos.train("demo:60", encoder_epochs=2, epochs=47)
    assert protection_of(strict.summary()) == protection(strict.guarantees)
    assert protection(strict.guarantees).startswith("label: ε = 3, pure; features: (8, 1e-05); ")
    quick: dict[str, Any] = {"compare": "ideal", "iterations": 5, "floor": False, "epochs": 1}
    paper = lumos.train("demo:60", profile="paper", **quick)
    assert protection_of(paper.summary()) == (
        "no guarantee: other messages leave without protection; ε = 2 covers releases alone"
    )
    lpgnn = lumos.baseline("demo:60", system="lpgnn", epochs=1)
    assert protection_of(lpgnn.summary()) == (
        "label: ε = 1; features: ε = 2; edges: none, the server knows them"
    )
