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

import numpy as np
from rich.console import Console
from rich.table import Table

from lumos.audit.attacks.trees import TARGETS, TreeRun, record_trees, slot_events, tree_leaks
from lumos.graph import load
from lumos.trees.balancers import TreeSettings

BALANCERS = ("greedy", "mcmc", "optimal")


def measured(name: str, balancer: str) -> dict[str, Any]:
    """Cost, and every adversary."""
    graph = load(name, features=False)
    run = record_trees(graph, TreeSettings(balancer=balancer, compare="ideal"))
    found: dict[str, Any] = {"graph": name, "balancer": balancer, "cost": cost_of(run)}
    found["classes_determined"] = determined_classes(run)
    found["leaks"] = [dataclasses.asdict(leak) for leak in tree_leaks(run)]
    return found


def determined_classes(run: TreeRun) -> float:
    """Return the share of devices for which pooled neighbours are certain of round(ln degree).

    From the first three-way answer on each edge, where a balancer starts by one: own value a, and
    the victim's is below, equal or above.
    """
    slot, events = slot_events(run)
    devices = run.graph.devices
    low, high = np.zeros(devices, np.int64), np.full(devices, int(np.log(max(2, devices))) + 1)
    first = np.zeros(len(slot), np.bool_)
    first[np.unique(slot, return_index=True)[1]] = True
    for sign in (-1, 0, 1):
        name = f"3-way answer {sign}"
        if name in events.kinds:
            mine = first & (events.kind == events.kinds.index(name))
            victim, value = events.seen[mine], events.value[mine]
            if sign <= 0:
                np.maximum.at(low, victim, value - sign)
            if sign >= 0:
                np.minimum.at(high, victim, value - sign)
    there = run.graph.degrees > 0
    return float((low == high)[there].mean())


def cost_of(run: TreeRun) -> dict[str, float]:
    """Return what balancing cost, by name."""
    ledger, edges = run.trees.ledger, max(1, run.graph.edges)
    return {
        "largest": float(run.trees.max_workload),
        "messages": float(ledger.messages),
        "rounds": float(ledger.rounds),
        "comparisons": float(ledger.comparisons),
        "comparison_bits_per_pair": float(ledger.bits_per_pair_mean),
        "comparison_bits_of_a_pair_at_most": float(ledger.bits_per_pair_largest),
        "control_bits_per_edge": ledger.control_bits / edges,
    }


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
