"""Balancing a simulated federation: cut the graph into shards, run a balancer, gather the trees."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from lumos.compare.answers import recorded
from lumos.compare.comparer import Comparer, RefusingComparer
from lumos.compare.ideal import IDEAL_TOPICS, IdealComparer
from lumos.compare.secure import SecureComparer
from lumos.device.coins import CoinSource, PublicCoins
from lumos.device.shard import Shard, cut
from lumos.display import DISPLAYS
from lumos.errors import one_of
from lumos.exchange.carrier import CARRIERS
from lumos.exchange.endpoint import EVERY_DOOR, Endpoint, Program
from lumos.exchange.ledger_report import LedgerReport
from lumos.frames import frame
from lumos.graph import Graph
from lumos.graph.neighbour_lists import spans
from lumos.graph.sources import as_graph
from lumos.progress import ProgressOption, displayed
from lumos.session.worker_processes import make_pool
from lumos.session.workers import Workers
from lumos.trees.balancers import BALANCERS, Balancer
from lumos.trees.optimum import certificate, forced_workload, least_largest_workload
from lumos.trees.settings import TreeSettings
from lumos.typing import Flags, Ints, Progress

if TYPE_CHECKING:
    import pandas


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
    """(iteration, largest workload) whenever it changed (iterative balancers only)."""
    coins: CoinSource
    """Where the devices' secrets came from."""
    seconds: float

    @property
    def compare(self) -> str:
        """Which comparison backend answered: `secure`, `ideal`, or `none` if nothing was asked."""
        return self.settings.compare if self.ledger.comparisons else "none"

    @property
    def max_workload(self) -> int:
        """The largest workload."""
        return int(self.workload.max(initial=0))

    def __repr__(self) -> str:
        name = self.graph.name.strip() or "a graph in memory"
        return (
            f"Balanced({name}, {self.settings.balancer}: largest workload {self.max_workload:,}, "
            f"largest degree {int(self.graph.degrees.max(initial=0)):,}, "
            f"{self.ledger.comparisons:,} comparisons ({self.compare}), {self.seconds:.2f} s)"
        )

    def _repr_html_(self) -> str:
        """For notebooks: workloads before and after."""
        shown: str = DISPLAYS["balanced"](self)
        return shown

    def frame(self) -> "pandas.DataFrame":
        """Devices as a pandas frame: `device` (original id), `degree`, `workload`."""
        devices = list(self.graph.ids)
        return frame({"device": devices, "degree": self.graph.degrees, "workload": self.workload})

    def certificate(self) -> Ints:
        """A set of devices whose inner edges force the largest workload, if it is optimal."""
        return certificate(self.graph, self.keep, self.workload)

    def lower_bound(self) -> int:
        """The least possible largest workload: by the certificate, else by maximum flow."""
        forced = forced_workload(self.graph, self.certificate())
        return forced if forced == self.max_workload else least_largest_workload(self.graph)


def balance(
    graph: Any,
    settings: TreeSettings | None = None,
    *,
    seed: int = 0,
    shards: int = 1,
    coins: CoinSource = "simulated",
    carrier: str = "loopback",
    progress: ProgressOption = None,
) -> Balanced:
    """Run the tree constructor of a whole federation on this machine.

    Args:
        graph: a `Graph`, a PyG `Data`, a NetworkX graph, or a name or path as `load` takes it. It
            is cut into shards, and no shard sees more than its devices.
        settings: balancer and comparison.
        seed: run seed.
        shards: number of shards that share nothing but the exchange; the result is the same.
        coins: device secrets from the run seed, or from the operating system.
        carrier: what moves the messages, a name of `CARRIERS`.
        progress: True shows it; or a callback `(done, total, note)`, called periodically.
    """
    graph = as_graph(graph)
    settings = settings or TreeSettings()
    one_of("coins", coins, get_args(CoinSource))
    balancer = BALANCERS[settings.balancer]
    pieces = cut(graph, shards, seed, coins)
    secret = balancer.compares and settings.compare == "secure"
    workers = make_pool(settings.workers) if secret else None
    try:
        with displayed(progress, "balancing") as shown:
            return _balance(graph, settings, balancer, seed, coins, pieces, workers, carrier, shown)
    finally:
        if workers is not None:
            workers.close()


def _balance(
    graph: Graph,
    settings: TreeSettings,
    balancer: Balancer,
    seed: int,
    coins: CoinSource,
    pieces: list[Shard],
    workers: Workers | None,
    carrier: str,
    progress: Progress | None,
) -> Balanced:
    history = _History(settings, progress if workers is None else None)
    on_steps = None
    if progress is not None:
        on_steps = _Rate(balancer.expected_comparisons(graph, settings), progress)

    def device_program(shard: Shard, endpoint: Endpoint) -> Program[Flags]:
        comparer: Comparer
        if not balancer.compares:
            comparer = RefusingComparer()
        elif workers is None:
            comparer = IdealComparer(shard, endpoint, settings.comparison_budget)
        else:
            budget = settings.comparison_budget
            comparer = SecureComparer(shard, endpoint, workers, on_steps, budget)
        return balancer.device_program(shard, recorded(shard, comparer), settings, history.observe)

    def coordinator_program(_: Endpoint) -> Program[None]:
        return balancer.coordinator_program(graph.devices, PublicCoins(seed), settings)

    start = time.perf_counter()
    ideal = IDEAL_TOPICS if balancer.compares and workers is None else frozenset()
    federation = CARRIERS[carrier](pieces, EVERY_DOOR, ideal)
    kept, _ = federation.run(device_program, coordinator_program)
    seconds = time.perf_counter() - start
    keep = _gather(graph, pieces, kept)
    device = np.repeat(np.arange(graph.devices), graph.degrees)
    workload: Ints = np.bincount(device[keep], minlength=graph.devices)
    if balancer.iterative and graph.edges:
        history.observe(settings.iterations, int(workload.max()))
    return Balanced(
        graph=graph,
        settings=settings,
        keep=keep,
        workload=workload,
        ledger=federation.ledger(),
        history=history.changes,
        coins=coins,
        seconds=seconds,
    )


class _History:
    """The observer's record of the largest workload, step by step.

    Args:
        progress: reports steps; None where comparisons are reported instead.
    """

    def __init__(self, settings: TreeSettings, progress: Progress | None) -> None:
        self.changes: list[tuple[int, int]] = []
        self._iterations = settings.iterations
        self._progress = progress

    def observe(self, iteration: int, largest: int) -> None:
        if not self.changes or self.changes[-1][1] != largest:
            self.changes.append((iteration, largest))
        if self._progress is not None and iteration % 256 == 0:
            self._progress(iteration, self._iterations, f"largest workload {largest}")


class _Rate:
    """Reports secret comparisons from steps of the protocol."""

    def __init__(self, expected: int, progress: Progress) -> None:
        self._expected = expected
        self._progress = progress
        self._start = time.perf_counter()
        self._steps = 0

    def __call__(self, steps: int) -> None:
        # A comparison in an open session is four steps, both ends together.
        self._steps += steps
        done = self._steps / 4
        rate = done / (time.perf_counter() - self._start)
        self._progress(min(done, self._expected), self._expected, f"{rate:,.0f} comparisons/s")


def _gather(graph: Graph, pieces: list[Shard], kept: list[Flags]) -> Flags:
    """[2 · edges] the flags of all shards, in the order of the graph's neighbour array."""
    keep = np.zeros(len(graph.neighbours), np.bool_)
    for shard, flags in zip(pieces, kept, strict=True):
        keep[spans(graph.offsets[shard.devices], shard.degree)] = flags
    return keep
