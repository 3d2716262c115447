"""Real device processes on a part of a real graph, against the simulation of the same devices.

A neighbourhood of a graph, found breadth first, is written to a file, and `lumos up` runs on it:
strict classification, the paper's trees with secret comparisons and one epoch, and strict links.
Both sides in one run: weights, trees and scores have to be the same, bit by bit.

    python benchmarks/real_devices.py [--graph facebook] [--devices 100] [--few 20] [--runs links]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import lumos
from lumos.training.trainer import weights_digest

RUNS = ("classify", "trees", "links")


def neighbourhood(graph: lumos.Graph, size: int) -> np.ndarray:
    """[size] ids of the devices that are nearest to one of middle degree, increasing."""
    found = [int(np.argsort(graph.degrees, kind="stable")[graph.devices // 2])]
    seen = set(found)
    for device in found:
        span = slice(graph.offsets[device], graph.offsets[device + 1])
        for neighbour in graph.neighbours[span].tolist():
            if neighbour not in seen and len(found) < size:
                seen.add(neighbour)
                found.append(neighbour)
    return np.sort(np.array(found))


def write(graph: lumos.Graph, devices: np.ndarray, path: Path) -> None:
    """The graph of some devices, as a file."""
    place = np.full(graph.devices, -1)
    place[devices] = np.arange(len(devices))
    edges = place[graph.edge_list()]
    if graph.features is None or graph.labels is None:
        sys.exit(f"{graph.name}: has no features, or no labels")
    rows: Any = graph.features[devices]
    dense: Any = rows.toarray() if hasattr(rows, "toarray") else rows
    np.savez(
        path,
        edges=edges[(edges >= 0).all(axis=1)],
        features=np.asarray(dense, np.float32),
        target=graph.labels[devices],
    )


def up(path: Path | str, out: Path, *options: str) -> dict[str, Any]:
    """Run real devices; the object that `lumos up --json` prints."""
    command = ["lumos", "up", str(path), "--randomness", "seeded", "--out", str(out), "--keep"]
    ran = subprocess.run(
        [sys.executable, "-m", *command, "--json", *options],
        capture_output=True,
        text=True,
    )
    if ran.returncode:
        sys.exit(f"{' '.join(command)}: {ran.stderr.strip().splitlines()[-1:]}")
    printed: dict[str, Any] = json.loads(ran.stdout)
    return printed


def told(name: str, same: bool, run: dict[str, Any]) -> None:
    """One line of the report."""
    print(
        f"{name:10s} {run['devices']:4d} devices  {run['sums']:3d} sums  "
        f"{run['seconds_in_all']:6.1f} s  {run['megabytes_per_device']:5.1f} MB a device  "
        f"lost {len(run['lost'])}  same as the simulation: {'yes' if same else 'NO'}",
        flush=True,
    )


def trees_agree(graph: lumos.Graph, out: Path) -> bool:
    """Whether every device carries the edges that it carries in the simulation."""
    kept = lumos.balance(graph, lumos.TreeSettings(balancer="optimal")).keep
    for device in range(graph.devices):
        result = json.loads((out / "participants" / f"device-{device}" / "result.json").read_text())
        span = slice(graph.offsets[device], graph.offsets[device + 1])
        if sorted(result["edges_carried"]) != graph.neighbours[span][kept[span]].tolist():
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="facebook")
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--few", type=int, default=20)
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=RUNS)
    asked = parser.parse_args()
    whole = lumos.load(asked.graph)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        many, few = folder / "many.npz", folder / "few.npz"
        write(whole, neighbourhood(whole, asked.devices), many)
        write(whole, neighbourhood(whole, asked.few), few)
        print(f"{asked.graph}: {lumos.load(many)}; {lumos.load(few)}", flush=True)

        if "classify" in asked.runs:
            run = up(many, folder / "classify")
            weights = lumos.train(many, aggregate="secure").model.weights
            told("classify", run["weights_sha256"] == weights_digest(weights), run)

        if "trees" in asked.runs:
            run = up(
                few, folder / "trees", "--profile", "paper", "--balancer", "optimal",
                "--compare", "secure", "--epochs", "1",
            )  # fmt: skip
            told("trees", trees_agree(lumos.load(few), folder / "trees"), run)

        if "links" in asked.runs:
            run = up(few, folder / "links", "--task", "link")
            weights = lumos.train(few, task="link", aggregate="secure").model.weights
            told("links", run["weights_sha256"] == weights_digest(weights), run)


if __name__ == "__main__":
    main()
