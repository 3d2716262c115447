"""Runs of every kind to make pages of, and what the tests of this folder share."""

from pathlib import Path
from typing import Any

import pytest
from tests.shared_runs import SharedFolders

PAPER: dict[str, Any] = {"profile": "paper", "compare": "ideal", "epochs": 4}
KINDS: dict[str, dict[str, Any]] = {
    "strict": {"control": True, "encoder_epochs": 3, "epochs": 66},
    "strict alone": {"floor": False, "encoder_epochs": 2, "epochs": 63, "protect": "none"},
    "paper": {**PAPER, "balancer": "greedy", "control": True},
    "link": {**PAPER, "task": "link", "backbone": "gat", "iterations": 5, "floor": False},
    "strict link": {"task": "link", "control": True},
    "star": {**PAPER, "virtual_nodes": False, "balancer": "none", "epsilon": float("inf")},
}


@pytest.fixture(scope="session")
def runs(shared: SharedFolders) -> dict[str, Path]:
    """By kind, the folder of a finished run on sixty devices."""
    return {
        kind: shared.trained(kind.replace(" ", "-"), "demo:60", seed=3, **settings)
        for kind, settings in KINDS.items()
    }


@pytest.fixture(params=sorted(KINDS))
def run(request: pytest.FixtureRequest, runs: dict[str, Path]) -> Path:
    """The folder of a run, of each kind in turn."""
    return runs[request.param]
