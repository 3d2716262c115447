"""Lumos: federated graph learning where every device is one vertex.

A first session:

    import lumos

    graph = lumos.load("demo")
    trees = lumos.balance(graph, lumos.TreeSettings(balancer="optimal", compare="ideal"))
    print(trees.max_workload, trees.ledger.messages)
    run = lumos.train(graph, epsilon=2.0, backbone="gcn", compare="ideal")
    print(run.metrics, run.own, run.exposed)

Names are loaded when they are first used, so that `import lumos` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lumos.errors import LumosError
    from lumos.exchange.ledger import LedgerReport
    from lumos.graph import Graph, load
    from lumos.runs.train import Trained, train
    from lumos.training.settings import Config
    from lumos.trees.balance import Balanced, balance
    from lumos.trees.forest import Forest
    from lumos.trees.settings import TreeSettings

__version__ = "0.1.0"

__all__ = [
    "Balanced",
    "Config",
    "Forest",
    "Graph",
    "LedgerReport",
    "LumosError",
    "Trained",
    "TreeSettings",
    "balance",
    "load",
    "train",
]

_HOMES = {
    "Balanced": "lumos.trees.balance",
    "Config": "lumos.training.settings",
    "Forest": "lumos.trees.forest",
    "Graph": "lumos.graph",
    "LedgerReport": "lumos.exchange.ledger",
    "LumosError": "lumos.errors",
    "Trained": "lumos.runs.train",
    "TreeSettings": "lumos.trees.settings",
    "balance": "lumos.trees.balance",
    "load": "lumos.graph",
    "train": "lumos.runs.train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lumos' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
