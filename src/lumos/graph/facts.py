"""What is public of a graph: all that a run decides by, and nothing of a single device.

A run over parts on disk has the facts from their manifest: no process of it sees the whole graph.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from lumos.graph.arrays import is_sparse
from lumos.graph.fingerprint import fingerprint
from lumos.graph.graph import Graph


@dataclass(frozen=True, kw_only=True)
class GraphFacts:
    """Public facts about a graph, or about its training edges alone."""

    name: str
    devices: int
    edges: int
    feature_count: int
    """Width of the features; 0 without features."""
    sparse: bool
    """Whether features are stored sparse."""
    lowest: float
    """The lowest feature that is stored; 0 if none is."""
    highest: float
    """The highest one."""
    labelled: bool
    """Whether devices have labels at all."""
    classes: tuple[str, ...]
    """Names of the classes."""
    highest_label: int
    """The highest class that a device has; -1 without labels."""
    fingerprint: str
    """Tells this graph from others; names the coins of simulations."""
    notes: tuple[str, ...] = ()
    """What a reader of results should know, one sentence each."""

    @property
    def class_count(self) -> int:
        """Number of classes; 0 without labels."""
        return len(self.classes)

    @property
    def of_one_scale(self) -> bool:
        """Whether all features lie between -1 and 1."""
        return min(self.lowest, 0.0) >= -1 and max(self.highest, 0.0) <= 1


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
    return GraphFacts(
        name=graph.name,
        devices=graph.devices,
        edges=graph.edges,
        feature_count=graph.feature_count,
        sparse=sparse,
        lowest=float(values.min()) if values.size else 0.0,
        highest=float(values.max()) if values.size else 0.0,
        labelled=labels is not None,
        classes=graph.classes,
        highest_label=-1 if labels is None else int(labels.max(initial=-1)),
        fingerprint=fingerprint(graph),
        notes=graph.notes,
    )
