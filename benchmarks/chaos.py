"""A federation of real processes under kills, lost packets and a partition: the same weights?

20 kills, scripted and seeded, with at most two participants down at once, the coordinator and the
broker among them; 10 % of packets lost, doubled and late; a partition of 10 s. Both sides in one
run: the weights of the simulation, and bytes on the wire against those of the ledger.

    python benchmarks/chaos.py [--graph demo:60] [--kills 20] [--epochs N] [--calm] [--paper]
        [--task link]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import lumos
from lumos.device.shard import COORDINATOR

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.deploy.faults import LinkFaults, NetworkPartition
from tests.deploy.processes import Processes, laid_out

SEED = 19
LONGEST = 3600.0
DOWN_SECONDS = 2.0
BROKER = -2


class Script:
    """Who is killed in which phase, and how many are down at once."""

    def __init__(self, kills: int, phases: int, devices: int) -> None:
        draws = np.random.default_rng(SEED)
        every = np.sort(draws.integers(1, phases - 1, kills))
        victims = draws.integers(0, devices, kills)
        if kills:
            victims[kills // 3], victims[2 * kills // 3] = COORDINATOR, BROKER
        self.kills = list(zip(every.tolist(), victims.tolist(), strict=True))
        self.down: dict[int, float] = {}
        """When each of those that are down comes back."""
        self.done = 0

    def play(self, participants: Processes) -> None:
        """Start who has been down long enough; kill who is next, if not too many are down."""
        now = time.monotonic()
        for victim, back in list(self.down.items()):
            if now >= back:
                del self.down[victim]
                if victim == BROKER:
                    participants.broker.restart()
                else:
                    participants.start(victim)
        while self.kills and len(self.down) < 2 and participants.phase() >= self.kills[0][0]:
            _, victim = self.kills.pop(0)
            if victim == BROKER:
                participants.broker.kill()
            elif victim in participants.children:
                participants.kill(victim)
            else:
                continue
            self.down[victim] = now + DOWN_SECONDS
            self.done += 1


def partitioned(devices: int, begin: float) -> list[NetworkPartition]:
    """A tenth of the devices reaches nobody for ten seconds."""
    cut_off = np.random.default_rng(SEED).choice(devices, max(1, devices // 10), replace=False)
    return [NetworkPartition(frozenset(cut_off.tolist()), begin, begin + 10.0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="demo:60")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--calm", action="store_true", help="without any fault, to compare")
    parser.add_argument("--paper", action="store_true", help="the paper's training")
    parser.add_argument("--task", default="classify")
    asked = parser.parse_args()
    settings: dict[str, Any] = {"task": asked.task}
    if asked.epochs is not None:
        settings["epochs"] = asked.epochs
    shards = 1
    if asked.paper:  # torch adds up the numbers of one device as a device does
        settings |= {"profile": "paper", "balancer": "greedy", "select": "last"}
        shards = lumos.load(asked.graph).devices
    simulated = lumos.train(
        asked.graph, aggregate="secure", randomness="seeded", shards=shards, **settings
    )
    expected = simulated.summary()["weights_sha256"]
    with tempfile.TemporaryDirectory() as folder:
        layout = laid_out(asked.graph, Path(folder) / "federation")
        apart = partitioned(layout.devices, time.monotonic() + 30.0)

        def faults(participant: int, starts: int) -> LinkFaults | None:
            if asked.calm:
                return None
            seed = (SEED, participant + 1, starts)
            return LinkFaults(seed, loss=0.1, double=0.1, reorder=0.1, partitions=apart)

        phases = len(simulated.history) + 3
        script = None if asked.calm else Script(asked.kills, phases, layout.devices)
        with Processes(layout, settings, faults=faults, beat=1.0) as participants:
            began = time.monotonic()
            participants.start_all()

            def over() -> bool:
                if script is not None:
                    script.play(participants)
                return not participants.children and (script is None or not script.down)

            participants.until(over, LONGEST)
            report(participants, expected, script, time.monotonic() - began)


def report(participants: Processes, expected: str, script: Script | None, seconds: float) -> None:
    whole, devices = participants.result(COORDINATOR), participants.layout.devices
    results = [participants.result(device) for device in range(devices)]
    wire, ledger = (
        fmean(result[book]["bytes_sent"] + result[book]["bytes_received"] for result in results)
        for book in ("wire", "ledger")
    )
    kills = 0 if script is None else script.done
    print(f"devices {devices}, kills {kills}, left out {len(whole['left_out'])}")
    equal = participants.weights() == {expected}
    print(f"weights {'equal to' if equal else 'DIFFERENT from'} those of the simulation")
    print(f"{whole['sums']} sums in {seconds:.1f} s, {seconds / whole['sums']:.3f} s per sum")
    print(
        f"a device: {wire:,.0f} bytes on the wire, {ledger:,.0f} in the ledger: {wire / ledger:.2f}"
    )
    if not equal:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
