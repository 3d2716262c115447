"""The paper's training on real device processes, against the simulation of the same devices.

`lumos up --profile paper` on demo graphs and on a part of Facebook, both tasks, GCN and GAT. Both
sides in one run: trees have to be equal, weights and losses agree to 1e-5. The simulation has a
shard for each device, so that torch adds up the numbers of one device as a device does.

    python benchmarks/paper_devices.py [--graphs demo:20 demo:60 facebook:100] [--epochs 30]
        [--backbones gcn gat] [--tasks classify link] [--json FILE]
"""

import argparse
import json
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import lumos
from lumos.storage import read_arrays, write_json

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


def compare(
    graph: str, out: Path, run: dict[str, Any], settings: dict[str, Any]
) -> dict[str, float | bool]:
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
    return {"trees_equal": carried == expected, "weights": weights, "losses": loss}


def line(key: str, cell: dict[str, Any]) -> str:
    """One line of the report."""
    same = "trees equal" if cell["trees_equal"] else "TREES DIFFER"
    far = "" if max(cell["weights"], cell["losses"]) <= LIMIT else " ABOVE THE LIMIT"
    epochs = cell["epochs"]
    return (
        f"{key}: {cell['seconds_per_epoch']:.2f} s an epoch, "
        f"{cell['cpu_seconds'] / epochs * 1e3:.0f} ms of processor time a device, "
        f"{cell['wire_bytes'] / epochs / 1e3:,.0f} kB a device "
        f"({cell['wire_bytes'] / cell['ledger_bytes']:.2f} times the ledger's), "
        f"{cell['megabytes']:.1f} MB of its own; "
        f"{same}, weights {cell['weights']:.1e}, losses {cell['losses']:.1e}{far}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=["demo:20", "demo:60", "facebook:100"])
    parser.add_argument("--tasks", nargs="+", default=["classify", "link"])
    parser.add_argument("--backbones", nargs="+", default=["gcn", "gat"])
    parser.add_argument("--balancer", default="greedy")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--json", type=Path, help="file of results; it is completed")
    asked = parser.parse_args()
    known = asked.json is not None and asked.json.exists()
    found: dict[str, Any] = json.loads(asked.json.read_text()) if known else {}
    for name, task, backbone in product(asked.graphs, asked.tasks, asked.backbones):
        key = f"{name}, {task}, {backbone}"
        if key not in found:
            found[key] = cell(name, task, backbone, asked.balancer, asked.epochs)
            if asked.json is not None:
                write_json(asked.json, found)
        print(line(key, found[key]), flush=True)


def cell(name: str, task: str, backbone: str, balancer: str, epochs: int) -> dict[str, Any]:
    """Run real devices and the simulation."""
    settings: dict[str, Any] = {
        "task": task,
        "backbone": backbone,
        "balancer": balancer,
        "epochs": epochs,
    }
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        graph, out = graph_file(name, folder), folder / "run"
        options = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        run = up(graph, out, "--profile", "paper", *options)
        return {
            "epochs": epochs,
            "balancer": balancer,
            "lost": len(run["lost"]),
            "seconds": run["seconds"],
            "seconds_per_epoch": run["seconds_between_sums"],
            "cpu_seconds": run["cpu_seconds_per_device"],
            "wire_bytes": run["wire_bytes_per_device"],
            "ledger_bytes": run["ledger_bytes_per_device"],
            "megabytes": run["megabytes_per_device"],
            **compare(graph, out, run, settings),
        }


if __name__ == "__main__":
    main()
