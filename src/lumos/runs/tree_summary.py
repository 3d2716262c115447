"""The trees of a run, as its folder keeps them."""

from dataclasses import dataclass, field

import numpy as np

from lumos.exchange.ledger_report import LedgerReport
from lumos.graph import Graph
from lumos.trees.balance import Balanced
from lumos.typing import Flags, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeSummary:
    """Who carries which edge, and what it took to agree on it. Workloads are the observer's."""

    balancer: str
    compare: str
    """Which comparison backend ran."""
    keep: Flags = field(repr=False)
    """[2 · edges] over the training graph's neighbour array: True where the device keeps it."""
    workload: Ints = field(repr=False)
    """[devices] number of kept neighbours: branches of each tree."""
    degree: Ints = field(repr=False)
    """[devices] number of neighbours in the training graph.

    All three are empty where the run was read from a folder that keeps nothing of single devices.
    """
    max_workload: int
    """The largest workload."""
    ledger: LedgerReport = field(repr=False)
    """What passed while trees were balanced."""
    history: list[tuple[int, int]] = field(repr=False)
    """(iteration, largest workload) whenever it changed, where the balancer iterates."""
    seconds: float
    graph: Graph | None = field(default=None, repr=False)
    """The training graph, where the run was just trained."""

    @staticmethod
    def of(balanced: Balanced) -> "TreeSummary":
        """From what `lumos.balance` returned."""
        return TreeSummary(
            balancer=balanced.settings.balancer,
            compare=balanced.compare,
            keep=balanced.keep,
            workload=balanced.workload,
            degree=np.diff(balanced.graph.offsets),
            max_workload=balanced.max_workload,
            ledger=balanced.ledger,
            history=balanced.history,
            seconds=balanced.seconds,
            graph=balanced.graph,
        )
