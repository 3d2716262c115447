"""What balancers tell of degrees and workloads, beside what they cost: one table for each graph.

    python -m benchmarks.tree_leak [--graph demo|facebook] [--balancers greedy …] [--json]

Attackers are those of `lumos.audit.attacks.trees`: one neighbour, pooled neighbours and the
coordinator, each from everything that it received, sent and was answered in a recorded run, and
beside it from what it knows without messages. Every victim counts once. Comparisons are ideal ones;
attackers read the answers that secret ones give. `--json` prints what docs/results/tree-leak-*.json
keeps.
"""

import argparse
import dataclasses
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from lumos.audit.attacks.trees import TARGETS, determined_classes, record_trees, tree_leaks
from lumos.graph import load
from lumos.trees.balancers import TreeSettings

BALANCERS = ("greedy", "mcmc", "optimal")


def measured(name: str, balancer: str) -> dict[str, Any]:
    """Cost, and every adversary."""
    graph = load(name, features=False)
    run = record_trees(graph, TreeSettings(balancer=balancer, compare="ideal"))
    found: dict[str, Any] = {"graph": name, "balancer": balancer, "cost": run.cost}
    found["classes_determined"] = determined_classes(run)
    found["leaks"] = [dataclasses.asdict(leak) for leak in tree_leaks(run)]
    return found


def show(found: list[dict[str, Any]]) -> None:
    """Print tables."""
    out = Console()
    for one in found:
        title = f"{one['graph']}, {one['balancer']}"
        table = Table("adversary", "knows", *TARGETS, title=title)
        for leak in one["leaks"]:
            cells = (f"{100 * leak['found'][target]:.1f}" for target in TARGETS)
            table.add_row(leak["adversary"], leak["knowledge"], *cells)
        out.print(table)
        cost = ", ".join(f"{key} {value:,.1f}" for key, value in one["cost"].items())
        out.print(f"{cost}\nround(ln degree) determined: {100 * one['classes_determined']:.1f} %\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="demo")
    parser.add_argument("--balancers", nargs="+", default=list(BALANCERS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = [measured(options.graph, balancer) for balancer in options.balancers]
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        show(found)


if __name__ == "__main__":
    main()
