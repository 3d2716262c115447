"""Runs of a federation over ranks: a program that several processes run at once.

python -m tests.ranks.battery FOLDER CASE=GRAPH …
"""

import sys
from pathlib import Path
from typing import Any

from lumos.ranks.world import joined
from lumos.runs.train import Hosting, train_rank

LINK: dict[str, Any] = {"task": "link"}
PAPER: dict[str, Any] = {"profile": "paper", "epochs": 3, "compare": "ideal"}

CASES: dict[str, dict[str, Any]] = {
    "classify": {},
    "control": {"control": True, "propagated_labels": 1},
    "link": LINK,
    "exact": {"protect": "none"},
    "greedy": {**PAPER, "balancer": "greedy"},
    "optimal": {**PAPER, "balancer": "optimal"},
    "mcmc": {**PAPER, "balancer": "mcmc", "iterations": 40},
    "paper link": {**PAPER, "balancer": "greedy", "task": "link"},
    "secure": {"aggregate": "secure"},
    "secure trees": {**PAPER, "balancer": "greedy", "compare": "secure", "workers": 1},
}
"""Settings by name."""
EXACT = frozenset(CASES) - {"greedy", "optimal", "mcmc", "paper link", "secure trees"}
"""Cases of the strict profile: bit by bit the same for any number of ranks."""
SEED = 3
GRAPH = "demo:60"


def out_of(folder: Path, case: str, graph: str) -> Path:
    """The run folder of a case on a graph."""
    return folder / "-".join([*case.split(), "of", Path(graph).name])


def main(folder: Path, asked: list[str]) -> None:
    """Run the cases one after the other in this rank."""
    with joined(60) as world:
        for words in asked:
            case, _, graph = words.partition("=")
            out = out_of(folder, case, graph)
            train_rank(graph, seed=SEED, hosting=Hosting(world=world), out=out, **CASES[case])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
