"""The paper's training on real device processes, against the simulation of the same devices.

`lumos up --profile paper` on demo graphs and on a part of Facebook, both tasks, GCN and GAT. Both
sides in one run: trees have to be equal, weights and losses agree to 1e-5.

    python benchmarks/paper_devices.py [--graphs demo:20 demo:60 facebook:100] [--epochs 30]
        [--backbones gcn gat] [--tasks classify link] [--kills 0]
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import lumos
from lumos.storage import read_arrays

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.real_devices import neighbourhood, up, write

LIMIT = 1e-5


def graph_file(name: str, folder: Path) -> str:
    """A graph as `lumos up` takes it: its name, or a file with a part of a large one."""
    whole, _, size = name.partition(":")
    if whole == "demo":
        return name
    path = folder / f"{whole}-{size}.npz"
    graph = lumos.load(whole)
    write(graph, neighbourhood(graph, int(size)), path)
    return str(path)


def compare(graph: str, out: Path, run: dict[str, Any], settings: dict[str, Any]) -> str:
    """The largest differences from the simulation."""
    simulated = lumos.train(
        graph,
        profile="paper",
        aggregate="secure",
        compare="secure",
        floor=False,
        shards=run["devices"],
        **settings,
    )
    found = read_arrays(out / "model.npz")
    weights = max(
        float(np.abs(found[name] - array).max()) for name, array in simulated.model.weights.items()
    )
    losses = np.array([event.loss for event in simulated.history], float)
    loss = float(np.abs(losses - np.array(run["losses"], float)).max())
    carried, whole = [], simulated.data.whole_graph()
    for device in range(whole.devices):
        result = json.loads((out / "participants" / f"device-{device}" / "result.json").read_text())
        carried.append(sorted(result["edges_carried"]))
    owner, keep = np.repeat(np.arange(whole.devices), whole.degrees), simulated.trees.keep
    if settings["task"] == "link":  # trees are of training edges
        whole = simulated.data.training_graph()
        owner = np.repeat(np.arange(whole.devices), whole.degrees)
    expected = [
        whole.neighbours[(owner == device) & keep].tolist() for device in range(whole.devices)
    ]
    same = "trees equal" if carried == expected else "TREES DIFFER"
    verdict = "" if max(weights, loss) <= LIMIT else " ABOVE THE LIMIT"
    return f"{same}, weights {weights:.1e}, losses {loss:.1e}{verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=["demo:20", "demo:60", "facebook:100"])
    parser.add_argument("--tasks", nargs="+", default=["classify", "link"])
    parser.add_argument("--backbones", nargs="+", default=["gcn", "gat"])
    parser.add_argument("--balancer", default="greedy")
    parser.add_argument("--epochs", type=int, default=30)
    asked = parser.parse_args()
    for name in asked.graphs:
        for task in asked.tasks:
            for backbone in asked.backbones:
                settings: dict[str, Any] = {
                    "task": task,
                    "backbone": backbone,
                    "balancer": asked.balancer,
                    "epochs": asked.epochs,
                }
                with tempfile.TemporaryDirectory() as made:
                    folder = Path(made)
                    graph, out = graph_file(name, folder), folder / "run"
                    options = [
                        word for key, value in settings.items() for word in (f"--{key}", str(value))
                    ]
                    run = up(graph, out, "--profile", "paper", *options)
                    agreed = compare(graph, out, run, settings)
                wire, ledger = run["wire_bytes_per_device"], run["ledger_bytes_per_device"]
                print(
                    f"{name:13s} {task:8s} {backbone}: {run['seconds_per_sum']:6.2f} s an epoch, "
                    f"{run['cpu_seconds_per_device'] / asked.epochs * 1e3:4.0f} ms of processor "
                    f"time a device, {wire / asked.epochs / 1e3:,.0f} kB a device "
                    f"({wire / ledger:.2f} times the ledger's), "
                    f"{run['megabytes_per_device']:.1f} MB of its own; {agreed}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
