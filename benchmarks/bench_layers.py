"""Layers on trees: ours beside PyG's on the same trees, and raw words as they are received.

    python benchmarks/bench_layers.py [--graph facebook] [--epochs 5] [--threads N] [--json]

Trees come from the optimal balancer. One epoch is a forward and a backward pass of the whole
network (two layers, ReLU, dropout; ours draws its dropout from the devices' private coins). Both
sides take turns, so that a busy machine slows both, and the best epoch of each counts.

The second table is one run with raw features, ε = 2: release, messages, and epochs over the sparse
branches; it runs in a process of its own, whose peak memory it reports.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import dropout

import lumos
from lumos.device.shard import Shard, cut
from lumos.encode import EncoderSettings, joined, read, recover, release, write
from lumos.model.generic import block_diagonal
from lumos.model.network import Leaves, TreeNetwork
from lumos.model.settings import ModelSettings
from lumos.model.tree_tensors import Trees

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric.nn as pyg

DENSE = 128


def trees_of(name: str) -> tuple[lumos.Graph, lumos.Forest, Shard]:
    graph = lumos.load(name)
    settings = lumos.TreeSettings(balancer="optimal", compare="ideal")
    balanced = lumos.balance(graph, settings)
    ids = np.arange(graph.devices)
    forest = lumos.Forest.grow(ids, graph.offsets, graph.neighbours, balanced.keep)
    return graph, forest, cut(graph, 1, 0)[0]


def network(backbone: str, features: int) -> TreeNetwork:
    made = TreeNetwork(ModelSettings(backbone=backbone), features)
    made.initialise(np.random.default_rng(0))
    return made


def pyg_epoch(
    backbone: str, x: torch.Tensor, edges: torch.Tensor, cached: bool
) -> Callable[[], None]:
    layers = (
        [pyg.GCNConv(DENSE, 16, cached=cached), pyg.GCNConv(16, 16, cached=cached)]
        if backbone == "gcn"
        else [pyg.GATConv(DENSE, 16, heads=4), pyg.GATConv(64, 16)]
    )

    def epoch() -> None:
        h = x
        for layer in layers:
            h = dropout(torch.relu(layer(h, edges)), 0.01)
        h.sum().backward()

    return epoch


def our_epoch(made: TreeNetwork, trees: Trees, own: Any, neighbour: Any, shard: Shard) -> Any:
    step = 0

    def epoch() -> None:
        nonlocal step
        step += 1
        leaves: Leaves = made(trees, own, neighbour, made.drops(trees, shard.coins, step))
        (leaves.own.sum() + leaves.neighbour.sum()).backward()

    return epoch


def best(epochs: dict[str, Callable[[], None]], count: int) -> dict[str, float]:
    """Seconds of the best epoch of each side; they take turns."""
    seconds = dict.fromkeys(epochs, float("inf"))
    for number in range(count + 1):  # the first one warms up
        for side, epoch in epochs.items():
            start = time.perf_counter()
            epoch()
            if number:
                seconds[side] = min(seconds[side], time.perf_counter() - start)
    return seconds


def dense_rows(name: str, count: int) -> list[dict[str, Any]]:
    _, forest, shard = trees_of(name)
    trees = Trees.of(forest)
    own = torch.rand(trees.devices, DENSE)
    neighbour = own[torch.from_numpy(forest.neighbour)].contiguous()
    x, edges, _ = block_diagonal(trees, own, neighbour)
    rows = []
    for backbone in ("gcn", "gat"):
        ours = our_epoch(network(backbone, DENSE), trees, own, neighbour, shard)
        sides = {"ours": ours, "peer": pyg_epoch(backbone, x, edges, False)}
        if backbone == "gcn":
            sides["cached"] = pyg_epoch(backbone, x, edges, True)
        seconds = best(sides, count)
        for side in ("peer", "cached"):
            if side in seconds:
                label = f"{backbone}, {DENSE} dense features"
                label += " (PyG keeps its normalisation)" if side == "cached" else ""
                ratio = seconds[side] / seconds["ours"]
                rows.append(
                    {"name": label, "ours": seconds["ours"], "peer": seconds[side], "ratio": ratio}
                )
    return rows


def raw_run(name: str, count: int) -> dict[str, Any]:
    """One run with raw features. Runs alone in its process, so that the peak is its own."""
    graph, forest, shard = trees_of(name)
    if graph.features is None:
        raise SystemExit(f"{name} has no features")
    settings = EncoderSettings()
    seconds = {}
    start = time.perf_counter()
    receivers = np.bincount(forest.neighbour, minlength=graph.devices)
    released = release(graph.features, receivers, settings, shard.coins)
    seconds["release"] = time.perf_counter() - start

    start = time.perf_counter()
    messages = write(released)
    del released
    rows, body, lengths = messages.part(0)
    # An inbox is sorted by receiver, then sender: the order of the branches.
    by_sender = np.argsort(forest.neighbour, kind="stable")
    arrived = np.empty_like(by_sender)
    arrived[by_sender] = rows
    inbox = joined([(rows, body[arrived], lengths[arrived])], forest.branches)
    del body
    recovered = recover(read(inbox, graph.features.shape[1], noisy=True), settings)
    seconds["messages"] = time.perf_counter() - start

    trees = Trees.of(forest)
    made = network("gcn", graph.features.shape[1])
    epoch = our_epoch(made, trees, graph.features, recovered, shard)
    seconds["epoch"] = best({"ours": epoch}, count)["ours"]
    return {
        "name": f"gcn, {graph.features.shape[1]} raw features, ε = {settings.epsilon:g}",
        "elements": recovered.elements,
        "message_bytes": len(messages.data),
        "seconds": seconds,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "dense_gb": forest.nodes * graph.features.shape[1] * 4 / 1e9,
    }


def show(rows: list[dict[str, Any]], raw: dict[str, Any], threads: int) -> None:
    console = Console(width=110)
    table = Table(title=f"seconds per epoch, {threads} threads")
    for column in ("", "ours", "PyG", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    for row in rows:
        figures = f"{row['ours']:.3f}", f"{row['peer']:.3f}", f"{row['ratio']:.1f}"
        table.add_row(row["name"], *figures)
    console.print(table)
    table = Table(title=raw["name"], show_header=False)
    table.add_row("elements released", f"{raw['elements']:,}")
    table.add_row("bytes of all messages", f"{raw['message_bytes']:,}")
    for what, seconds in raw["seconds"].items():
        table.add_row(f"seconds: {what}", f"{seconds:.2f}")
    table.add_row("peak memory, whole run", f"{raw['peak_rss_mb']:,.0f} MB")
    table.add_row("dense features of all nodes alone", f"{raw['dense_gb']:.1f} GB")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="facebook")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--raw-only", action="store_true", help="the second table, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.raw_only:
        print(json.dumps(raw_run(options.graph, options.epochs)))
        return
    flags = ["--graph", options.graph, "--epochs", str(options.epochs)]
    flags += ["--threads", str(options.threads), "--raw-only"]
    alone = subprocess.run([sys.executable, __file__, *flags], check=True, stdout=subprocess.PIPE)
    raw = json.loads(alone.stdout)
    rows = dense_rows(options.graph, options.epochs)
    if options.json:
        print(json.dumps({"rows": rows, "raw": raw}))
    else:
        show(rows, raw, options.threads)


if __name__ == "__main__":
    main()
