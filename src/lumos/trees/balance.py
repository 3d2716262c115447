"""Balancing as one job: cut the graph into shards, run a balancer, let the observer look."""

import time
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from lumos.compare.ideal import IdealComparer
from lumos.compare.rounds import Comparer
from lumos.compare.secure import SecureComparer
from lumos.compare.workers import Workers, make_pool
from lumos.device.coins import CoinSource, PublicCoins
from lumos.device.shard import Shard, cut
from lumos.errors import one_of
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.ledger import LedgerReport
from lumos.exchange.loopback import Loopback
from lumos.graph import Graph
from lumos.graph.spans import spans
from lumos.trees.bound import certificate, forced_workload, least_largest_workload
from lumos.trees.greedy import greedy
from lumos.trees.mcmc import mcmc, mcmc_coordinator
from lumos.trees.optimal import optimal, optimal_coordinator
from lumos.trees.settings import TreeSettings
from lumos.typing import Flags, Ints, Progress


@dataclass(frozen=True, kw_only=True, eq=False)
class Balanced:
    """Balanced trees of a simulated federation, as the observer sees them."""

    graph: Graph = field(repr=False)
    settings: TreeSettings
    keep: Flags = field(repr=False)
    """[2 · edges] over the graph's neighbour array: True where the device keeps the neighbour."""
    workload: Ints = field(repr=False)
    """[devices] number of kept neighbours."""
    ledger: LedgerReport = field(repr=False)
    history: list[tuple[int, int]] = field(repr=False)
    """(iteration, largest workload) whenever it changed (mcmc only)."""
    compare: str
    """Which comparison backend ran."""
    coins: CoinSource
    """Where the devices' secrets came from."""
    seconds: float

    @property
    def max_workload(self) -> int:
        """The largest workload."""
        return int(self.workload.max(initial=0))

    def certificate(self) -> Ints:
        """A set of devices whose inner edges force the largest workload, if it is optimal."""
        return certificate(self.graph, self.keep, self.workload)

    def lower_bound(self) -> int:
        """The least possible largest workload: by the certificate, else by maximum flow."""
        forced = forced_workload(self.graph, self.certificate())
        return forced if forced == self.max_workload else least_largest_workload(self.graph)


def balance(
    graph: Graph,
    settings: TreeSettings | None = None,
    *,
    seed: int = 0,
    shards: int = 1,
    coins: CoinSource = "simulated",
    progress: Progress | None = None,
) -> Balanced:
    """Run the tree constructor of a whole federation on this machine.

    Args:
        graph: the graph; it is cut into shards, and no shard sees more than its devices.
        settings: balancer and comparison.
        seed: run seed.
        shards: number of shards that share nothing but the exchange; the result is the same.
        coins: device secrets from the run seed, or from the operating system.
        progress: callback `(done, total, note)`, called periodically.
    """
    settings = settings or TreeSettings()
    one_of("coins", coins, get_args(CoinSource))
    pieces = cut(graph, shards, seed, coins)
    workers = make_pool(settings.workers) if settings.compare == "secure" else None
    try:
        return _balance(graph, settings, seed, coins, pieces, workers, progress)
    finally:
        if workers is not None:
            workers.close()


def _balance(
    graph: Graph,
    settings: TreeSettings,
    seed: int,
    coins: CoinSource,
    pieces: list[Shard],
    workers: Workers | None,
    progress: Progress | None,
) -> Balanced:
    history: list[tuple[int, int]] = []

    def observe(iteration: int, largest: int) -> None:
        if not history or history[-1][1] != largest:
            history.append((iteration, largest))
        if progress is not None and workers is None and iteration % 256 == 0:
            progress(iteration, settings.iterations, f"largest workload {largest}")

    start = time.perf_counter()
    steps = 0
    expected = expected_comparisons(graph, settings)

    def worked(more: int) -> None:
        # A comparison in an open session is four steps, both ends together.
        nonlocal steps
        steps += more
        if progress is not None:
            rate = steps / 4 / (time.perf_counter() - start)
            progress(min(steps / 4, expected), expected, f"{rate:,.0f} comparisons/s")

    def device_program(shard: Shard, endpoint: Endpoint) -> Program[Flags]:
        comparer: Comparer
        if workers is None:
            comparer = IdealComparer(shard, endpoint, settings.comparison_budget)
        else:
            comparer = SecureComparer(shard, endpoint, workers, worked, settings.comparison_budget)
        if settings.balancer == "none":
            return _keep_all(shard)
        if settings.balancer == "greedy":
            return greedy(shard, comparer)
        if settings.balancer == "mcmc":
            return mcmc(shard, comparer, settings.iterations, observe)
        return optimal(shard, comparer)

    def coordinator_program(_: Endpoint) -> Program[None]:
        if settings.balancer == "mcmc":
            return mcmc_coordinator(graph.devices, PublicCoins(seed), settings.iterations)
        if settings.balancer == "optimal":
            return optimal_coordinator(graph.devices)
        return _no_part()

    carrier = Loopback(pieces)
    kept, _ = carrier.run(device_program, coordinator_program)
    seconds = time.perf_counter() - start
    keep = _gather(graph, pieces, kept)
    device = np.repeat(np.arange(graph.devices), graph.degrees)
    workload: Ints = np.bincount(device[keep], minlength=graph.devices)
    if settings.balancer == "mcmc" and graph.edges:
        observe(settings.iterations, int(workload.max()))
    return Balanced(
        graph=graph,
        settings=settings,
        keep=keep,
        workload=workload,
        ledger=carrier.ledger(),
        history=history,
        compare=settings.compare,
        coins=coins,
        seconds=seconds,
    )


def expected_comparisons(graph: Graph, settings: TreeSettings) -> int:
    """How many comparisons a run is likely to need: exact for greedy, else from experience.

    Measured on Facebook, LastFM and Twitch (`benchmarks/bench_balancers.py`): `optimal` asks 5 to
    7 times per edge; a step of `mcmc` asks about 4 times the mean number of edges at an end of an
    edge, after two comparisons of every edge.
    """
    if settings.balancer == "none":
        return 0
    if settings.balancer == "greedy":
        return graph.edges
    if settings.balancer == "optimal":
        return int(6.5 * graph.edges)
    degrees = graph.degrees.astype(np.float64)
    at_an_end = float((degrees**2).sum() / max(1.0, degrees.sum()))
    return int(2 * graph.edges + 4 * at_an_end * settings.iterations)


def _gather(graph: Graph, pieces: list[Shard], kept: list[Flags]) -> Flags:
    """The observer puts the shards' answers together."""
    keep = np.zeros(len(graph.neighbours), np.bool_)
    for shard, flags in zip(pieces, kept, strict=True):
        keep[spans(graph.offsets[shard.devices], shard.degree)] = flags
    return keep


def _keep_all(shard: Shard) -> Program[Flags]:
    yield from ()
    return np.ones(len(shard.neighbours), np.bool_)


def _no_part() -> Program[None]:
    yield from ()
