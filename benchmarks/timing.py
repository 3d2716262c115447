"""Edges that a coordinator finds in the timing of devices: in virtual time, and on real processes.

    python benchmarks/timing.py [--graph demo:60] [--runs 30] [--before 10] [--few demo:12]
        [--processes 10] [--attacks NAME …] [--json docs/results/timing.json]

Each timing attack of `lumos.deploy.virtual` runs against devices in virtual time, and against the
broken variant that goes on as soon as it has what its neighbours sent ("before"). Then a
coordinator delivers sums to real processes one after another, 0.8 s apart. A line has the area
under the curve for edges with its standard error, how many pairs the attacker was certain of, and
how many of them were edges. Runs that are in the file are not made again.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from lumos.deploy.attacks import (
    EdgesFound,
    WaitingDevice,
    attacked_run,
    edges_of,
    split_into_devices,
)
from lumos.deploy.protocol.device import DeviceParticipant
from lumos.deploy.protocol.frames import Alive, Data, Frame
from lumos.deploy.virtual import ATTACKED, ROUNDS, TIMING_ATTACKS, waiting_scores
from lumos.device.shard import COORDINATOR
from lumos.graph import load
from lumos.secagg.topics import SUM, WRAPPED
from lumos.storage import read_json

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.deploy.processes import Processes, UnhurriedCoordinator, laid_out

STEP = 0.8
"""Seconds between the deliveries of a sum to two processes."""
PROCESSES = f"real processes, sums {STEP:g} s apart"


class Results:
    """Edges found by graph, attack and kind of device, in a file if there is one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        found: dict[str, Any] = read_json(path) if path is not None and path.exists() else {}
        self._found = {tuple(key.split("; ")): EdgesFound(**of) for key, of in found.items()}

    def of(self, *key: str) -> EdgesFound:
        """Return the runs so far, to which others are added."""
        return self._found.setdefault(key, EdgesFound())

    def write(self) -> None:
        """Write all results."""
        if self._path is not None:
            found = sorted((key, of) for key, of in self._found.items() if of.areas)
            whole = {"; ".join(key): asdict(of) for key, of in found}
            self._path.write_text(json.dumps(whole, indent=1) + "\n", "utf-8")

    def show(self) -> None:
        """Print a line for each."""
        for key, found in sorted((key, of) for key, of in self._found.items() if of.areas):
            mean = found.mean
            print(
                f"{', '.join(key)}: area {mean.value:.3f}, standard error {mean.error:.3f}, "
                f"{mean.trials} runs; {found.named} pairs named, {found.true} of them edges"
            )


KINDS: dict[str, type[DeviceParticipant]] = {"now": DeviceParticipant, "before": WaitingDevice}


def virtual(graph: str, names: list[str], runs: dict[str, int], results: Results) -> None:
    """All attacks in virtual time."""
    whole = load(graph)
    with tempfile.TemporaryDirectory() as folder:
        parts = split_into_devices(whole, Path(folder) / "parts")
        for kind, many in runs.items():
            for name in names:
                found = results.of(graph, name, kind)
                for seed in range(len(found.areas), many):
                    attacked = attacked_run(parts, name, seed, KINDS[kind])
                    found.add(attacked.scores(), attacked.named, edges_of(whole))
                    results.write()


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


def real(graph: str, runs: int, results: Results) -> None:
    """Staggered sums on real processes."""
    edges, found = edges_of(load(graph)), results.of(graph, PROCESSES, "now")
    while len(found.areas) < runs:
        with tempfile.TemporaryDirectory() as folder:
            layout = laid_out(graph, Path(folder) / "federation")
            HoldingCoordinator.notes = Path(folder) / "notes.json"
            with Watched(layout, dict(ATTACKED), beat=1.0) as federation:
                federation.start_all()
                federation.until(lambda: federation.statuses.get(COORDINATOR) is not None, 600.0)
            notes = json.loads(HoldingCoordinator.notes.read_text())
        able, sent = ([np.array(notes[of][str(at)]) for at in ROUNDS] for of in ("able", "sent"))
        found.add(*waiting_scores(able, sent, STEP / 3), edges)
        results.write()


def main() -> None:
    parser = argparse.ArgumentParser(description="edges in the timing of devices")
    parser.add_argument("--graph", default="demo:60", help="attacked in virtual time")
    parser.add_argument("--runs", type=int, default=30, help="runs of each attack")
    parser.add_argument("--before", type=int, default=10, help="runs without the defence")
    parser.add_argument("--attacks", nargs="*", default=[*TIMING_ATTACKS], help="only these")
    parser.add_argument("--few", default="demo:12", help="attacked on real processes")
    parser.add_argument("--processes", type=int, default=10, help="runs on real processes")
    parser.add_argument("--json", type=Path, help="file of results; it is completed")
    options = parser.parse_args()
    results = Results(options.json)
    runs = {"now": options.runs, "before": options.before}
    virtual(options.graph, options.attacks, runs, results)
    if options.processes:
        real(options.few, options.processes, results)
    results.show()


if __name__ == "__main__":
    main()
