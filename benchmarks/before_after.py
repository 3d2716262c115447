"""Costs and link scores of strict before and after one end used an edge, and few labels counted.

    python -m benchmarks.before_after now
    python -m benchmarks.before_after now --links     # links only
    python -m benchmarks.before_after exact           # links without noise in the sums
    PYTHONPATH=OLD/src python -m benchmarks.before_after before    # OLD: a checkout of ece93186

Costs: bytes that a device sends, and processor time of the simulation of one device, of one run.
Links: ROC-AUC on small graphs, five seeds. Results are in docs/results/strict-before-after.json.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.few_labels import generated

import lumos

PATH = Path("docs/results/strict-before-after.json")
SEEDS = 5
FEW = (0.05, 0.05, 0.9)
COSTS: dict[str, dict[str, Any]] = {
    "classification": {},
    "classification, 5 % train": {"split": FEW},
    "links": {"task": "link"},
}


def part_of_facebook(size: int) -> lumos.Graph:
    """Return the devices that are nearest to the first one, and the edges among them."""
    graph = lumos.load("facebook")
    ends = graph.edge_list()
    both = np.concatenate([ends, ends[:, ::-1]])
    near = np.zeros(graph.devices, np.bool_)
    near[0] = True
    order = [np.array([0])]
    while sum(map(len, order)) < size:
        reached = np.unique(both[near[both[:, 0]], 1])
        order.append(reached[~near[reached]])
        near[reached] = True
    kept = np.sort(np.concatenate(order)[:size])
    place = np.full(graph.devices, -1)
    place[kept] = np.arange(size)
    inside = (place[ends] >= 0).all(axis=1)
    features: Any = graph.features
    labels = np.asarray(graph.labels)[kept]
    return lumos.Graph.from_edges(
        place[ends[inside]], devices=size, features=features[kept], labels=labels
    )


def link_graphs() -> dict[str, lumos.Graph]:
    """Return small graphs by name."""
    return {
        **{f"demo:{size}": lumos.load(f"demo:{size}") for size in (800, 1500, 3000)},
        **{f"{size:,} devices of Facebook": part_of_facebook(size) for size in (800, 1500, 3000)},
        **{f"generated {one}": generated(one, (800, 3000)) for one in range(4)},
    }


def cost(graph: lumos.Graph, settings: dict[str, Any]) -> dict[str, float]:
    """Return bytes and seconds of one device."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        run = lumos.train(graph, floor=False, **settings)
        seconds.append((time.process_time() - start) / graph.devices)
    sent = float(np.mean(run.ledger.bytes_sent))
    return {"bytes": sent, "seconds": min(seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("key", choices=["before", "now", "exact"])
    parser.add_argument("--links", action="store_true", help="links on small graphs only")
    options = parser.parse_args()
    key = options.key
    settings: dict[str, Any] = {"protect": "none"} if key == "exact" else {}
    warnings.simplefilter("ignore")
    found = json.loads(PATH.read_text("utf-8")) if PATH.is_file() else {}
    here = found.setdefault(key, {"costs": {}, "links": {}})
    for name in () if settings or options.links else ("facebook", "demo"):
        graph = lumos.load(name)
        for what, given in COSTS.items():
            here["costs"][f"{name}, {what}"] = cost(graph, given)
    for name, graph in link_graphs().items():
        runs = [
            lumos.train(graph, task="link", seed=seed, floor=False, **settings)
            for seed in range(SEEDS)
        ]
        here["links"][name] = [run.metrics["test_auc"] for run in runs]
        print(name, np.round(here["links"][name], 3), flush=True)
        PATH.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
