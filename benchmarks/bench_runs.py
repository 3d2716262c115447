"""Balancers beside the optimum and Algorithm 3 as printed; checks of messages beside a whole run;
training on features of which few are not zero, as they are stored and as they were given.

As printed, every search for the maximum compares all pairs of neighbours and then all pairs of
candidates, and nothing is remembered; a step of Algorithm 2 searches twice (line 2 and line 6). The
comparisons of neighbours alone are a lower bound of it: 2 · steps · edges.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from benchmarks.bench import CPU, Row, Size, alternated

from lumos.exchange.endpoint import Endpoint
from lumos.graph import Graph, arrays, load
from lumos.runs.train import train
from lumos.trees.balance import balance
from lumos.trees.balancers import TreeSettings
from lumos.trees.optimum import least_largest_workload


def balancers(size: Size) -> list[Row]:
    """Measure the largest workload of every balancer, and the comparisons of Algorithm 3."""
    graph = load("demo:20000" if size.full else "demo", features=False)
    return balancer_rows(graph, 1000 if size.full else 100, size.seed)


def balancer_rows(graph: Graph, steps: int, seed: int) -> list[Row]:
    optimum, rows = least_largest_workload(graph), []
    for balancer in ("greedy", "mcmc", "optimal"):
        settings = TreeSettings(balancer=balancer, iterations=steps, compare="ideal")
        balanced = balance(graph, settings, seed=seed)
        comparisons = balanced.ledger.comparisons
        rows.append(
            Row(
                name=f"largest workload by {balancer}",
                ours=balanced.max_workload,
                peer=optimum,
                ratio=optimum / max(1, balanced.max_workload),
                unit="edges",
                against="the optimum",
                note=f"{comparisons / graph.edges:.2f} comparisons an edge",
            )
        )
        if balancer == "mcmc":
            ours, printed = comparisons - graph.edges, 2 * steps * graph.edges
            rows.append(
                Row(
                    name=f"maximum in {steps:,} steps of mcmc, {graph.devices:,} devices",
                    ours=ours,
                    peer=printed,
                    ratio=printed / ours,
                    unit="comparisons",
                    against="as printed, at least",
                )
            )
    return rows


class Clock:
    """CPU seconds and calls inside the endpoints of a run."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0

    def timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, with its time added here."""

        def call(*arguments: Any) -> Any:
            start = time.process_time_ns()
            try:
                return method(*arguments)
            finally:
                self.seconds += (time.process_time_ns() - start) / 1e9
                self.calls += 1

        return call


@contextmanager
def clocked() -> Iterator[Clock]:
    """Time everything that passes an endpoint."""
    clock, leave, arrive = Clock(), Endpoint.check_outgoing, Endpoint.check_incoming
    Endpoint.check_outgoing, Endpoint.check_incoming = clock.timed(leave), clock.timed(arrive)  # type: ignore[method-assign]
    try:
        yield clock
    finally:
        Endpoint.check_outgoing, Endpoint.check_incoming = leave, arrive  # type: ignore[method-assign]


def endpoint(size: Size) -> list[Row]:
    """Measure, for each kind of run, what passes in endpoints beside the whole."""
    graph = load("demo:20000" if size.full else "demo")
    steps, repeats = (1000, 5) if size.full else (100, 2)
    runs: dict[str, Callable[[], object]] = {
        f"trees {name}": partial(
            balance, graph, TreeSettings(balancer=name, compare="ideal", iterations=steps)
        )
        for name in ("optimal", "mcmc")
    }
    runs["strict classify"] = partial(train, graph, seed=size.seed)
    return [endpoint_row(name, run, repeats) for name, run in runs.items()]


def endpoint_row(name: str, run: Callable[[], object], repeats: int) -> Row:
    nothing = Clock()
    empty = nothing.timed(lambda *_: None)
    for _ in range(10_000):
        empty(None, None)
    price = nothing.seconds / nothing.calls
    found = []
    for _ in range(repeats):
        start = time.process_time()
        with clocked() as clock:
            run()
        # Two readings of the clock, of which one falls into what it measures.
        inside = clock.seconds - clock.calls * price
        found.append((time.process_time() - start - 2 * clock.calls * price, inside, clock.calls))
    whole, inside, calls = min(found)
    return Row(
        name=f"checks of every message, {name}",
        ours=inside,
        peer=whole,
        ratio=whole / max(inside, 1e-9),
        unit=CPU,
        against="the whole run",
        note=f"{calls:,} calls, {1e6 * inside / calls:.1f} µs each",
    )


def features(size: Size) -> list[Row]:
    """Measure strict runs on dense features of the size of Citeseer, at several shares of ones."""
    devices, width = (3327, 3703) if size.full else (1200, 1000)
    return [feature_row(devices, width, share, 3) for share in (0.0086, 0.05, 0.25)]


def feature_row(devices: int, width: int, share: float, turns: int) -> Row:
    draw = np.random.default_rng(0)
    x = (draw.random((devices, width)) < share).astype(np.float32)
    edges = draw.integers(0, devices, (4 * devices // 3, 2))
    labels = draw.integers(0, 6, devices)

    def run(most: float) -> None:
        before, arrays.MAX_FILLED = arrays.MAX_FILLED, most
        try:
            train(Graph.from_edges(edges, features=x, labels=labels))
        finally:
            arrays.MAX_FILLED = before

    name = f"strict run, {devices:,} x {width:,} features, {share:.2%} not zero"
    return alternated(name, partial(run, 1.0), partial(run, 0.0), turns, "stored dense")
