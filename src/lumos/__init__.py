"""Lumos: federated graph learning where every device is one vertex.

A first session:

    import lumos

    graph = lumos.load("demo")
    trees = lumos.balance(graph, lumos.TreeSettings(balancer="optimal", compare="ideal"))
    print(trees.max_workload, trees.ledger.messages)
"""

from lumos.errors import LumosError
from lumos.exchange.ledger import LedgerReport
from lumos.graph import Graph, load
from lumos.trees.balance import Balanced, balance
from lumos.trees.forest import Forest
from lumos.trees.settings import TreeSettings

__version__ = "0.1.0"

__all__ = [
    "Balanced",
    "Forest",
    "Graph",
    "LedgerReport",
    "LumosError",
    "TreeSettings",
    "balance",
    "load",
]
