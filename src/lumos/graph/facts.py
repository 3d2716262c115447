"""Facts about a graph by which a run decides, its fingerprint, and its cut into parts.

Some facts only a simulation may know. A run over parts on disk has the facts from their manifest:
no process of it sees the whole graph.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from lumos.graph.arrays import is_sparse, spans
from lumos.graph.graph import Graph
from lumos.graph.labels import Role
from lumos.typing import Ints

if TYPE_CHECKING:
    from lumos.graph.graph import Features


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
        known = _KNOWN[graph] = _facts_of(graph)
    return known


def _facts_of(graph: Graph) -> GraphFacts:
    features = graph.features
    sparse = features is not None and is_sparse(features)
    values = np.empty(0) if features is None else np.asarray(features.data if sparse else features)
    lowest, highest = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    labels = graph.labels
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


def fingerprint(graph: Graph) -> str:
    """16 hexadecimal digits that tell this graph, with features, labels and roles, from others."""
    digest = blake2b(digest_size=8)
    parts: list[Any] = [graph.offsets, graph.neighbours]
    if graph.labels is not None:
        parts.append(graph.labels)
    if graph.roles is not None:
        parts.append(graph.roles)
    features: Any = graph.features
    if is_sparse(features):
        from scipy.sparse import csr_array

        matrix = csr_array(features)
        parts += [matrix.indptr, matrix.indices, matrix.data]
        if matrix.shape[1] != int(matrix.indices.max(initial=-1)) + 1:  # nobody has the last ones
            parts.append(np.array(matrix.shape[1]))
    elif features is not None:
        parts.append(features)
    for part in parts:
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphPart:
    """Some devices of a federation, and nothing of anybody else. A part of one is a device."""

    devices: Ints = field(repr=False)
    """[hosted] ids, increasing."""
    total: int
    """Number of devices in the federation (public)."""
    offsets: Ints = field(repr=False)
    """[hosted + 1] slots of hosted device i are offsets[i] … offsets[i + 1] - 1."""
    neighbours: Ints = field(repr=False)
    """[slots] ids of neighbours, increasing for each device; for link those of training edges."""
    features: "Features | None" = field(repr=False)
    """[hosted, d] dense or CSR float32; None without features."""
    labels: Ints = field(repr=False)
    """[hosted] class, -1 where unknown."""
    roles: Ints = field(repr=False)
    """[hosted] `Role` of each device."""
    held_back: Ints = field(repr=False)
    """[pairs, 2] position of a hosted device and id of a neighbour: validation edges of link. A
    pair belongs to its first end, the one with the smaller id."""

    def __repr__(self) -> str:
        return f"GraphPart(devices={len(self.devices)} of {self.total})"

    @property
    def slots(self) -> int:
        """Neighbours of all hosted devices."""
        return len(self.neighbours)

    def without(self, absent: Ints) -> "GraphPart":
        """The same devices without neighbours that are left out of the run."""
        here = ~np.isin(self.neighbours, absent)
        before = np.concatenate([[0], np.cumsum(here)])
        return replace(
            self,
            offsets=before[self.offsets].astype(np.int64),
            neighbours=self.neighbours[here],
            held_back=self.held_back[~np.isin(self.held_back[:, 1], absent)],
        )


def parts_of(
    graph: Graph,
    hosted: Sequence[Ints],
    roles: Ints | None = None,
    held_back: Ints | None = None,
    *,
    features: bool = True,
) -> list[GraphPart]:
    """Cut a graph in memory; arrays are copies.

    Args:
        graph: the graph; of training edges only, for link.
        hosted: for each part [devices] ids, increasing.
        roles: [devices]
        held_back: [pairs, 2] ids; the pair goes to its first end.
        features: leave them out where nobody needs them.
    """
    rows = graph.features if features else None
    return [_part(graph, rows, np.asarray(ids, np.int64), roles, held_back) for ids in hosted]


def _part(
    graph: Graph,
    features: "Features | None",
    ids: Ints,
    roles: Ints | None,
    held_back: Ints | None,
) -> GraphPart:
    degree = graph.offsets[ids + 1] - graph.offsets[ids]
    mine = np.empty((0, 2), np.int64)
    if held_back is not None and len(held_back):
        mine = held_back[np.isin(held_back[:, 0], ids)]
    return GraphPart(
        devices=ids,
        total=graph.devices,
        offsets=np.concatenate([[0], np.cumsum(degree)]).astype(np.int64),
        neighbours=graph.neighbours[spans(graph.offsets[ids], degree)],
        features=None if features is None else features[ids],
        labels=np.full(len(ids), -1, np.int64) if graph.labels is None else graph.labels[ids],
        roles=np.full(len(ids), Role.NOBODY, np.int64) if roles is None else roles[ids],
        held_back=np.stack([np.searchsorted(ids, mine[:, 0]), mine[:, 1]], axis=1),
    )
