"""What the endpoint costs: CPU seconds inside its checks and its ledger, beside the whole run.

    python benchmarks/bench_endpoint.py [--graph facebook] [--iterations 1000] [--repeats 5]

Every message is checked and counted twice, on its way out and on its way in, in simulations too. A
row is one kind of run, in the ideal backends, where messages are most of the work: `mcmc` sends
many small batches, training few large ones. The best of `--repeats` runs counts. What the clock
itself costs is measured and taken off.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import lumos
from lumos.exchange import Endpoint


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


def measure(name: str, run: Callable[[], object], repeats: int) -> dict[str, Any]:
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


def main() -> None:
    """Print a row for each kind of run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="facebook")
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    graph = lumos.load(options.graph)
    trees = {
        name: lumos.TreeSettings(balancer=name, compare="ideal", iterations=options.iterations)
        for name in ("greedy", "optimal", "mcmc")
    }
    runs: dict[str, Callable[[], object]] = {
        f"trees {name}": partial(lumos.balance, graph, settings) for name, settings in trees.items()
    }
    runs["strict classify"] = lambda: lumos.train(graph)
    rows = [measure(name, run, options.repeats) for name, run in runs.items()]
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(
            f"{row['run']:<16} {row['seconds']:8.3f} s, in endpoints "
            f"{row['endpoint_seconds']:6.3f} s = {row['share']:6.2%} "
            f"({row['calls']:,} calls, {row['microseconds_per_call']:.1f} µs each)"
        )


if __name__ == "__main__":
    main()
