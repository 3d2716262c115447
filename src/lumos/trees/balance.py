"""Balancing a simulated federation: cut the graph into shards, run a balancer, gather the trees.

`balance` runs a whole federation, `balance_parts` the parts that one process hosts;
`expected_comparisons` estimates its cost.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack, get_args

import numpy as np

from lumos.crypto.groups import choose_group
from lumos.device.randomness import PublicRandomness, RandomnessSource
from lumos.device.shard import Shard, shard_of, spread
from lumos.display import ProgressOption, displayed, frame
from lumos.errors import ProtocolError, one_of
from lumos.exchange.endpoint import EVERY_DOOR, Endpoint, Program
from lumos.exchange.observer import LedgerReport, Observer
from lumos.exchange.transports import TRANSPORTS
from lumos.graph import Graph
from lumos.graph.arrays import spans
from lumos.graph.facts import GraphPart, parts_of
from lumos.graph.io import ReadKeywords
from lumos.graph.sources import as_graph
from lumos.trees.balancers import BALANCERS, Balancer, DegreeSums, TreeSettings
from lumos.trees.optimum import certificate, forced_workload, least_largest_workload
from lumos.twoparty.comparer import (
    IDEAL_TOPICS,
    Comparer,
    IdealComparer,
    RefusingComparer,
    SecureComparer,
    recorded,
)
from lumos.twoparty.workers import Workers, make_pool
from lumos.typing import Arrays, Flags, Ints, Progress

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
    randomness: RandomnessSource
    """Source of the devices' secrets."""
    seconds: float

    @property
    def compare(self) -> str:
        """The comparison backend that answered: `secure`, `ideal`, or `none` if none was asked."""
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
    randomness: RandomnessSource = "seeded",
    transport: str = "loopback",
    progress: ProgressOption = None,
    **reading: Unpack[ReadKeywords],
) -> Balanced:
    """Run the tree constructor of a whole federation on this machine.

    Args:
        graph: a `Graph`, a PyG `Data`, a NetworkX graph, or a name or path as `load` takes it. It
            is cut into shards, and no shard sees more than its devices.
        settings: balancer and comparison.
        seed: run seed.
        shards: number of shards that share nothing but the exchange; the result is the same.
        randomness: device secrets from the run seed, or from the operating system.
        transport: what moves the messages, a name of `TRANSPORTS`.
        progress: True shows it; or a callback `(done, total, note)`, called periodically.
        reading: how the graph is read, as `lumos.train` takes it.
    """
    graph = as_graph(graph, **reading)
    settings = settings or TreeSettings()
    one_of("randomness", randomness, get_args(RandomnessSource))
    parts = parts_of(graph, spread(graph.devices, shards), features=False)
    done = balance_parts(
        parts, settings, seed=seed, randomness=randomness, transport=transport, progress=progress
    )
    keep = in_slots(graph.offsets, [part.devices for part in parts], done.kept)
    owner = np.repeat(np.arange(graph.devices), graph.degrees)
    return Balanced(
        graph=graph,
        settings=settings,
        keep=keep,
        workload=np.bincount(owner[keep], minlength=graph.devices),
        ledger=done.ledger,
        history=done.history,
        randomness=randomness,
        seconds=done.seconds,
    )


class BalancedParts(NamedTuple):
    """Balanced trees of the parts that this process hosts, and the observer's record."""

    kept: list[Flags]
    """For each part [slots] whether the device carries the edge."""
    ledger: LedgerReport
    """At rank 0, of everybody."""
    history: list[tuple[int, int]]
    """(iteration, largest workload) whenever it changed; at rank 0."""
    seconds: float


def balance_parts(
    parts: Sequence[GraphPart],
    settings: TreeSettings,
    *,
    seed: int = 0,
    randomness: RandomnessSource = "seeded",
    transport: str = "loopback",
    progress: ProgressOption = None,
) -> BalancedParts:
    """Run the tree constructor for the parts that this process hosts; arguments as in `balance`."""
    balancer = BALANCERS[settings.balancer]
    pieces = [shard_of(part, seed, randomness) for part in parts]
    secret = balancer.compares and settings.compare == "secure"
    workers = make_pool(settings.workers) if secret else None
    try:
        with displayed(progress, "balancing") as shown:
            return _balance(settings, balancer, seed, randomness, pieces, workers, transport, shown)
    finally:
        if workers is not None:
            workers.close()


def _balance(
    settings: TreeSettings,
    balancer: Balancer,
    seed: int,
    randomness: RandomnessSource,
    pieces: list[Shard],
    workers: Workers | None,
    transport: str,
    progress: Progress | None,
) -> BalancedParts:
    total = pieces[0].total
    ideal = IDEAL_TOPICS if balancer.compares and workers is None else frozenset()
    federation = TRANSPORTS[transport](pieces, EVERY_DOOR, ideal)
    observer = federation.observer
    group = choose_group(settings.group, simulated=randomness == "seeded")
    history = _History(settings, progress if workers is None else None)
    degrees = _degree_sums(observer, pieces)
    on_steps = None
    if progress is not None:
        on_steps = _Rate(balancer.expected_comparisons(degrees, settings), progress)

    def device_program(shard: Shard, endpoint: Endpoint) -> Program[Flags]:
        comparer: Comparer
        if not balancer.compares:
            comparer = RefusingComparer()
        elif workers is None:
            comparer = IdealComparer(shard, endpoint, settings.comparison_budget, group)
        else:
            budget = settings.comparison_budget
            comparer = SecureComparer(shard, endpoint, workers, on_steps, budget, group)
        return balancer.device_program(shard, recorded(shard, comparer), settings, history.observe)

    def coordinator_program(_: Endpoint) -> Program[None]:
        return balancer.coordinator_program(np.arange(total), PublicRandomness(seed), settings)

    start = time.perf_counter()
    kept, _ = federation.run(device_program, coordinator_program)
    seconds = time.perf_counter() - start
    if not BALANCERS.is_built_in(settings.balancer):
        _check_covered(settings.balancer, observer, pieces, kept)
    if balancer.iterative and degrees.edges:
        loads = [
            np.bincount(shard.owner[keep], minlength=len(shard)).max(initial=0)
            for shard, keep in zip(pieces, kept, strict=True)
        ]
        history.observe(settings.iterations, int(max(loads)))
    return BalancedParts(kept, federation.ledger(), history.changes(observer), seconds)


def _check_covered(
    name: str, observer: Observer, pieces: Sequence[Shard], kept: Sequence[Flags]
) -> None:
    """Refuse a balancer of somebody else's that leaves an edge to nobody, or returns no flags.

    Only the observer of a simulation can know: neither end sees what the other one keeps.

    Raises:
        ProtocolError: it does.
    """
    for shard, flags in zip(pieces, kept, strict=True):
        slots = len(shard.neighbours)
        if not isinstance(flags, np.ndarray) or flags.dtype != np.bool_ or flags.shape != (slots,):
            raise ProtocolError(f"balancer {name!r} must return {slots:,} booleans for this shard")
    parts: list[Arrays] = []
    for shard, flags in zip(pieces, kept, strict=True):
        own = shard.ids_of(shard.owner)
        edge = np.minimum(own, shard.neighbours) * shard.total + np.maximum(own, shard.neighbours)
        parts.append({"edges": edge[own < shard.neighbours], "covered": edge[flags]})
    gathered = observer.gather("covered edges", parts)
    left = np.empty(0, np.int64)
    if observer.first:
        every = {key: np.concatenate([part[key] for part in gathered]) for key in parts[0]}
        left = np.setdiff1d(every["edges"], every["covered"])
    count = int(observer.add("uncovered edges", np.array([len(left)]))[0])
    if count:
        some = [divmod(int(edge), pieces[0].total) for edge in left[:1]]
        which = "".join(f", as the one between devices {one} and {other}" for one, other in some)
        edges = "1 edge" if count == 1 else f"{count:,} edges"
        raise ProtocolError(
            f"balancer {name!r} leaves {edges} to neither end{which}; every edge needs an end that "
            "keeps it"
        )


def _degree_sums(observer: Observer, pieces: Sequence[Shard]) -> DegreeSums:
    ends = sum(len(shard.neighbours) for shard in pieces)
    squares = sum(int((shard.degree**2).sum()) for shard in pieces)
    both = observer.add("degrees", np.array([ends, squares], np.int64))
    return DegreeSums(int(both[0]) // 2, int(both[1]))


def in_slots(offsets: Ints, hosted: Sequence[Ints], values: Sequence[Flags]) -> Flags:
    """[slots of all devices] values of all parts, in the order of the devices.

    Args:
        offsets: [devices + 1] of all devices.
        hosted: for each part the ids of its devices.
        values: for each part [slots].
    """
    whole, degree = np.zeros(int(offsets[-1]), np.bool_), np.diff(offsets)
    for ids, flags in zip(hosted, values, strict=True):
        whole[spans(offsets[ids], degree[ids])] = flags
    return whole


class _History:
    """The observer's record of the largest workload, step by step.

    Args:
        progress: reports steps; None where comparisons are reported instead.
    """

    def __init__(self, settings: TreeSettings, progress: Progress | None) -> None:
        self._seen: list[tuple[int, int]] = []
        self._iterations = settings.iterations
        self._progress = progress

    def observe(self, iteration: int, largest: int) -> None:
        self._seen.append((iteration, largest))
        if self._progress is not None and iteration % 256 == 0:
            self._progress(iteration, self._iterations, f"largest workload {largest}")

    def changes(self, observer: Observer) -> list[tuple[int, int]]:
        """(iteration, largest workload) whenever it changed.

        In each step the shard that knows the largest workload observes it. At the end every rank
        knows its own largest only, and the largest of them counts.
        """
        mine: Arrays = {"seen": np.array(self._seen, np.int64).reshape(-1, 2)}
        gathered = observer.gather("history", [mine])
        seen = np.concatenate([part["seen"] for part in gathered or [mine]])
        if not len(seen):
            return []
        seen = seen[np.lexsort((seen[:, 1], seen[:, 0]))]
        last = np.append(seen[1:, 0] != seen[:-1, 0], True)  # the largest of each iteration
        steps = seen[last]
        changed = np.append(True, steps[1:, 1] != steps[:-1, 1])
        return [(iteration, largest) for iteration, largest in steps[changed].tolist()]


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


def expected_comparisons(graph: Graph, settings: TreeSettings) -> int:
    """Estimate the comparisons of a run, as its balancer does."""
    return BALANCERS[settings.balancer].expected_comparisons(DegreeSums.of(graph.degrees), settings)
