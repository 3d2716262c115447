"""The frozen settings of the reproduction, and the graphs that it is run on.

What makes a score (epochs, patience, ε, seeds, further settings of a baseline) was frozen before
the full tables were run; controls and rows with the paper's literal recovery were added afterwards.
"""

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lumos.errors import UsageError
from lumos.graph import Graph, load
from lumos.graph.catalog import entry_of
from lumos.graph.facts import fingerprint
from lumos.runs.train import findable
from lumos.training.profile import PAPER, STRICT
from reproduce.reported import DATASETS, ITERATIONS

EPSILONS = (0.5, 1.0, 2.0, 4.0)
LABEL_EPSILON = 1
"""ε_y of LPGNN; its ε_x is the ε of the table."""
EPOCHS = 300
"""Epochs of the paper profile and of baselines; those of strict are part of its noise."""
PATIENCE = 100
"""Epochs without a better validation score, after which a run of them ends."""
ITERATIONS_ELSEWHERE = 1000
"""MCMC steps on graphs that the paper does not use."""
COST_EPOCHS = 2
"""Epochs whose messages are counted."""
CONTROL_AT = {
    (STRICT, "classify"): EPSILONS,
    (PAPER, "classify"): EPSILONS,
    (PAPER, "link"): (2.0,),
}
"""By profile and task: ε that have a control beside them."""
CONTROL_SEEDS = {STRICT: 3, PAPER: 1, "lpgnn": 1}
"""By system: seeds that have a control."""
BASELINE_SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    # 1.7 seconds each over 30 million noisy edges; the best is among the first.
    ("naive", "gcn"): {"epochs": 100},
    # Attention over all 30 million noisy edges takes hours.
    ("naive", "gat"): {"epochs": 100, "edge_sample": 1_000_000},
}
"""By system and backbone: further settings."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user chose."""

    seeds: int = 3
    """Seeds of classification and link prediction at ε = 2."""
    other_seeds: int = 1
    """Seeds of everything else."""
    backbones: tuple[str, ...] = ("gcn", "gat")
    epochs: int | None = None
    """Epochs of the paper profile and the baselines, instead of the frozen ones."""

    def __post_init__(self) -> None:
        if self.seeds < 1 or (self.epochs is not None and self.epochs < 1):
            raise UsageError("--seeds and --epochs must be 1 or more")

    def control(self, profile: str, task: str, epsilon: float, seed: int) -> bool:
        """Return whether a run has a control beside it."""
        return epsilon in CONTROL_AT.get((profile, task), ()) and seed < CONTROL_SEEDS[profile]

    def as_text(self) -> dict[str, str]:
        """Return the settings for a table."""
        given = {name: str(value) for name, value in dataclasses.asdict(self).items()}
        frozen = {"frozen epochs": EPOCHS, "patience": PATIENCE, "ε_y of LPGNN": LABEL_EPSILON}
        return {**given, **{name: str(value) for name, value in frozen.items()}}


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One graph of the evaluation."""

    spec: str
    """Argument of `lumos.load`."""
    name: str
    """Name in tables."""
    devices: int
    edges: int
    features: int
    classes: int
    whole: str
    """Fingerprint of structure, features and labels."""
    structure: str
    """Fingerprint of the structure alone."""
    notes: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """The name as a part of file names."""
        return "".join(
            literal if literal.isalnum() or literal == "." else "-" for literal in self.name
        )

    @property
    def paper_name(self) -> str:
        """The paper's name of the graph; empty for others, also for a file called like it."""
        return self.name if self.name in DATASETS and entry_of(self.spec) else ""

    @property
    def iterations(self) -> int:
        """MCMC iterations: the paper's on its graphs."""
        return ITERATIONS.get(self.paper_name, ITERATIONS_ELSEWHERE)

    def lacks(self, task: str) -> str:
        """Return why a model cannot be trained on it, in a sentence; empty where it can."""
        if not self.features:
            entry = entry_of(self.spec)
            named = f"the feature file {entry.features}" if entry else "a feature file"
            return f"{self.name}: {named} is not here, so nothing can be trained"
        if task == "classify" and not self.classes:
            return f"{self.name}: there are no labels, so nothing can be classified"
        return ""


def dataset_of(spec: str, data_dir: Path | None) -> Dataset:
    """Load a graph and describe it."""
    graph: Graph = load(spec, data_dir=data_dir)
    entry = entry_of(spec)
    return Dataset(
        spec=findable(spec) if entry is None else entry.name,
        name=entry.name if entry is not None else (graph.name or spec),
        devices=graph.devices,
        edges=graph.edges,
        features=graph.feature_count if graph.features is not None else 0,
        classes=graph.class_count if graph.labels is not None else 0,
        whole=fingerprint(graph),
        structure=fingerprint(replace(graph, features=None, labels=None, classes=())),
        notes=graph.notes,
    )
