"""Real device processes, of which one lies in every sum; and the price of proofs.

`lumos up` runs three times on the same devices: without proofs, with proofs, and with proofs and a
liar, which adds large numbers and claims another self mask. The liar has to be named and excluded,
and the weights have to be those of a run in virtual time in which it was lost before the first sum.
The file of evidence against it is checked with the public files of the run.

    python benchmarks/lying_devices.py [--graph demo:60] [--liar 7] [--epochs 61]
        [--encoder-epochs 16] [--lie LiesAboutPairMasks]

Lies are classes of `tests/secagg/test_bounded.py`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import lumos
from lumos.deploy.evidence import check_evidence
from lumos.deploy.virtual import Federation
from lumos.device.shard import COORDINATOR
from lumos.secagg import AGGREGATORS
from lumos.training.config import Config
from lumos.training.trainer import weights_digest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.deploy.conftest import split_into_devices
from tests.secagg.test_bounded import NoVector

ROOT = Path(__file__).resolve().parent.parent
LIE = """
import os, sys
if "LUMOS_LIAR" in os.environ and "device" in " ".join(sys.argv):
    sys.path.insert(0, {root!r})
    from lumos.secagg import AGGREGATORS
    from lumos.secagg.bounded import BoundedAggregator
    from tests.secagg import test_bounded

    def made(shard, endpoint, settings):
        liar = shard.devices.tolist() == [int(os.environ["LUMOS_LIAR"])]
        lie = getattr(test_bounded, os.environ["LUMOS_LIE"])
        return (lie if liar else BoundedAggregator)(shard, endpoint, settings)

    AGGREGATORS["secure"] = made
"""


def up(
    graph: str, folder: Path, *options: str, liar: int | None = None, lie: str = ""
) -> dict[str, Any]:
    """Run real devices; return what `lumos up --json` prints."""
    environment = dict(os.environ)
    if liar is not None:
        hook = folder / "hook"
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(LIE.format(root=str(ROOT)))
        paths = [str(hook), *filter(None, [environment.get("PYTHONPATH")])]
        environment |= {"LUMOS_LIAR": str(liar), "PYTHONPATH": os.pathsep.join(paths)}
        environment["LUMOS_LIE"] = lie
    out = folder / ("-".join(["run", *options[-1:]]) + ("" if liar is None else "-liar"))
    command = ["lumos", "up", graph, "--randomness", "seeded", "--out", str(out), "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", *command, *options], capture_output=True, text=True, env=environment
    )
    if ran.returncode:
        sys.exit(f"{' '.join(command)}: {ran.stderr.strip().splitlines()[-1:]}")
    printed: dict[str, Any] = json.loads(ran.stdout)
    for file in sorted(out.glob("evidence/device-*.json")):
        found = check_evidence(file, file.parent)
        size = file.stat().st_size / 1000
        print(f"evidence against device {found.device} holds, {size:.1f} kB: {found.lie}")
    return printed


class Lost:
    """Makes one device fall silent before the first sum."""

    def __init__(self, device: int) -> None:
        self.device, self.honest = device, AGGREGATORS["secure"]

    def __call__(self, shard: Any, endpoint: Any, settings: Any) -> Any:
        """Return the aggregator of a shard."""
        lost = shard.devices.tolist() == [self.device]
        return (NoVector if lost else self.honest)(shard, endpoint, settings)


def without(graph: str, folder: Path, liar: int, settings: dict[str, Any]) -> str:
    """Return the digest of weights of a run in virtual time without the device."""
    parts = split_into_devices(graph, folder / "parts")
    honest = AGGREGATORS["secure"]
    AGGREGATORS["secure"] = Lost(liar)  # type: ignore[assignment]
    try:
        config = Config.asked(aggregate="secure", proofs=True, **settings)
        federation = Federation(parts, config)
        federation.run()
    finally:
        AGGREGATORS["secure"] = honest
    job = federation.participants[COORDINATOR].job
    return weights_digest(job.trainer.state_dict("model"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="demo:60")
    parser.add_argument("--liar", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--encoder-epochs", type=int, default=None)
    parser.add_argument("--lie", default="LiesAboutSelfMask")
    asked = parser.parse_args()
    chosen = {"epochs": asked.epochs, "encoder_epochs": asked.encoder_epochs}
    settings = {name: value for name, value in chosen.items() if value is not None}
    epochs = [
        word
        for name, value in settings.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    devices = lumos.load(asked.graph).devices
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        runs = {
            "without proofs": up(asked.graph, folder, *epochs, "--no-proofs"),
            "with proofs": up(asked.graph, folder, *epochs, "--proofs"),
            "with a liar": up(
                asked.graph, folder, *epochs, "--proofs", liar=asked.liar, lie=asked.lie
            ),
        }
        plain = runs["without proofs"]
        for name, run in runs.items():
            print(
                f"{asked.graph}, {devices} devices, {name}: {run['seconds']:.1f} s "
                f"({run['seconds'] / plain['seconds']:.2f} times) with {run['sums']} sums, "
                f"{run['seconds_per_sum']:.2f} s a sum "
                f"({run['seconds_per_sum'] / plain['seconds_per_sum']:.2f} times), "
                f"{1e3 * run['cpu_seconds_per_device'] / run['sums']:.0f} ms of processor time a "
                f"device and sum, {run['wire_bytes_per_device'] / run['sums'] / 1e3:.0f} kB; "
                f"left out: {run['left_out'] or 'nobody'}",
                flush=True,
            )
        same = plain["weights_sha256"] == runs["with proofs"]["weights_sha256"]
        print(f"weights with and without proofs are equal: {'yes' if same else 'NO'}", flush=True)
        expected = without(asked.graph, folder, asked.liar, settings)
        same = runs["with a liar"]["weights_sha256"] == expected
        print(f"weights with the liar are those without it: {'yes' if same else 'NO'}")


if __name__ == "__main__":
    main()
