"""The frozen settings of `lumos reproduce`, and what a cell is expected to need."""

import dataclasses
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
    ablated: list[str]
    """Backbones of the ablations."""
    letter: bool
    """Whether there are rows to the letter of the paper."""
    control_at: dict[str, dict[str, list[float]]]
    """By profile and task: ε that have a control beside them. Runs without ε have one."""
    control_seeds: dict[str, dict[str, int]]
    """By system and backbone: seeds that have one."""
    epochs: dict[str, dict[str, int]]
    """By group and backbone."""
    patience: int
    """Epochs without a better validation score, after which a run of them ends; 0: none."""
    baseline: dict[str, dict[str, Any]]
    """By system, or system and backbone: further settings."""
    cost_epochs: int
    epsilons: tuple[float, ...]
    label_epsilon: float
    iterations_elsewhere: int
    need: dict[str, dict[str, Any]] = field(repr=False)

    @property
    def comparable(self) -> bool:
        """Whether everything is trained for as long as in the paper."""
        return all(
            count >= PAPER_EPOCHS for given in self.epochs.values() for count in given.values()
        )

    @property
    def mark(self) -> str:
        """Suffix of titles where it is not."""
        return "" if self.comparable else " (QUICK)" if self.form == "quick" else " (SHORTENED)"

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
        settings = self if seeds is None else dataclasses.replace(self, seeds=seeds)
        if epochs is not None:
            changed = {group: dict.fromkeys(given, epochs) for group, given in self.epochs.items()}
            others = {
                name: {key: value for key, value in given.items() if key != "epochs"}
                for name, given in self.baseline.items()
            }
            settings = dataclasses.replace(settings, epochs=changed, baseline=others)
        return settings

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
            return str(cell["profile"])
        return "naive" if cell["system"] == "naive" else cell.kind

    def baseline_settings(self, system: str, backbone: str) -> dict[str, Any]:
        """Further settings of a baseline."""
        further: dict[str, Any] = {}
        for name in (system, f"{system}-{backbone}"):
            further |= self.baseline.get(name, {})
        return further


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
        **content[form],
    )
