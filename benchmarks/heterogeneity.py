"""Time per epoch of the paper's training by balancer, on devices of different speed.

Real participants run in one process, in virtual time. Each runs alone, so its processor time in
every round is its own, and so are its bytes. Speeds and links are emulated and drawn by seeds: a
tenth of the devices is five times slower, and each has a delay and bandwidths. The time of an
epoch is the critical path over devices and rounds: a round between neighbours waits for
neighbours, any other for everybody. With ticks it is the time that the protocol itself takes where
its devices are as slow, and its packets as late, as the draw says.

Two scenarios have less than the whole protocol: the tree network alone, timed on trees of many
sizes, and branches alone, whose unit is one branch of a device that is not slow. For them a graph
can be as large as Facebook (`--whole`). `--one-machine` times an epoch of the simulation of all
devices, as the paper did. `--processes` compares the processor time of devices with that of real
processes.

    python benchmarks/heterogeneity.py [--graphs demo:60 facebook:100] [--tasks classify link]
        [--repeats 5] [--epochs 6] [--draws 40] [--whole facebook lastfm]
        [--one-machine facebook lastfm] [--processes demo:60] [--json FILE]
"""

import argparse
import gc
import json
import math
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import nnls

import lumos
from lumos.deploy.protocol.device import DeviceParticipant
from lumos.deploy.protocol.rounds import DeviceRounds
from lumos.deploy.virtual import Federation, Packet
from lumos.device.randomness import PublicRandomness
from lumos.device.shard import COORDINATOR
from lumos.exchange.messages import Outbox
from lumos.graph.parts import PartsFolder
from lumos.model.network import Leaves, device_gradients
from lumos.model.tree_tensors import Piece, span
from lumos.storage import write_json
from lumos.training.config import Config
from lumos.training.split import split_edges
from lumos.trees.balance import Balanced, balance
from lumos.trees.balancers import BALANCERS, ComparesNothing, TreeSettings

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.paper_devices import graph_file
from benchmarks.real_devices import up
from reproduce.device_model import elements_of
from reproduce.epoch_cost import STAND_IN_FEATURES, simulated_federation
from tests.deploy.conftest import split_into_devices

from reproduce import heterogeneity as tables

KINDS = ("none", "greedy", "mcmc", "optimal")
SLOW_SHARE, SLOWER = 0.1, 5.0
DELAY, UPLOAD, DOWNLOAD, SPREAD = 0.025, 1.25e6, 6.25e6, 0.5
"""Median seconds between a device and the server, bytes a second, and σ of their logarithms; the
medians are those of `reproduce.device_model`, where a message passes two such links."""
FIRST_COUNTED = 3
"""The first phase that counts: trees, setup and an epoch with cold caches come before it."""
GRID = 1e-3
"""Seconds between two moments of virtual time: a run with fewer of them is shorter."""
SPLIT_SEED = 0
"""Seed of the parts: it decides which edges are trained on."""
SAMPLED, TIMES = 50, 15
"""Trees that are timed: so many drawn, so many with the most branches, and so many with the most
feature elements; and how often."""


class Given(ComparesNothing):
    """A balancer that knows its result: trees are built before, without cryptography."""

    def __init__(self, trees: Balanced) -> None:
        self._trees = trees

    def device_program(self, shard: Any, *_: Any) -> Any:
        """Return the edges of the hosted device."""
        yield from ()
        offsets, keep = self._trees.graph.offsets, self._trees.keep
        parts = [keep[offsets[one] : offsets[one + 1]] for one in shard.devices]
        return np.concatenate(parts) if parts else keep[:0]


class Devices(NamedTuple):
    """Speeds and links, [devices] each."""

    slowness: np.ndarray
    """Factor on processor time."""
    delay: np.ndarray
    up: np.ndarray
    """Seconds for a byte."""
    down: np.ndarray

    @staticmethod
    def drawn(total: int, seed: tuple[int, ...], *, slow: bool, links: bool) -> "Devices":
        """Draw devices; the same seed has the same slow ones and the same links."""
        randomness = np.random.default_rng(seed)
        slowness = np.ones(total)
        slowness[randomness.choice(total, math.ceil(SLOW_SHARE * total), replace=False)] = SLOWER
        spread = np.exp(SPREAD * randomness.standard_normal((3, total))) * links
        return Devices(
            slowness if slow else np.ones(total),
            DELAY * spread[0],
            spread[1] / UPLOAD,
            spread[2] / DOWNLOAD,
        )


class Round(NamedTuple):
    """One round of an epoch."""

    kind: str
    """neighbours: wait for neighbours; all: wait for all devices; receives: the coordinator
    receives; sends: it answers, once it has received from all."""
    work: np.ndarray
    """[devices] processor seconds since the round before."""
    sent: np.ndarray | float = 0.0
    """[devices] bytes that each sent."""
    received: np.ndarray | float = 0.0
    """[devices] bytes that each received."""


def critical_path(graph: lumos.Graph, rounds: list[Round], devices: Devices) -> float:
    """Return the seconds of one epoch without ticks."""
    now = np.zeros(graph.devices)
    at_server = 0.0
    for one in rounds:
        now = now + devices.slowness * one.work
        if one.kind == "sends":
            now = at_server + devices.delay + devices.down * one.received
            continue
        sent = now + devices.delay + devices.up * one.sent
        at_server = float(sent.max())
        if one.kind == "receives":
            continue
        arrived = np.full(graph.devices, at_server)
        if one.kind == "neighbours":
            arrived = np.zeros(graph.devices)
            owner = np.repeat(np.arange(graph.devices), graph.degrees)
            np.maximum.at(arrived, owner, sent[graph.neighbours])
        now = np.maximum(now, arrived + devices.delay + devices.down * one.received)
    return float(now.max())


def on_grid(moment: float) -> float:
    """Return the next moment at which something may happen in virtual time."""
    return math.ceil(moment / GRID - 1e-6) * GRID


class TimedRounds(DeviceRounds[None]):
    """Rounds that report when a device has worked out what it sends."""

    federation: "MeasuredFederation"

    def _take(self) -> tuple[Outbox, bool]:
        outbox, first = super()._take()
        if first:
            part = outbox.topic.coordinator
            kind = part or ("all" if outbox.awaits is None else "neighbours")
            self.federation.begin_round(self.me, self.phase[0], kind)
        return outbox, first

    def flags(self, tick: int) -> Any:
        """Return flags; the time that they take belongs to ticks."""
        began = time.thread_time()
        found = super().flags(tick)
        self.federation.flags[self.me] += time.thread_time() - began
        return found


class MeasuredFederation(Federation):
    """Measures the processor time and the bytes of each device in each round.

    Virtual time goes on by the processor time of each device, times its slowness, and packets are
    as late as its link has it. The coordinator takes no time.
    """

    def __init__(self, folder: PartsFolder, config: Config, devices: Devices) -> None:
        total = folder.manifest.graph.devices
        self.devices = devices
        self.spent, self.flags = np.zeros(total), np.zeros(total)
        """[devices] processor seconds so far, and those of flags among them."""
        self.marks: dict[int, list[tuple[int, str, float]]] = defaultdict(list)
        """By device, of each round: phase, kind, and seconds without flags when it began."""
        self.bytes: list[dict[tuple[int, int], int]] = [defaultdict(int), defaultdict(int)]
        """Sent and received, by device and number of rounds begun."""
        self._busy, self._up, self._down = np.zeros((3, total))
        """[devices] until when each computes, sends and receives."""
        self._held: list[Packet] | None = None
        self._began = 0.0

        class Rounds(TimedRounds):
            federation = self

        class Device(DeviceParticipant):
            rounds_type = Rounds

        super().__init__(folder, config, latency=0.0, device_type=Device)
        for number in range(total):
            participant = self.participants[number]
            participant.receive = self._timed(number, participant.receive)

    def _timed(self, number: int, call: Callable[..., None]) -> Callable[..., None]:
        def timed(*arguments: Any) -> None:
            with self.working(number):
                call(*arguments)

        return timed

    @contextmanager
    def working(self, number: int) -> Iterator[None]:
        """Count the processor time of a device, and have it busy for as long."""
        self._began = time.thread_time()
        yield
        if number != COORDINATOR:
            spent = time.thread_time() - self._began
            self.spent[number] += spent
            begin = max(self.now, self._busy[number])
            self._busy[number] = begin + spent * self.devices.slowness[number]

    def begin_round(self, number: int, phase: int, kind: str) -> None:
        """Note what a device has spent when it sends the messages of a round."""
        spent = self.spent[number] + time.thread_time() - self._began - self.flags[number]
        self.marks[number].append((phase, kind, spent))

    def decoded(self, packet: Packet) -> list[Any]:
        """Return the frames of a packet; its receiver spends the time."""
        with self.working(packet[1]):
            return super().decoded(packet)

    def _work(self, number: int) -> None:
        held: list[Packet] = []
        self._held = held
        with self.working(number):
            super()._work(number)
        self._held = None
        for packet in held:
            self._send(packet)

    def _send(self, packet: Packet) -> None:
        if self._held is not None:
            self._held.append(packet)  # it leaves when the device has computed it
            return
        sender, receiver, body = packet
        devices, there = self.devices, self.now
        if sender != COORDINATOR:
            self.bytes[0][sender, len(self.marks[sender])] += len(body)
            begin = max(there, self._busy[sender], self._up[sender])
            self._up[sender] = begin + devices.up[sender] * len(body)
            there = self._up[sender] + devices.delay[sender]
        if receiver != COORDINATOR:
            place = len(self.marks[receiver if sender == COORDINATOR else sender])
            self.bytes[1][receiver, place] += len(body)
            begin = max(there + devices.delay[receiver], self._down[receiver])
            there = self._down[receiver] = begin + devices.down[receiver] * len(body)
        self.sent += 1
        self.flying.append((on_grid(there), self.sent, packet))

    def _next_due(self, number: int) -> float:
        due = super()._next_due(number)
        return due if number == COORDINATOR else max(due, on_grid(self._busy[number]))

    def measure(self, epochs: int) -> float:
        """Run until the epochs are over; return virtual seconds of an epoch."""
        began = 0.0
        gc.collect()
        gc.freeze()
        gc.disable()  # a device has few objects; here those of all devices would be searched
        for phase in range(FIRST_COUNTED, FIRST_COUNTED + epochs + 1):
            self.run(until=lambda: self.coordinator.phase == phase)  # noqa: B023
            began = began or self.now
            gc.collect()
        gc.enable()
        gc.unfreeze()
        return (self.now - began) / epochs

    def rounds(self, epochs: int) -> list[Round]:
        """Return the rounds of a median epoch."""
        found, kinds = [], []
        for number in range(self.total):
            marks, mine = self.marks[number], []
            for phase in range(FIRST_COUNTED, FIRST_COUNTED + epochs - 1):
                places = [place for place, mark in enumerate(marks) if mark[0] == phase]
                kinds = [marks[place][1] for place in places]
                mine.append(
                    [
                        (
                            marks[place][2] - marks[place - 1][2],
                            self.bytes[0][number, place + 1],
                            self.bytes[1][number, place + 1],
                        )
                        for place in places
                    ]
                )
            found.append(mine)
        median = np.median(np.array(found), axis=1)  # [devices, rounds, 3]
        return [Round(kind, *median[:, place].T) for place, kind in enumerate(kinds)]


class TreeCost(NamedTuple):
    """Seconds of the tree network: a + b · branches + c · feature elements, (a, b, c) each."""

    forward: np.ndarray
    backward: np.ndarray
    explained: float
    """R² of the fit of both together."""

    def rounds(self, trees: Balanced, width: int) -> list[Round]:
        """Return the rounds of an epoch with no work but this."""
        terms = np.stack([np.ones(trees.graph.devices), trees.workload, elements_of(trees, width)])
        works = [np.maximum(of @ terms, 0.0) for of in (self.forward, self.backward)]
        first, last = Round("neighbours", works[0]), Round("receives", works[1])
        return [first, Round("neighbours", np.zeros(trees.graph.devices)), last]


@lru_cache(1)
def tree_cost(graph: lumos.Graph, seed: int) -> TreeCost:
    """Time the tree network on trees of all sizes, and fit the time of a tree.

    Trees without balancing are the largest, and those of `optimal` get the most features on a leaf.
    """
    terms, times = [], []
    federation: Any
    trainer: Any
    for kind in ("none", "optimal"):
        trainer = federation = None
        gc.collect()  # received features of a whole graph take gigabytes
        config = Config.of(profile="paper", balancer=kind, compare="ideal", epochs=1)
        federation, balanced = simulated_federation(graph, config, seed)
        trainer = federation.trainers[0]
        federation.run(lambda trainer: trainer.setup(), lambda program: program.setup())
        workload = trainer._trees.workload.numpy()
        elements = elements_of(balanced, graph.feature_count)
        chosen = set(np.random.default_rng(seed).permutation(len(workload))[:SAMPLED].tolist())
        for size in (workload, elements):
            chosen |= set(np.argsort(size, kind="stable")[-SAMPLED:].tolist())
        for device in sorted(chosen):
            times.append(tree_seconds(trainer, trainer._trees.single[device]))
            terms.append((1.0, float(workload[device]), float(elements[device])))
    matrix, target = np.array(terms), np.array(times)
    found = np.stack([nnls(matrix, column)[0] for column in target.T], axis=1)
    left, whole = target - matrix @ found, target - target.mean(axis=0)
    return TreeCost(found[:, 0], found[:, 1], 1 - float((left**2).sum() / (whole**2).sum()))


def tree_seconds(trainer: Any, piece: Piece) -> tuple[float, float]:
    """Return processor seconds forward and backward, of one device's tree.

    The least of many: whatever else runs on the machine only adds to them.
    """
    network = trainer.model.network
    own, neighbour = (
        span(trainer._features, piece.devices),
        span(trainer._neighbour, piece.branches),
    )
    found = []
    for _ in range(TIMES):
        began = time.thread_time()
        leaves = network(piece.trees, own, neighbour)
        middle = time.thread_time()
        back = Leaves(*(torch.ones_like(of) for of in leaves))
        [*device_gradients(network, piece.trees, own, neighbour, None, back)]
        found.append((middle - began, time.thread_time() - middle))
    forward, backward = np.min(found, axis=0).tolist()
    return forward, backward


def balanced_trees(
    graph: lumos.Graph, task: str, seed: int, kinds: Sequence[str] = KINDS
) -> dict[str, Balanced]:
    """Return the trees of each balancer; for links those of training edges."""
    if task == "link":
        graph = split_edges(graph, PublicRandomness(SPLIT_SEED)).training
    return {
        kind: balance(graph, TreeSettings(balancer=kind, compare="ideal"), seed=seed)
        for kind in kinds
    }


def path_seconds(
    graph: lumos.Graph,
    rounds: list[Round],
    seed: int,
    draws: int,
    *,
    slow: bool = True,
    links: bool = False,
) -> float:
    """Return the mean of the critical path over draws."""
    found = [
        critical_path(
            graph, rounds, Devices.drawn(graph.devices, (seed, draw), slow=slow, links=links)
        )
        for draw in range(draws)
    ]
    return float(np.mean(found))


def branch_scenarios(trees: Balanced, seed: int, draws: int) -> dict[str, float]:
    """Return the most branches of a device; and with slow ones, where theirs count as more."""
    drawn = (
        Devices.drawn(trees.graph.devices, (seed, draw), slow=True, links=False)
        for draw in range(draws)
    )
    slow = np.mean([(one.slowness * trees.workload).max() for one in drawn])
    return {"branches, equal": float(trees.max_workload), "branches, slow": float(slow)}


def network_scenarios(trees: Balanced, cost: TreeCost, seed: int, draws: int) -> dict[str, float]:
    """Return the seconds of the tree network."""
    graph = trees.graph
    rounds = cost.rounds(trees, graph.feature_count)
    return {
        "tree network, equal": path_seconds(graph, rounds, seed, 1, slow=False),
        "tree network, slow": path_seconds(graph, rounds, seed, draws),
    }


def protocol_scenarios(
    folder: PartsFolder, trees: Balanced, task: str, seed: int, asked: Any
) -> tuple[dict[str, float], np.ndarray]:
    """Return the scenarios of the whole protocol, and [devices] processor seconds of an epoch."""
    graph, name = trees.graph, f"given-{folder.path.name}-{task}-{trees.settings.balancer}-{seed}"
    BALANCERS.register(name, Given(trees))
    config = Config.asked(
        profile="paper",
        task=task,
        balancer=name,
        compare="secure",
        aggregate="secure",
        backbone=asked.backbone,
        epochs=asked.epochs + 2,
    )
    found, measured = {}, []
    for links in (False, True):
        devices = Devices.drawn(graph.devices, (seed, 0), slow=True, links=links)
        federation = MeasuredFederation(folder, config, devices)
        ticks = federation.measure(asked.epochs)
        measured.append(federation.rounds(asked.epochs))
        found[f"protocol, slow{', links' * links}, ticks"] = ticks
    # Twice as many epochs of processor time; bytes are those without delays, which cause
    # repetitions.
    rounds = [
        one._replace(work=(one.work + other.work) / 2) for one, other in zip(*measured, strict=True)
    ]
    found["protocol, equal"] = path_seconds(graph, rounds, seed, 1, slow=False)
    found["protocol, slow"] = path_seconds(graph, rounds, seed, asked.draws)
    found["protocol, slow, links"] = path_seconds(graph, rounds, seed, asked.draws, links=True)
    return found, np.sum([one.work for one in rounds], axis=0)


class Results:
    """What was measured, in a file that is completed."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        known = path is not None and path.exists()
        self.found: dict[str, Any] = json.loads(path.read_text()) if known and path else {}

    def add(self, place: tuple[str, ...], record: Any) -> None:
        """Add a record to a list."""
        at = self.found
        for name in place[:-1]:
            at = at.setdefault(name, {})
        at.setdefault(place[-1], []).append(record)
        if self._path is not None:
            write_json(self._path, self.found)

    def missing(self, place: tuple[str, ...], seed: int) -> list[str]:
        """Return the balancers without a record of a repetition: a run may be stopped anywhere."""
        at: Any = self.found
        for name in place:
            at = at.get(name, {})
        return [kind for kind in KINDS if len(at.get(kind, [])) <= seed]


def federations(name: str, task: str, asked: Any, results: Results) -> None:
    """Measure all balancers, one after another, and that again."""
    with tempfile.TemporaryDirectory() as made:
        path = graph_file(name, Path(made))
        graph = lumos.load(path)
        folder = split_into_devices(path, Path(made) / f"parts-{graph.devices}")
        for seed in range(asked.repeats):
            missing = results.missing(("federations", name, task), seed)
            if not missing:
                continue
            cost = tree_cost(graph, seed)
            for kind, trees in balanced_trees(graph, task, seed, missing).items():
                seconds = network_scenarios(trees, cost, seed, asked.draws)
                measured, spent = protocol_scenarios(folder, trees, task, seed, asked)
                record = {
                    "seed": seed,
                    "largest": trees.max_workload,
                    "processor": float(spent.mean()),
                    "branches": branch_scenarios(trees, seed, asked.draws),
                    "seconds": {**seconds, **measured},
                }
                results.add(("federations", name, task, kind), record)
        show(results, ("federations", name, task))


def with_features(name: str) -> lumos.Graph:
    """Return a graph; one without features gets as many random bits as LastFM has."""
    graph = lumos.load(name)
    if graph.features is not None:
        return graph
    bits = np.random.default_rng(SPLIT_SEED).integers(0, 2, (graph.devices, STAND_IN_FEATURES))
    return replace(graph, features=bits.astype(np.float32))


def whole(name: str, asked: Any, results: Results) -> None:
    """Measure the scenarios that need no protocol on a whole graph."""
    graph = with_features(name)
    for seed, task in product(range(asked.repeats), asked.tasks):
        missing = results.missing(("whole", name, task), seed)
        if not missing:
            continue
        cost = tree_cost(graph, seed)
        for kind, trees in balanced_trees(graph, task, seed, missing).items():
            record = {
                "seed": seed,
                "largest": trees.max_workload,
                "all_branches": int(trees.workload.sum()),
                "branches": branch_scenarios(trees, seed, asked.draws),
                "fit": [of.tolist() for of in (cost.forward, cost.backward)],
                "explained": cost.explained,
                "seconds": network_scenarios(trees, cost, seed, asked.draws),
            }
            results.add(("whole", name, task, kind), record)
    for task in asked.tasks:
        show(results, ("whole", name, task))


def one_machine(name: str, task: Any, asked: Any, results: Results) -> None:
    """Time epochs of the simulation, in which one process computes the trees of all devices."""
    graph = with_features(name)
    for seed in range(asked.repeats):
        for kind in results.missing(("one machine", name, task), seed):
            federation: Any = None
            gc.collect()
            config = Config.of(
                profile="paper", task=task, balancer=kind, compare="ideal", epochs=asked.epochs + 1
            )
            federation, trees = simulated_federation(graph, config, seed)
            federation.run(lambda trainer: trainer.setup(), lambda program: program.setup())
            times = []
            for epoch in range(asked.epochs + 1):
                began = time.process_time()
                federation.run(
                    lambda trainer: trainer.epochs(epoch, epoch + 1),  # noqa: B023
                    lambda program: program.epochs(epoch, epoch + 1),  # noqa: B023
                )
                times.append(time.process_time() - began)
            record = {
                "seed": seed,
                "largest": trees.max_workload,
                "all_branches": int(trees.workload.sum()),
                "seconds": {"one machine": float(np.median(times[1:]))},
            }
            results.add(("one machine", name, task, kind), record)
    show(results, ("one machine", name, task))


def processes(name: str, asked: Any, results: Results) -> None:
    """Compare processor times of devices with those of real processes."""
    short, long = 5, 5 + 5 * asked.epochs
    with tempfile.TemporaryDirectory() as made:
        path = graph_file(name, Path(made))
        graph = lumos.load(path)
        folder = split_into_devices(path, Path(made) / f"parts-{graph.devices}")
        trees = balance(graph, TreeSettings(balancer="greedy", compare="ideal"))
        spent = protocol_scenarios(folder, trees, "classify", 10**6, asked)[1]
        used = []
        for epochs in (short, long):
            out = Path(made) / f"run-{epochs}"
            options = ["--balancer", "greedy", "--backbone", asked.backbone]
            up(path, out, "--profile", "paper", *options, "--epochs", str(epochs))
            of = [
                json.loads((out / "participants" / f"device-{one}" / "result.json").read_text())
                for one in range(graph.devices)
            ]
            used.append(np.array([one["cpu_seconds"] for one in of]))
        real = (used[1] - used[0]) / (long - short)
        record = {
            "emulated": spent.tolist(),
            "real": real.tolist(),
            "degree": graph.degrees.tolist(),
            "workload": trees.workload.tolist(),
        }
        results.add(("processes", name), record)
        print(
            f"{name}: a device's processor time of an epoch: {1e3 * spent.mean():.1f} ms emulated, "
            f"{1e3 * real.mean():.1f} ms in a process; correlation "
            f"{np.corrcoef(spent, real)[0, 1]:.2f}"
        )


def show(results: Results, place: tuple[str, ...]) -> None:
    """Print a line for each scenario."""
    records: Any = results.found
    for name in place:
        records = records[name]
    for scenario in tables.scenarios(records):
        cells = []
        for kind in KINDS:
            time = tables.shown_time(tables.times(records, kind, scenario), scenario)
            saving = tables.shown_saving(tables.saved(records, kind, scenario))
            cells.append(f"{kind} {time} (saves {saving})")
        print(f"{', '.join(place)}; {scenario}: {'; '.join(cells)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="*", default=["demo:60", "facebook:100"])
    parser.add_argument("--tasks", nargs="+", default=["classify", "link"])
    parser.add_argument("--backbone", default="gcn")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--whole", nargs="*", default=["facebook", "lastfm"])
    parser.add_argument("--one-machine", nargs="*", default=["facebook", "lastfm"])
    parser.add_argument("--processes", nargs="*", default=["demo:60"])
    parser.add_argument("--json", type=Path, help="file of results; it is completed")
    asked = parser.parse_args()
    results = Results(asked.json)
    for name, task in product(asked.graphs, asked.tasks):
        federations(name, task, asked, results)
    for name in asked.whole:
        whole(name, asked, results)
    for name, task in product(asked.one_machine, asked.tasks):
        one_machine(name, task, asked, results)
    for name in asked.processes:
        processes(name, asked, results)


if __name__ == "__main__":
    main()
