"""Facts about a graph by which a run decides, and those that only a simulation may know.

A run over parts on disk has the facts from their manifest: no process of it sees the whole graph.
"""

from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from lumos.graph.arrays import is_sparse
from lumos.graph.fingerprint import fingerprint
from lumos.graph.graph import Graph


@dataclass(frozen=True, kw_only=True)
class SimulationFacts:
    """Facts computed from the data of all devices, for simulations only.

    Each of them tells the record of a device to whoever knows all others: real devices are never
    handed them.
    """

    edges: int
    lowest: float
    """Lowest stored feature; 0 if none is stored."""
    highest: float
    """Highest stored feature."""
    highest_label: int
    """Highest class of any device; -1 without labels."""
    fingerprint: str
    """Digest of the graph; names the randomness of a simulation."""


@dataclass(frozen=True, kw_only=True)
class GraphFacts:
    """Public facts about a graph, or about its training edges alone."""

    name: str
    devices: int
    feature_count: int
    """Width of the features; 0 without features."""
    sparse: bool
    """True if features are stored sparse."""
    signed: bool
    """True if features may be negative. Found in a simulation, set by the operator otherwise."""
    bounded: bool
    """True if all features lie between -1 and 1; found or set in the same way."""
    labelled: bool
    """True if devices have labels at all."""
    classes: tuple[str, ...]
    """Names of the classes."""
    notes: tuple[str, ...] = ()
    """Sentences for readers of results."""
    simulation: SimulationFacts | None = None
    """Facts of a simulation; None on real devices."""

    @property
    def class_count(self) -> int:
        """Number of classes; 0 without labels."""
        return len(self.classes)

    @property
    def simulated(self) -> SimulationFacts:
        """The facts of a simulation; raises `ValueError` on real devices."""
        if self.simulation is None:
            raise ValueError("real devices have no facts that are computed from all data")
        return self.simulation

    def with_simulation(self, **changes: Any) -> "GraphFacts":
        """Return the same facts with changes in those of the simulation, if there are any."""
        if self.simulation is None:
            return self
        return replace(self, simulation=replace(self.simulation, **changes))


def feature_signs(lowest: float, highest: float) -> dict[str, bool]:
    """Return `signed` and `bounded` of features between these two."""
    return {"signed": lowest < 0, "bounded": min(lowest, 0.0) >= -1 and max(highest, 0.0) <= 1}


_KNOWN: WeakKeyDictionary[Graph, GraphFacts] = WeakKeyDictionary()
"""By graph, which never changes: its fingerprint takes a pass over all of it."""


def facts_of(graph: Graph) -> GraphFacts:
    """The facts about a graph in memory; found once for each graph."""
    known = _KNOWN.get(graph)
    if known is None:
        known = _KNOWN[graph] = _found(graph)
    return known


def _found(graph: Graph) -> GraphFacts:
    features = graph.features
    sparse = features is not None and is_sparse(features)
    values = np.empty(0) if features is None else np.asarray(features.data if sparse else features)
    labels = graph.labels
    lowest = float(values.min()) if values.size else 0.0
    highest = float(values.max()) if values.size else 0.0
    return GraphFacts(
        name=graph.name,
        devices=graph.devices,
        feature_count=graph.feature_count,
        sparse=sparse,
        **feature_signs(lowest, highest),
        labelled=labels is not None,
        classes=graph.classes,
        notes=graph.notes,
        simulation=SimulationFacts(
            edges=graph.edges,
            lowest=lowest,
            highest=highest,
            highest_label=-1 if labels is None else int(labels.max(initial=-1)),
            fingerprint=fingerprint(graph),
        ),
    )
