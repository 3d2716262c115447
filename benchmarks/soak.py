"""A long run of real devices with churn: do memory or files grow?

Twelve devices train for as long as asked; half of them are killed, one after the other, and started
again. Prints what the other half, the coordinator and the folders of all parties take, after a
tenth of the time and at the end.

    python benchmarks/soak.py [--minutes 60] [--graph demo:12]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from lumos.deploy.child_processes import private_megabytes
from lumos.device.shard import COORDINATOR

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.deploy.processes import Processes, laid_out

SEED = 19
KILL_SECONDS, DOWN_SECONDS = 5.0, 1.0


class Sample(NamedTuple):
    """What the parties take at one moment."""

    devices: float
    """Mean private megabytes of a device that was never killed."""
    coordinator: float
    files: int
    kilobytes: float
    """Of all files of all parties."""
    phase: int


def sample(parties: Processes, calm: range) -> Sample:
    """Measure now."""
    files = [path.stat().st_size for path in parties.layout.path.rglob("*") if path.is_file()]
    return Sample(
        fmean(private_megabytes(parties.children[device]) or 0.0 for device in calm),
        private_megabytes(parties.children[COORDINATOR]) or 0.0,
        len(files),
        sum(files) / 1000,
        parties.phase(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--graph", default="demo:12")
    asked = parser.parse_args()
    draws = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as folder:
        layout = laid_out(asked.graph, Path(folder) / "federation")
        calm = range(layout.devices // 2)
        with Processes(layout, {"epochs": 1_000_000}) as parties:
            parties.start_all()
            began = time.monotonic()
            end = began + 60 * asked.minutes
            warm = began + 6 * asked.minutes
            first, kills = None, 0
            while time.monotonic() < end:
                time.sleep(KILL_SECONDS - DOWN_SECONDS)
                victim = int(draws.integers(calm.stop, layout.devices))
                parties.kill(victim)
                time.sleep(DOWN_SECONDS)
                parties.start(victim)
                kills += 1
                if first is None and time.monotonic() >= warm:
                    first = sample(parties, calm)
            report(first or sample(parties, calm), sample(parties, calm), kills, asked.minutes)


def report(first: Sample, last: Sample, kills: int, minutes: float) -> None:
    print(f"{minutes:g} minutes, {kills} kills, {last.phase} phases")
    print("                          after a tenth      at the end   ratio")
    for name, unit in (
        ("devices", "MB"),
        ("coordinator", "MB"),
        ("files", ""),
        ("kilobytes", "kB"),
    ):
        one, other = getattr(first, name), getattr(last, name)
        print(f"{name:22s}{one:15.1f} {unit:2s}{other:13.1f} {unit:2s}{other / one:8.2f}")


if __name__ == "__main__":
    main()
