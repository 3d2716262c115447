"""Time per epoch of the paper's training by balancer, on devices of different speed.

Devices are real participants in one process. Each runs alone, so its processor time of every
round is its own, and so are its bytes. The time of an epoch is the critical path over devices and
rounds: a round between devices waits for neighbours, a round with the coordinator for everybody.
Speeds and links are emulated: a factor on processor time, a delay and a bandwidth for each device,
drawn by seeds. With ticks, everything to the coordinator waits for the next tick, and rounds
between devices end for all at once.

    python benchmarks/heterogeneity.py [--graphs demo:60 facebook:100] [--epochs 8] [--draws 200]
"""

import argparse
import math
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import lumos
from lumos.deploy.protocol.frames import Data
from lumos.deploy.virtual import Federation
from lumos.device.shard import COORDINATOR
from lumos.graph.parts import PartsFolder
from lumos.paper.trainer import PaperTrainer
from lumos.training.config import Config
from lumos.trees.balancers import BALANCERS, ComparesNothing, TreeSettings

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.paper_devices import graph_file
from tests.deploy.conftest import split_into_devices

TICK = 0.1
SLOW_SHARE, SLOWER = 0.1, 5.0
DELAY, BANDWIDTH, SPREAD = 0.02, 10e6 / 8, 0.5
"""Median seconds and bytes a second of a link, and σ of their logarithms."""
FIRST_EPOCH = 2
KINDS = ("none", "greedy", "mcmc", "optimal")


class Given(ComparesNothing):
    """A balancer that knows its result: trees are built before, without cryptography."""

    def __init__(self, graph: lumos.Graph, keep: np.ndarray) -> None:
        self._graph, self._keep = graph, keep

    def device_program(self, shard: Any, *_: Any) -> Any:
        """Return the edges of the hosted device."""
        yield from ()
        offsets = self._graph.offsets
        parts = [self._keep[offsets[one] : offsets[one + 1]] for one in shard.devices]
        return np.concatenate(parts) if parts else self._keep[:0]


class Round(NamedTuple):
    """What happened in one round of an epoch."""

    between: bool
    """True if neighbours wait for each other, False if the coordinator waits for all."""
    work: np.ndarray
    """[devices] processor seconds before its messages left."""
    size: np.ndarray
    """[devices] bytes that each sent, to all its neighbours or to the coordinator."""
    back: np.ndarray
    """[devices] bytes that the coordinator sent to each."""


class Measured(Federation):
    """Notes the processor time of each device in each round, and the bytes that it sends."""

    def __post_init__(self) -> None:
        self.work: dict[tuple[int, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self.size: dict[tuple[int, int, int], int] = defaultdict(int)
        self.tree: dict[tuple[int, int], float] = defaultdict(float)
        super().__post_init__()
        self.watch = self.note

    def _work(self, number: int) -> None:
        participant: Any = self.participants.get(number)
        rounds = getattr(participant, "_rounds", None)
        phase = getattr(participant, "phase", 0)
        place = 0 if rounds is None else sum(rounds._numbers)
        began = time.thread_time()
        super()._work(number)
        if number != COORDINATOR:
            self.work[phase, place][number] += time.thread_time() - began

    def note(self, _now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        """Count bytes of envelopes in an epoch, by phase and device."""
        for frame in frames:
            if isinstance(frame, Data):
                kind = 0 if COORDINATOR not in (sender, receiver) else 1 + (sender == COORDINATOR)
                device = receiver if sender == COORDINATOR else sender
                self.size[frame.key.phase, kind, device] += len(frame.body)


def measured(
    folder: PartsFolder, config: Config, epochs: int
) -> tuple[list[Round], np.ndarray, float]:
    """The rounds of a median epoch, [devices] seconds in the tree network, and virtual seconds."""
    federation = Measured(folder, config)
    trees: dict[int, list[float]] = defaultdict(list)

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(this: PaperTrainer, *arguments: Any) -> Any:
            began = time.thread_time()
            result = method(this, *arguments)
            trees[int(this.shard.devices[0])].append(time.thread_time() - began)
            return result

        return call

    original = PaperTrainer._leaves, PaperTrainer._each
    PaperTrainer._leaves = timed(original[0])  # type: ignore[method-assign]
    PaperTrainer._each = timed(original[1])  # type: ignore[method-assign]
    federation.run(until=lambda: federation.coordinator.phase == FIRST_EPOCH)
    began = federation.now
    federation.run(until=lambda: federation.coordinator.phase == FIRST_EPOCH + epochs)
    seconds = (federation.now - began) / epochs
    PaperTrainer._leaves, PaperTrainer._each = original  # type: ignore[method-assign]
    devices = range(federation.total)
    phases = range(FIRST_EPOCH + 1, FIRST_EPOCH + epochs)
    places = sorted({place for phase, place in federation.work if phase in phases})
    work = np.array(
        [
            np.median(
                [[federation.work[phase, place][one] for one in devices] for phase in phases],
                axis=0,
            )
            for place in places
        ]
    )
    size = np.array(
        [[federation.size[phases[0], kind, one] for one in devices] for kind in range(3)]
    )
    # Rounds: two between neighbours, then those of a sum. Bytes of a kind are sent in equal parts
    # between neighbours, and all at once to the coordinator, which answers with the sum.
    rounds = [Round(True, work[0], size[0] / 2, size[0] * 0)]
    rounds.append(Round(True, work[1], size[0] / 2, size[0] * 0))
    nothing = size[1] * 0
    for place in range(2, len(places)):
        last = place == len(places) - 1
        rounds.append(
            Round(False, work[place], size[1] if last else nothing, size[2] if last else nothing)
        )
    # Forward and backward of one epoch: the first calls are of an epoch that is not counted.
    tree = np.array(
        [np.median(np.add.reduceat(trees[one], range(0, len(trees[one]), 2))) for one in devices]
    )
    return rounds, tree, seconds


def critical_path(
    graph: lumos.Graph,
    rounds: list[Round],
    speed: np.ndarray,
    delay: np.ndarray,
    bandwidth: np.ndarray,
    tick: float,
) -> float:
    """Seconds of one epoch; a tick of 0 for none."""
    now = np.zeros(graph.devices)
    owner = np.repeat(np.arange(graph.devices), graph.degrees)
    for one in rounds:
        done = now + speed * one.work
        sent = done + delay + one.size / bandwidth
        if one.between and not tick:
            now = done.copy()
            np.maximum.at(now, owner, sent[graph.neighbours])
            continue
        if tick:  # what is ready leaves at a tick; flags follow from the second tick on
            done = np.ceil(done / tick) * tick
            sent = done + delay + one.size / bandwidth + 2 * tick * one.between
        everyone = sent.max()
        now = everyone + delay + one.back / bandwidth
        if tick:
            now = np.ceil(now / tick) * tick
    return float(now.max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=["demo:60", "facebook:100"])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--backbone", default="gcn")
    asked = parser.parse_args()
    for name in asked.graphs:
        with tempfile.TemporaryDirectory() as made:
            path = graph_file(name, Path(made))
            graph = lumos.load(path)
            folder = split_into_devices(path, Path(made) / "parts")
            before: dict[str, float] = {}
            for kind in KINDS:
                keep = lumos.balance(graph, TreeSettings(balancer=kind, compare="ideal")).keep
                BALANCERS.register(f"given-{name}-{kind}", Given(graph, keep))
                config = Config.asked(
                    profile="paper",
                    balancer=f"given-{name}-{kind}",
                    compare="secure",
                    aggregate="secure",
                    backbone=asked.backbone,
                    epochs=asked.epochs + 1,
                )
                rounds, tree, seconds = measured(folder, config, asked.epochs)
                found = report(graph, rounds, tree, asked.draws)
                workload = np.bincount(np.repeat(np.arange(graph.devices), graph.degrees)[keep])
                shown = []
                for scenario, value in found.items():
                    saved = 1 - value / before.setdefault(scenario, value)
                    shown.append(f"{scenario} {1e3 * value:.1f} ms ({100 * saved:+.1f} %)")
                print(
                    f"{name} {kind:8s} largest workload {workload.max()}: {'; '.join(shown)}; "
                    f"in virtual time {seconds:.2f} s",
                    flush=True,
                )


def report(
    graph: lumos.Graph, rounds: list[Round], tree: np.ndarray, draws: int
) -> dict[str, float]:
    """Mean seconds of an epoch by scenario."""
    ones, n = np.ones(graph.devices), graph.devices
    found: dict[str, list[float]] = defaultdict(list)
    for draw in range(draws):
        randomness = np.random.default_rng(draw)
        slow = ones.copy()
        slow[randomness.choice(n, math.ceil(SLOW_SHARE * n), replace=False)] = SLOWER
        delay = DELAY * np.exp(SPREAD * randomness.standard_normal(n))
        bandwidth = BANDWIDTH * np.exp(SPREAD * randomness.standard_normal(n))
        none, fast = 0 * ones, np.inf * ones
        found["equal devices, no links"].append(critical_path(graph, rounds, ones, none, fast, 0))
        found["10 % five times slower, no links"].append(
            critical_path(graph, rounds, slow, none, fast, 0)
        )
        found["the same with links"].append(critical_path(graph, rounds, slow, delay, bandwidth, 0))
        found["the same with ticks"].append(
            critical_path(graph, rounds, slow, delay, bandwidth, TICK)
        )
        found["tree network alone"].append(float(tree.max()))
        found["tree network alone, 10 % slower"].append(float((slow * tree).max()))
    return {scenario: float(np.mean(values)) for scenario, values in found.items()}


if __name__ == "__main__":
    main()
