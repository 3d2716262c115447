"""A part of a graph: some devices, and what they alone know."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from lumos.graph.graph import Graph
from lumos.graph.neighbour_lists import spans
from lumos.graph.roles import Role
from lumos.typing import Ints

if TYPE_CHECKING:
    from lumos.graph.graph import Features


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
