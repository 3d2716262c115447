"""Edges that a coordinator finds in the timing of devices: in virtual time, and on real processes.

    python benchmarks/timing.py [--graph demo:60] [--runs 30] [--processes 6] [--few demo:12]

Each attack of `lumos.deploy.virtual` runs against devices in virtual time. Then a coordinator
delivers sums to real processes one after another, 0.8 s apart. A line has the area under the curve
for edges with its 95 % interval, and how many pairs the attacker was certain of, and how many of
them were edges.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from lumos.deploy.protocol.frames import Alive, Data, Frame
from lumos.deploy.virtual import (
    ATTACKED,
    ROUNDS,
    TIMING_ATTACKS,
    Federation,
    area_under_curve,
    waiting_scores,
)
from lumos.device.shard import COORDINATOR
from lumos.graph import load
from lumos.secagg.topics import SUM, WRAPPED
from lumos.training.config import Config

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.deploy.conftest import split_into_devices
from tests.deploy.processes import Processes, UnhurriedCoordinator, laid_out

STEP = 0.8
"""Seconds between the deliveries of a sum to two processes."""


def edges_of(graph: str) -> np.ndarray:
    """[devices, devices]"""
    loaded = load(graph)
    edges = np.zeros((loaded.devices, loaded.devices), np.bool_)
    edges[np.repeat(np.arange(loaded.devices), loaded.degrees), loaded.neighbours] = True
    return edges


def show(name: str, areas: list[float], named: list[np.ndarray], edges: np.ndarray) -> None:
    half = 1.96 * np.std(areas, ddof=1) / len(areas) ** 0.5 if len(areas) > 1 else np.nan
    pairs = sum(int(np.triu(one | one.T).sum()) for one in named)
    true = sum(int(np.triu((one | one.T) & edges).sum()) for one in named)
    print(
        f"{name}: area {np.mean(areas):.3f} ± {half:.3f} over {len(areas)} runs; "
        f"{pairs} pairs named, {true} of them edges",
        flush=True,
    )


def virtual(graph: str, runs: int, folder: Path) -> None:
    """All attacks in virtual time."""
    parts, edges = split_into_devices(graph, folder), edges_of(graph)
    for name, attack in TIMING_ATTACKS.items():
        areas, named = [], []
        for seed in range(runs):
            federation = Federation(parts, Config.asked(aggregate="secure", **ATTACKED))
            attacked = attack(federation, seed)
            areas.append(area_under_curve(attacked.run(), edges))
            named.append(attacked.named)
        show(f"{graph}, {name}", areas, named, edges)


class HoldingCoordinator(UnhurriedCoordinator):
    """Holds up sums before rounds between neighbours, each device by another time."""

    notes: Path

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        randomness = np.random.default_rng()
        self._ranks = {phase: randomness.permutation(self.job.total) for phase in ROUNDS}
        self._watched = {(WRAPPED.name, phase) for phase in ROUNDS}
        self._first: dict[int, float] = {}
        self._held: list[tuple[float, int, list[Frame]]] = []
        self.able = {phase: [np.nan] * self.job.total for phase in ROUNDS}
        self.sent = {phase: [np.inf] * self.job.total for phase in ROUNDS}

    def due(self, now: float) -> list[tuple[int, list[Frame]]]:
        """Return the frames to send now, by receiver: sums when they are released."""
        packets = []
        for receiver, frames in super().due(now):
            phases = [
                frame.key.phase + 1
                for frame in frames
                if isinstance(frame, Data) and frame.topic == SUM.name
            ]
            held = [phase for phase in phases if phase in ROUNDS]
            if not held:
                packets.append((receiver, frames))
                continue
            first = self._first.setdefault(held[0], now)
            release = first + STEP * float(self._ranks[held[0]][receiver])
            self.able[held[0]][receiver] = release
            self._held.append((max(now, release), receiver, frames))
        packets += [(receiver, frames) for when, receiver, frames in self._held if when <= now]
        self._held = [item for item in self._held if item[0] > now]
        return packets

    def next_due(self) -> float:
        """Return the time of the next action, also that of a release."""
        return min([super().next_due(), *(when for when, _, _ in self._held)])

    def receive(self, sender: int, frames: list[Frame], now: float) -> None:
        """Note when summands come, and handle frames from a device."""
        for frame in frames:
            if isinstance(frame, Data) and (frame.topic, frame.key.phase) in self._watched:
                sent = self.sent[frame.key.phase]
                sent[sender] = min(sent[sender], now)
            elif isinstance(frame, Alive) and frame.phase > self.job.last:
                notes = {"able": self.able, "sent": self.sent}
                self.notes.write_text(json.dumps(notes))
        super().receive(sender, frames, now)


class Watched(Processes):
    """Real processes with this coordinator."""

    coordinator = HoldingCoordinator


def real(graph: str, runs: int, folder: Path) -> None:
    """Staggered sums on real processes."""
    edges, areas, named = edges_of(graph), [], []
    for run in range(runs):
        layout = laid_out(graph, folder / str(run))
        HoldingCoordinator.notes = folder / f"{run}.json"
        with Watched(layout, dict(ATTACKED), beat=1.0) as federation:
            federation.start_all()
            federation.until(lambda: federation.statuses.get(COORDINATOR) is not None, 600.0)
        notes = json.loads(HoldingCoordinator.notes.read_text())
        able, sent = ([np.array(notes[of][str(at)]) for at in ROUNDS] for of in ("able", "sent"))
        scores, certain = waiting_scores(able, sent, STEP / 3)
        areas.append(area_under_curve(scores, edges))
        named.append(certain)
    show(f"{graph}, real processes, {STEP:g} s apart", areas, named, edges)


def main() -> None:
    parser = argparse.ArgumentParser(description="edges in the timing of devices")
    parser.add_argument("--graph", default="demo:60", help="attacked in virtual time")
    parser.add_argument("--runs", type=int, default=30, help="runs of each attack")
    parser.add_argument("--few", default="demo:12", help="attacked on real processes")
    parser.add_argument("--processes", type=int, default=6, help="runs on real processes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.processes:
            real(options.few, options.processes, Path(folder) / "real")
        if options.runs:
            virtual(options.graph, options.runs, Path(folder) / "virtual")


if __name__ == "__main__":
    main()
