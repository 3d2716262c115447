"""Balancers: what they reach beside the optimum, and Algorithm 3 as printed beside ours.

The optimum is the exact one, by maximum flow; comparisons are ideal ones, which the ledger counts
exactly as secret ones.

As printed: in every search all pairs of neighbours compare, then all pairs of candidates, and
nothing is remembered; a step of Algorithm 2 searches twice (line 2 and line 6). Both sides follow
the same run, step by step: the printed side is told each step's workloads and its comparisons are
counted at every search. Its seconds are measured in some of the steps, where all those comparisons
are really made by the same ideal comparer, through the same exchange, ledger included. The
unmetered scan is numpy's argmax over all workloads, which no federation could run.
"""

import time
from typing import Any

import numpy as np

import lumos.trees.balancers.mcmc as algorithms
from lumos.bench.rows import CPU, BenchRow, BenchSize
from lumos.compare.ideal import IDEAL_TOPICS, IdealComparer
from lumos.device.shard import Shard, cut
from lumos.exchange import CARRIERS, EVERY_DOOR, Endpoint, Program
from lumos.graph import Graph, load
from lumos.session.pairs import ComparedPairs
from lumos.trees.balance import balance
from lumos.trees.neighbour_workloads import WorkloadOrder
from lumos.trees.optimum import least_largest_workload
from lumos.trees.proposal import propose
from lumos.trees.settings import TreeSettings
from lumos.typing import Ints


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
        start = time.process_time()
        int(workload.argmax())
        self.scan_seconds += time.process_time() - start
        if keep_workload:
            self.workloads.append(workload.copy())

    def plain_seconds(self, workload: Ints) -> float:
        """Seconds of the same comparisons of one search in bare numpy: no exchange, no ledger."""
        start = time.process_time()
        leads = self.candidates(workload)
        lost = (workload[leads][:, None] < workload[leads]).any(axis=1)
        found = leads[~lost]
        taken = time.process_time() - start
        if not (workload[found] == workload.max()).all():
            raise AssertionError("the printed search found no maximum")
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
        start = time.process_time()
        right, _ = carrier.run(search, nobody)
        taken = time.process_time() - start
        if right != [True]:
            raise AssertionError("the printed search found no maximum")
        return taken, carrier.ledger().comparisons


def follow(graph: Graph, iterations: int, sample: int) -> dict[str, Any]:
    """Run ours, with the printed side counting along."""
    printed = Printed(graph)
    standings: list[WorkloadOrder] = []
    spent = 0.0

    def tell(keep_workload: bool) -> None:
        nonlocal spent
        start = time.process_time()
        printed.search(standings[0].workload, keep_workload)
        spent += time.process_time() - start

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
        start = time.process_time()
        balanced = balance(graph, settings, seed=1)
        whole = time.process_time() - start
    finally:
        module.WorkloadOrder, module.propose = WorkloadOrder, propose
    ours = balanced.ledger.comparisons - graph.edges  # without Algorithm 1
    seconds = whole - spent
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


def measure(size: BenchSize) -> list[BenchRow]:
    """The search for the maximum, then the largest workload of every balancer."""
    graph = load("demo:20000" if size.full else "demo", features=False)
    steps, sample = (1000, 4) if size.full else (100, 1)
    return [*search_rows(graph, steps, sample), *reached_rows(graph, steps, size.seed)]


def search_rows(graph: Graph, steps: int, sample: int) -> list[BenchRow]:
    """Algorithm 3, ours beside the printed one."""
    found = follow(graph, steps, sample)
    name = f"maximum in {steps:,} steps of mcmc, {graph.devices:,} devices"
    against = "scanning, as printed"
    return [
        BenchRow(
            name=name,
            ours=found["our_comparisons"],
            peer=found["printed_comparisons"],
            ratio=found["ratio_comparisons"],
            unit="comparisons",
            against=against,
        ),
        BenchRow(
            name=name,
            ours=found["our_seconds"],
            peer=found["printed_seconds"],
            ratio=found["ratio_seconds"],
            unit=CPU,
            against=against,
            note=f"printed: mean of {found['printed_searches_timed']} searches, times their number",
        ),
    ]


def reached_rows(graph: Graph, steps: int, seed: int) -> list[BenchRow]:
    """The largest workload that every balancer reaches."""
    optimum, rows = least_largest_workload(graph), []
    for balancer in ("greedy", "mcmc", "optimal"):
        settings = TreeSettings(balancer=balancer, iterations=steps, compare="ideal")
        balanced = balance(graph, settings, seed=seed)
        ledger = balanced.ledger
        rows.append(
            BenchRow(
                name=f"largest workload by {balancer}",
                ours=balanced.max_workload,
                peer=optimum,
                ratio=optimum / max(1, balanced.max_workload),
                unit="edges",
                against="the optimum",
                note=(
                    f"{ledger.comparisons / graph.edges:.2f} comparisons an edge, "
                    f"{balanced.seconds:.2f} s"
                ),
            )
        )
    return rows
