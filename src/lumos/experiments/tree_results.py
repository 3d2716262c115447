"""Trees of one balancer: their workloads, and what it cost to find them."""

from typing import Any

import numpy as np

from lumos.graph import Graph
from lumos.trees.balance import balance
from lumos.trees.settings import TreeSettings
from lumos.typing import Ints

CDF_POINTS = 200
"""Points of a distribution that are kept."""


def measure_trees(graph: Graph, *, seed: int, **settings: Any) -> dict[str, Any]:
    """Build trees by these settings of `TreeSettings`; figures for JSON."""
    balanced = balance(graph, TreeSettings(**settings), seed=seed)
    values, counts = np.unique(balanced.workload, return_counts=True)
    bound = balanced.lower_bound()
    ledger = balanced.ledger
    return {
        "devices": graph.devices,
        "edges": graph.edges,
        "max_workload": balanced.max_workload,
        "mean_workload": round(float(balanced.workload.mean()), 4),
        "lower_bound": bound,
        "optimal": balanced.max_workload == bound,
        "saved": 1 - float(balanced.workload.sum()) / max(1, 2 * graph.edges),
        "comparisons": ledger.comparisons,
        "rounds": ledger.rounds,
        "cdf": cdf_points(values, counts),
        "seconds": round(balanced.seconds, 3),
    }


def cdf_points(values: Ints, counts: Ints) -> list[list[int]]:
    """[value, devices with at most so much]: the smallest values, then evenly to the last."""
    up_to, half = np.cumsum(counts), CDF_POINTS // 2
    tail = np.linspace(half, len(values) - 1, half).astype(int) if len(values) > CDF_POINTS else ()
    head = half if len(tail) else len(values)
    chosen = np.unique(np.concatenate([np.arange(head), np.asarray(tail, int)]))
    return [[int(values[place]), int(up_to[place])] for place in chosen.tolist()]
