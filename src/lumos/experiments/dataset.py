"""A graph of the experiments: its name, its size, what it lacks, its fingerprints."""

from dataclasses import dataclass, replace
from pathlib import Path

from lumos.experiments.cell import Cell
from lumos.experiments.reported import DATASETS
from lumos.graph import Graph, load
from lumos.graph.catalog import entry_of
from lumos.graph.facts import fingerprint
from lumos.runs.train import findable


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One graph of the experiments."""

    spec: str
    """Argument of `lumos.load`."""
    name: str
    """What tables call it."""
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
        return "".join(letter if letter.isalnum() or letter == "." else "-" for letter in self.name)

    @property
    def paper_name(self) -> str:
        """The paper's name of the graph; empty for others, also for a file called like it."""
        return self.name if self.name in DATASETS and entry_of(self.spec) else ""

    def lacks(self, task: str) -> str:
        """Why a model cannot be trained on it, in a sentence; empty where it can."""
        if not self.features:
            entry = entry_of(self.spec)
            named = f"the feature file {entry.features}" if entry else "a feature file"
            return f"{self.name}: {named} is not here, so nothing can be trained"
        if task == "classify" and not self.classes:
            return f"{self.name}: there are no labels, so nothing can be classified"
        return ""

    def fingerprint(self, cell: Cell) -> str:
        """Fingerprint of what the cell depends on."""
        return self.structure if cell.kind == "trees" else self.whole


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
