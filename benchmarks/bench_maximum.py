"""Algorithm 3 as printed against ours: comparisons and seconds, in one run.

    python benchmarks/bench_maximum.py [--graph facebook] [--data DIR] [--iterations 1000] [--json]

As printed: in every search all pairs of neighbours compare, then all pairs of candidates, and
nothing is remembered; a step of Algorithm 2 searches twice (line 2 and line 6). Both sides follow
the same run, step by step: the printed side is told each step's workloads and its comparisons are
counted at every search. Its seconds are measured in some of the steps, where all those comparisons
are really made by the same ideal comparer, through the same exchange, ledger included. The
unmetered scan is numpy's argmax over all workloads, which no federation could run.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import lumos.trees.balancers.mcmc as algorithms
from lumos.compare.ideal import IDEAL_TOPICS, IdealComparer
from lumos.device.shard import Shard, cut
from lumos.exchange import CARRIERS, EVERY_DOOR, Endpoint, Program
from lumos.graph import Graph, load
from lumos.graph.catalog import CATALOG
from lumos.session.pairs import ComparedPairs
from lumos.trees.balance import balance
from lumos.trees.neighbour_workloads import WorkloadOrder
from lumos.trees.proposal import propose
from lumos.trees.settings import TreeSettings
from lumos.typing import Ints

SIBLING = Path(__file__).parents[2] / "shared" / "data"


class Printed:
    """The printed Algorithm 3 beside a run of ours."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.owner = np.repeat(np.arange(graph.devices), graph.degrees)
        self.comparisons = self.searches = self.largest_set = 0
        self.workloads: list[Ints] = []
        self.scan_seconds = 0.0

    def candidates(self, workload: Ints) -> Ints:
        """Devices with neighbours, none of them heavier."""
        beaten = workload[self.owner] < workload[self.graph.neighbours]
        heavier = np.bincount(self.owner[beaten], minlength=self.graph.devices)
        found: Ints = np.flatnonzero((heavier == 0) & (self.graph.degrees > 0))
        return found

    def search(self, workload: Ints, keep_workload: bool) -> None:
        """Count what the printed algorithm would ask in this search."""
        count = len(self.candidates(workload))
        self.comparisons += self.graph.edges + count * (count - 1) // 2
        self.searches += 1
        self.largest_set = max(self.largest_set, count)
        start = time.perf_counter()
        int(workload.argmax())
        self.scan_seconds += time.perf_counter() - start
        if keep_workload:
            self.workloads.append(workload.copy())

    def plain_seconds(self, workload: Ints) -> float:
        """Seconds of the same comparisons of one search in bare numpy: no exchange, no ledger."""
        start = time.perf_counter()
        leads = self.candidates(workload)
        lost = (workload[leads][:, None] < workload[leads]).any(axis=1)
        found = leads[~lost]
        taken = time.perf_counter() - start
        assert (workload[found] == workload.max()).all()
        return taken

    def seconds(self, workload: Ints, bits: int = 8) -> tuple[float, int]:
        """Seconds of one printed search with every comparison made, and their number."""
        pieces = cut(self.graph, 1, 0)

        def search(shard: Shard, endpoint: Endpoint) -> Program[bool]:
            comparer = IdealComparer(shard, endpoint)
            pairs = ComparedPairs.of_slots(shard, np.arange(len(shard.neighbours)))
            signs = yield from comparer.three_way(pairs, workload[pairs.rows], bits)
            heavier = np.bincount(shard.owner[signs < 0], minlength=len(shard))
            leads = np.flatnonzero((heavier == 0) & (shard.degree > 0))
            first, second = np.meshgrid(leads, leads, indexing="ij")
            apart = first != second
            pairs = ComparedPairs.of_ids(shard, first[apart], second[apart])
            signs = yield from comparer.three_way(pairs, workload[pairs.rows], bits)
            lost = np.bincount(pairs.rows[signs < 0], minlength=len(shard))
            return bool(workload[leads[lost[leads] == 0]].min() == workload.max())

        def nobody(_: Endpoint) -> Program[None]:
            yield from ()

        carrier = CARRIERS["loopback"](pieces, EVERY_DOOR, IDEAL_TOPICS)
        start = time.perf_counter()
        right, _ = carrier.run(search, nobody)
        taken = time.perf_counter() - start
        assert right == [True], "the printed search found a maximum"
        return taken, carrier.ledger().comparisons


def follow(graph: Graph, iterations: int, sample: int) -> dict[str, Any]:
    """Run ours, with the printed side counting along."""
    printed = Printed(graph)
    standings: list[WorkloadOrder] = []
    spent = 0.0

    def tell(keep_workload: bool) -> None:
        nonlocal spent
        start = time.perf_counter()
        printed.search(standings[0].workload, keep_workload)
        spent += time.perf_counter() - start

    class Followed(WorkloadOrder):
        """Line 6 of Algorithm 2 searches the tried state."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            standings.append(self)

        def compare_again(self, changed: Ints) -> Program[None]:
            tell(keep_workload=printed.searches // 2 % max(1, iterations // sample) == 0)
            yield from super().compare_again(changed)

    def followed_propose(*arguments: Any) -> Any:
        """Line 2 searches the state before a step, from which its device proposes."""
        tell(keep_workload=False)
        return propose(*arguments)

    module: Any = algorithms
    module.WorkloadOrder, module.propose = Followed, followed_propose
    try:
        settings = TreeSettings(balancer="mcmc", iterations=iterations, compare="ideal")
        balanced = balance(graph, settings, seed=1)
    finally:
        module.WorkloadOrder, module.propose = WorkloadOrder, propose
    ours = balanced.ledger.comparisons - graph.edges  # without Algorithm 1
    seconds = balanced.seconds - spent
    timed = [printed.seconds(workload) for workload in printed.workloads[:sample]]
    plain = [printed.plain_seconds(workload) for workload in printed.workloads[:sample]]
    printed_seconds = float(np.mean([taken for taken, _ in timed])) * printed.searches
    return {
        "graph": graph.name,
        "devices": graph.devices,
        "edges": graph.edges,
        "iterations": iterations,
        "largest_workload": [balanced.history[0][1], balanced.max_workload],
        "searches": printed.searches,
        "candidates_at_most": printed.largest_set,
        "printed_comparisons": printed.comparisons,
        "our_comparisons": ours,
        "ratio_comparisons": printed.comparisons / ours,
        "our_matches": balanced.ledger.topics["maximum/result"].messages,
        "printed_seconds": printed_seconds,
        "printed_plain_seconds": float(np.mean(plain)) * printed.searches,
        "printed_searches_timed": len(timed),
        "our_seconds": seconds,
        "ratio_seconds": printed_seconds / seconds,
        "scan_seconds": printed.scan_seconds,
    }


def show(found: dict[str, Any]) -> None:
    start, end = found["largest_workload"]
    print(
        f"{found['graph']}: {found['devices']:,} devices, {found['edges']:,} edges; "
        f"{found['iterations']:,} steps of Algorithm 2, largest workload {start} → {end}; "
        f"{found['searches']:,} searches, at most {found['candidates_at_most']:,} candidates\n"
    )
    print(f"{'Algorithm 3':<34}{'comparisons':>16}{'per search':>14}{'seconds':>12}")
    searches = found["searches"]
    rows: Sequence[tuple[str, int, float]] = (
        ("as printed, ideal comparisons", found["printed_comparisons"], found["printed_seconds"]),
        ("as printed, bare numpy", found["printed_comparisons"], found["printed_plain_seconds"]),
        ("ours, ideal comparisons", found["our_comparisons"], found["our_seconds"]),
        ("numpy argmax, unmetered", 0, found["scan_seconds"]),
    )
    for name, comparisons, seconds in rows:
        print(f"{name:<34}{comparisons:>16,}{comparisons / searches:>14,.1f}{seconds:>12.3f}")
    print(
        f"\nratio: {found['ratio_comparisons']:,.0f} times fewer comparisons; "
        f"{found['ratio_seconds']:,.0f} times fewer seconds when both are counted alike"
    )
    print(
        f"Seconds as printed: mean of {found['printed_searches_timed']} searches with every "
        f"comparison made, times {searches:,};\nmost of them go into the ledger's entry for each "
        "pair of candidates, as there are so many. Bare numpy makes\nthe same comparisons without "
        "exchange or ledger. Ours: Algorithms 1 to 3, proposals, verdicts and ledger;\n"
        f"{found['our_matches']:,} of our comparisons are matches between candidates."
    )


def graph_for(name: str | None, data: str | None) -> Graph:
    folder = Path(data or os.environ.get("LUMOS_DATA") or SIBLING)
    if name is None:
        name = "facebook" if (folder / CATALOG["facebook"].folders[0]).is_dir() else "demo:20000"
    return load(name, data_dir=folder, features=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", help="facebook, or demo:20000 when it is not here")
    parser.add_argument("--data", help="where the named graphs lie")
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--sample", type=int, default=4, help="printed searches to time")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    graph = graph_for(options.graph, options.data)
    found = follow(graph, options.iterations, options.sample)
    if options.json:
        print(json.dumps(found))
    else:
        show(found)
    assert found["ratio_comparisons"] >= 100, "at least 100 times fewer comparisons"


if __name__ == "__main__":
    main()
