"""A long run of real devices with churn: do memory or files grow?

Twelve devices train for as long as asked; half of them are killed, one after the other, and started
again. What the other half, the coordinator and the folders of all participants take is measured
every few seconds; the means of every tenth of the time are printed, and at the end a verdict: the
last tenth against the second, by which everything is loaded and the allocator has settled.

Private memory alone would mislead: participants are forked, and pages that they share with their
parent become private one by one when they are written to, without anything being added. What a
participant holds is its resident memory, shared or not: what that has grown by is compared with the
private memory.

    python benchmarks/soak.py [--minutes 60] [--graph demo:12]

Losses of all epochs are part of the result: `losses.bin` of the coordinator has 8 bytes for each.
Nothing else may grow.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from lumos.deploy.local_federation import private_megabytes
from lumos.deploy.status import LOSSES
from lumos.device.shard import COORDINATOR

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.deploy.processes import Processes, laid_out

SEED = 19
KILL_SECONDS, DOWN_SECONDS = 5.0, 1.0
TENTHS = 10
EPOCHS = 20_000
"""More than a run of hours has. A device that starts checks the noise of each, so a million of them
would take longer than the time between two kills."""
GROWTH = 0.02
"""What the mean of a tenth may be above that of another one, of as many samples."""


class Sample(NamedTuple):
    """What the participants take: at one moment, or in the mean of a tenth of the time."""

    device: float
    """Mean private megabytes of a device that was never killed."""
    device_all: float
    """Mean resident megabytes of it, shared pages included."""
    coordinator: float
    coordinator_all: float
    files: float
    """Temporary ones, between a write and a rename, not counted."""
    kilobytes: float
    """Of all files of all participants, without `losses`."""
    losses: float
    """Kilobytes of the losses of all epochs."""
    phase: float


HEADS = (
    "device MB", "all of it", "coordinator MB", "all of it", "files", "kB", "kB of losses", "phase"
)  # fmt: skip


def sample(participants: Processes, calm: range) -> Sample:
    """Measure now."""
    sizes = dict(_sizes(participants.layout.path))
    losses = sum(size for path, size in sizes.items() if path.name == LOSSES)
    devices, coordinator = (
        [participants.children[one] for one in calm],
        participants.children[COORDINATOR],
    )
    return Sample(
        fmean(private_megabytes(device) or 0.0 for device in devices),
        fmean(map(resident_megabytes, devices)),
        private_megabytes(coordinator) or 0.0,
        resident_megabytes(coordinator),
        len(sizes),
        (sum(sizes.values()) - losses) / 1000,
        losses / 1000,
        participants.phase(),
    )


def resident_megabytes(process: int) -> float:
    """All memory of a process, shared or not."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _sizes(folder: Path) -> list[tuple[Path, int]]:
    """Of all files; one that is being replaced may be gone in between."""
    found = []
    for path in folder.rglob("*"):
        try:
            if path.is_file() and path.suffix != ".new":
                found.append((path, path.stat().st_size))
        except FileNotFoundError:
            continue
    return found


def mean(samples: list[Sample]) -> Sample:
    return Sample(*map(fmean, zip(*samples, strict=True)))


def line(name: str, values: Sample) -> str:
    return f"{name:10s}" + "".join(f"{value:15.2f}" for value in values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--graph", default="demo:12")
    asked = parser.parse_args()
    draws = np.random.default_rng(SEED)
    tenths: list[Sample] = []
    print(f"{'tenth':10s}" + "".join(f"{head:>15s}" for head in HEADS), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        layout = laid_out(asked.graph, Path(folder) / "federation")
        calm = range(layout.devices // 2)
        with Processes(layout, {"epochs": EPOCHS}) as participants:
            participants.start_all()
            began, kills = time.monotonic(), 0
            for tenth in range(1, TENTHS + 1):
                samples: list[Sample] = []
                while time.monotonic() < began + 60 * asked.minutes * tenth / TENTHS:
                    time.sleep(KILL_SECONDS - DOWN_SECONDS)
                    samples.append(sample(participants, calm))
                    victim = int(draws.integers(calm.stop, layout.devices))
                    participants.kill(victim)
                    time.sleep(DOWN_SECONDS)
                    participants.start(victim)
                    kills += 1
                tenths.append(mean(samples or [sample(participants, calm)]))
                print(line(str(tenth), tenths[-1]), flush=True)
            lines = len(participants.lines().splitlines())
    print(f"{asked.minutes:g} minutes, {kills} kills, {lines} lines in the log of all participants")
    return verdict(tenths[1], tenths[-1])


def verdict(first: Sample, last: Sample) -> int:
    """Print how the last tenth compares with the second; 1 where anything has grown."""
    memory = {
        name: 1 + (getattr(last, f"{name}_all") - getattr(first, f"{name}_all")) / of_first
        for name in ("device", "coordinator")
        if (of_first := getattr(first, name))
    }
    disk = {name: getattr(last, name) / getattr(first, name) for name in ("files", "kilobytes")}
    ratios = {**memory, **disk}
    grown = [name for name, ratio in ratios.items() if ratio > 1 + GROWTH]
    text = ", ".join(f"{name} x{ratio:.3f}" for name, ratio in ratios.items())
    print(f"last tenth / second tenth: {text}")
    print(f"VERDICT: {'GROWS: ' + ', '.join(grown) if grown else 'no growth'}")
    return bool(grown)


if __name__ == "__main__":
    sys.exit(main())
