"""Layers and a model of one's own in the paper profile, beside GCN and GAT: Facebook, simulated.

    python benchmarks/own_layers.py [--graph facebook] [--epochs 60] [--seeds 3] [--out FILE]

All train on the same splits, trees and releases. Layers that are not GCN or GAT see features after
a linear map to 16 (`projection`), because dense features at all nodes do not fit into memory. A
run stops after `--patience` epochs without a better validation score. With `--out`, a cell that the
file has already is not run again.
"""

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import lumos
from lumos.runs.run import Run

with warnings.catch_warnings():  # PyG still scripts a few classes with torch.jit
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GINConv, MessagePassing, SAGEConv, global_mean_pool

PROJECTION = 16


def gin(before: int, after: int) -> Any:
    """GIN with a perceptron of two layers."""
    inner = torch.nn.Linear(before, after), torch.nn.ReLU(), torch.nn.Linear(after, after)
    return GINConv(torch.nn.Sequential(*inner))


class Gated(MessagePassing):  # type: ignore[misc]
    """Each node adds the mean of its neighbours, as far as a gate lets it through."""

    def __init__(self, width: int) -> None:
        super().__init__(aggr="mean")
        self.gate, self.norm = torch.nn.Linear(2 * width, width), torch.nn.LayerNorm(width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """As PyG calls a layer."""
        mean = self.propagate(edge_index, x=x)
        share = torch.sigmoid(self.gate(torch.cat([x, mean], dim=1)))
        out: Tensor = self.norm(x + share * mean)
        return out


class GatedTree(torch.nn.Module):
    """Two gated layers with dropout inside, and the mean of the whole tree beside each node."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first, self.second = Gated(before), Gated(before)
        self.drop = torch.nn.Dropout(0.1)
        self.out = torch.nn.Linear(2 * before, after)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """As `lumos.train(model=…)` calls a model."""
        x = self.drop(torch.relu(self.first(x, edge_index)))
        x = torch.relu(self.second(x, edge_index))
        mean = global_mean_pool(x, batch)[batch]
        out: Tensor = self.out(torch.cat([x, mean], dim=1))
        return out


NETWORKS: dict[str, dict[str, Any]] = {
    "GCN": {"backbone": "gcn"},
    "GAT": {"backbone": "gat"},
    "GraphSAGE": {"backbone": SAGEConv, "projection": PROJECTION},
    "GIN": {"backbone": gin, "projection": PROJECTION},
    "own module": {"model": GatedTree, "projection": PROJECTION},
}


def record(run: Run) -> dict[str, Any]:
    """What the table needs of a run."""
    return {
        "test_accuracy": run.metrics["test_accuracy"],
        "best_epoch": run.model.best_epoch,
        "weights": run.summary()["weights"],
    }


def main() -> None:
    """Measure every network with every seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--graph", default="facebook")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--patience", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    options = ("graph", "epochs", "learning_rate", "patience")
    about = {name: getattr(asked, name) for name in options}
    cells: dict[str, Any] = {}
    if asked.out is not None and asked.out.exists():
        kept = json.loads(asked.out.read_text())
        cells = kept["cells"] if kept["settings"] == about else {}
    graph = lumos.load(asked.graph)
    for seed in range(asked.seeds):
        trees = None
        for name in asked.only:
            key = f"{name}/{seed}"
            if key not in cells:
                if trees is None:
                    settings = lumos.TreeSettings(balancer="mcmc", compare="ideal")
                    trees = lumos.balance(graph, settings, seed=seed)
                run = lumos.train(
                    graph,
                    profile="paper",
                    compare="ideal",
                    seed=seed,
                    trees=trees,
                    epochs=asked.epochs,
                    learning_rate=asked.learning_rate,
                    patience=asked.patience,
                    floor=False,
                    **NETWORKS[name],
                )
                cells[key] = record(run)
                if asked.out is not None:
                    content = {"settings": about, "cells": dict(sorted(cells.items()))}
                    asked.out.write_text(json.dumps(content, indent=1) + "\n")
            print(key, cells[key], flush=True)


if __name__ == "__main__":
    main()
