"""Lumos: federated graph learning where every device is one vertex.

A first session:

    import lumos

    graph = lumos.load("demo")
    run = lumos.train(graph, epsilon=2.0)
    print(run.metrics, run.own, run.guarantees)
    run.save("runs/demo")
    trees = lumos.balance(graph, lumos.TreeSettings(balancer="optimal", compare="ideal"))
    print(trees.max_workload, trees.ledger.messages)

Names are loaded when they are first used, so that `import lumos` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lumos.audit.harness import run_audit
    from lumos.audit.table import AuditReport
    from lumos.baselines import baseline
    from lumos.deploy.attacks import audit_deployment
    from lumos.errors import (
        BudgetExceeded,
        DoorClosed,
        GuaranteeExceeded,
        InputError,
        LumosError,
        LumosWarning,
        MissingData,
        NotHosted,
        ProtocolError,
        UsageError,
    )
    from lumos.evaluation.evaluate import evaluate
    from lumos.evaluation.result import Evaluation
    from lumos.exchange.observer import LedgerReport
    from lumos.graph import Graph, load
    from lumos.runs.load import load_run
    from lumos.runs.run import Run
    from lumos.runs.train import train
    from lumos.training.config import Config
    from lumos.training.trainer import EpochEvent
    from lumos.trees.balance import Balanced, balance
    from lumos.trees.balancers import TreeSettings
    from lumos.trees.forest import Forest

__version__ = "0.1.0"

_HOMES = {
    "AuditReport": "lumos.audit.table",
    "Balanced": "lumos.trees.balance",
    "BudgetExceeded": "lumos.errors",
    "Config": "lumos.training.config",
    "DoorClosed": "lumos.errors",
    "EpochEvent": "lumos.training.trainer",
    "Evaluation": "lumos.evaluation.result",
    "Forest": "lumos.trees.forest",
    "Graph": "lumos.graph",
    "InputError": "lumos.errors",
    "LedgerReport": "lumos.exchange.observer",
    "LumosError": "lumos.errors",
    "LumosWarning": "lumos.errors",
    "MissingData": "lumos.errors",
    "NotHosted": "lumos.errors",
    "GuaranteeExceeded": "lumos.errors",
    "ProtocolError": "lumos.errors",
    "Run": "lumos.runs.run",
    "TreeSettings": "lumos.trees.balancers",
    "UsageError": "lumos.errors",
    "audit_deployment": "lumos.deploy.attacks",
    "balance": "lumos.trees.balance",
    "baseline": "lumos.baselines",
    "evaluate": "lumos.evaluation.evaluate",
    "load": "lumos.graph",
    "load_run": "lumos.runs.load",
    "run_audit": "lumos.audit.harness",
    "train": "lumos.runs.train",
}

__all__ = [
    "AuditReport",
    "Balanced",
    "BudgetExceeded",
    "Config",
    "DoorClosed",
    "EpochEvent",
    "Evaluation",
    "Forest",
    "Graph",
    "GuaranteeExceeded",
    "InputError",
    "LedgerReport",
    "LumosError",
    "LumosWarning",
    "MissingData",
    "NotHosted",
    "ProtocolError",
    "Run",
    "TreeSettings",
    "UsageError",
    "audit_deployment",
    "balance",
    "baseline",
    "evaluate",
    "load",
    "load_run",
    "run_audit",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lumos' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
