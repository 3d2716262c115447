"""What the endpoint costs: CPU seconds inside its checks and its ledger, beside the whole run.

Every message is checked and counted twice, on its way out and on its way in, in simulations too. A
row is one kind of run, in the ideal backends, where messages are most of the work: `mcmc` sends
many small batches, training few large ones. The best of some runs counts. What the clock
itself costs is measured and taken off.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from lumos.bench.rows import CPU, BenchRow, BenchSize
from lumos.exchange import Endpoint
from lumos.graph import load
from lumos.runs.train import train
from lumos.trees.balance import balance
from lumos.trees.settings import TreeSettings


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


def fastest(name: str, run: Callable[[], object], repeats: int) -> dict[str, Any]:
    """One row: the fastest run, and what of it passed in endpoints."""
    rows = []
    nothing = Clock()
    empty = nothing.timed(lambda *_: None)
    for _ in range(10_000):
        empty(None, None)
    price = nothing.seconds / nothing.calls
    for _ in range(repeats):
        start = time.process_time()
        with clocked() as clock:
            run()
        # Two readings of the clock, of which one falls into what it measures.
        inside = clock.seconds - clock.calls * price
        whole = time.process_time() - start - 2 * clock.calls * price
        rows.append(
            {
                "run": name,
                "seconds": round(whole, 3),
                "endpoint_seconds": round(inside, 3),
                "share": round(inside / whole, 4),
                "calls": clock.calls,
                "microseconds_per_call": round(inside / clock.calls * 1e6, 2),
            }
        )
    return min(rows, key=lambda row: row["seconds"])


def measure(size: BenchSize) -> list[BenchRow]:
    """For each kind of run, what passed in endpoints beside the whole."""
    graph = load("demo:20000" if size.full else "demo")
    steps, repeats = (1000, 5) if size.full else (100, 2)
    trees = {
        name: TreeSettings(balancer=name, compare="ideal", iterations=steps)
        for name in ("optimal", "mcmc")
    }
    runs: dict[str, Callable[[], object]] = {
        f"trees {name}": partial(balance, graph, settings) for name, settings in trees.items()
    }
    runs["strict classify"] = partial(train, graph, seed=size.seed)
    found = []
    for name, run in runs.items():
        row = fastest(name, run, repeats)
        found.append(
            BenchRow(
                name=f"checks of every message, {name}",
                ours=row["endpoint_seconds"],
                peer=row["seconds"],
                ratio=row["seconds"] / max(row["endpoint_seconds"], 1e-9),
                unit=CPU,
                against="the whole run",
                note=f"{row['calls']:,} calls, {row['microseconds_per_call']:.1f} µs each",
            )
        )
    return found
