"""The frozen settings of `lumos reproduce`, and what a cell is expected to need."""

import dataclasses
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lumos.errors import UsageError
from lumos.experiments.cell import Cell
from lumos.experiments.reported import ITERATIONS

FILE = Path(__file__).with_name("settings.toml")
FACEBOOK_EDGES = 170_823
"""The file states needs for this graph."""

PAPER_EPOCHS = 300
"""Epochs of the paper."""
SECONDS_OF_A_MINUTE = 60
NOISY_EDGES = 30_000_000
"""Edges of its noised graph at ε = 2, which naive FedGNN trains on."""

Form = Literal["full", "quick"]


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """One form of the settings, with what the user changed."""

    form: Form
    seeds: int
    """Seeds of classification and link prediction at ε = 2."""
    other_seeds: int
    """Seeds of everything else."""
    control_at: dict[str, dict[str, list[float]]]
    """By profile and task: ε that have a control beside them. Runs without ε have one."""
    control_seeds: dict[str, dict[str, int]]
    """By system and backbone: seeds that have one."""
    epochs: dict[str, dict[str, int]]
    """By group and backbone, frozen."""
    patience: int
    """Epochs without a better validation score, after which a run of them ends; 0: none."""
    baseline: dict[str, dict[str, Any]]
    """By system, or system and backbone: further settings."""
    cost_epochs: int
    epsilons: tuple[float, ...]
    label_epsilon: float
    iterations_elsewhere: int
    need: dict[str, dict[str, Any]] = field(repr=False)
    asked_epochs: int | None = None
    """Epochs of the paper profile and the baselines that the user asked for."""
    minutes: float | None = None
    """Runs are left out that are not expected to finish within so many minutes; None: no limit."""
    cores: int = 1
    """Cores for which they are counted."""

    @property
    def seconds_in_all(self) -> float:
        """Seconds of processor time that all runs together may take."""
        return math.inf if self.minutes is None else SECONDS_OF_A_MINUTE * self.minutes * self.cores

    @property
    def seconds_of_a_run(self) -> float:
        """Seconds that a single one may take: it has one core."""
        return math.inf if self.minutes is None else SECONDS_OF_A_MINUTE * self.minutes

    def cut(self, cell: Cell) -> int:
        """The epochs at which a run is cut, fewer than the frozen ones; 0 where it finishes.

        Runs of the strict profile and the measurements of trees and cost always finish.
        """
        if self.asked_epochs is None or cell["epochs"] is None or cell.kind == "cost":
            return 0
        group = "baseline" if cell.kind == "baseline" else cell["profile"]
        frozen = self.epochs[group][cell["backbone"] or "gcn"]
        if cell.kind == "baseline":
            further = self.baseline_settings(cell["system"], cell["backbone"] or "gcn")
            frozen = further.get("epochs", frozen)
        return self.asked_epochs if self.asked_epochs < frozen else 0

    @property
    def shortened(self) -> bool:
        """Whether some runs may be cut."""
        frozen = max(count for given in self.epochs.values() for count in given.values())
        return self.asked_epochs is not None and self.asked_epochs < frozen

    def control(self, profile: str, task: str, backbone: str, epsilon: float, seed: int) -> bool:
        """Whether a run has a control beside it."""
        controlled = epsilon in self.control_at[profile][task]
        return controlled and seed < self.control_seeds[profile][backbone]

    def iterations(self, paper_name: str) -> int:
        """MCMC iterations: the paper's on its graphs."""
        return ITERATIONS.get(paper_name, self.iterations_elsewhere)

    def changed(
        self, *, seeds: int | None = None, epochs: int | None = None
    ) -> "EvaluationSettings":
        """The same with other seeds, or other epochs of the paper profile and the baselines."""
        if (seeds is not None and seeds < 1) or (epochs is not None and epochs < 1):
            raise UsageError("`seeds` and `epochs` must be 1 or more")
        return dataclasses.replace(self, seeds=seeds or self.seeds, asked_epochs=epochs)

    def seconds(self, cell: Cell, edges: int) -> float:
        """Expected seconds of a cell on one core."""
        need = self.need[self._need(cell)]
        epoch = need.get("epoch", {}).get(cell["backbone"] or "gcn", 0.0)
        if cell["edge_sample"]:
            epoch *= min(1.0, cell["edge_sample"] / NOISY_EDGES)
        runs = 1 + bool(cell["control"])
        if cell["balancer"] == "none" and cell.kind == "train":
            runs *= 2  # every edge twice
        scale = max(edges / FACEBOOK_EDGES, 0.02)
        total: float = 4 + scale * runs * (need["setup"] + epoch * (cell["epochs"] or 0))
        return total

    def megabytes(self, cell: Cell, edges: int) -> float:
        """Expected peak memory of a cell."""
        need: float = self.need[self._need(cell)]["megabytes"]
        return 400 + need * edges / FACEBOOK_EDGES

    def _need(self, cell: Cell) -> str:
        if cell.kind == "train":
            return f"{cell['profile']}-{cell['task']}"
        return "naive" if cell["system"] == "naive" else cell.kind

    def baseline_settings(self, system: str, backbone: str) -> dict[str, Any]:
        """Further frozen settings of a baseline."""
        further: dict[str, Any] = {}
        for name in (system, f"{system}-{backbone}"):
            further |= self.baseline.get(name, {})
        return further

    def epochs_of(self, group: str, backbone: str) -> int:
        """Epochs of a group: those that were asked for, or the frozen ones."""
        return self.asked_epochs or self.epochs[group][backbone]


def load_settings(form: Form) -> EvaluationSettings:
    """The committed settings of one form."""
    content = tomllib.loads(FILE.read_text("utf-8"))
    return EvaluationSettings(
        form=form,
        epsilons=tuple(float(epsilon) for epsilon in content["epsilons"]),
        label_epsilon=float(content["label_epsilon"]),
        iterations_elsewhere=content["iterations_elsewhere"],
        cost_epochs=content["cost_epochs"],
        need=content["need"],
        **(content["full"] | (content["quick"] if form == "quick" else {})),
    )
