"""An epoch of the tree layers beside PyG's on the same trees.

Trees come from the optimal balancer. One epoch is a forward and a backward pass of the whole
network (two layers, ReLU, dropout; ours draws its dropout from the devices' private coins), with
128 dense features. The note of a row has what of our epoch is drawing dropout, and how fast its
least traffic moves: every array that it must read or write once, in gigabytes a second.
"""

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import dropout

from lumos.bench.rows import BenchRow, BenchSize, missing, timed_row
from lumos.bench.timing import alternated, seconds_of
from lumos.device.shard import Shard, cut
from lumos.graph import load
from lumos.graph.catalog import CATALOG
from lumos.model.generic import block_diagonal
from lumos.model.network import Leaves, TreeNetwork
from lumos.model.settings import ModelSettings
from lumos.model.tree_tensors import Trees
from lumos.trees.balance import balance
from lumos.trees.forest import Forest
from lumos.trees.settings import TreeSettings

FEATURES = 128
BACKBONES = ("gcn", "gat")
AGAINST = "PyG"
_FULL, _QUICK = "facebook", "demo:5000"


def measure(size: BenchSize) -> list[BenchRow]:
    """A row for each backbone."""
    try:
        with warnings.catch_warnings():  # PyG still scripts a few classes with torch.jit
            warnings.simplefilter("ignore", DeprecationWarning)
            import torch_geometric.nn as pyg
    except ImportError:
        why = "torch_geometric is not installed"
        return [missing(f"epoch of {backbone}", AGAINST, why) for backbone in BACKBONES]
    return rows(_graph_name(size), pyg, turns=9 if size.full else 5, size=size)


def _graph_name(size: BenchSize) -> str:
    """Facebook if it is here and everything is asked for, else a generated graph."""
    if not size.full:
        return _QUICK
    here = size.data_dir is not None and (size.data_dir / CATALOG[_FULL].folders[0]).is_dir()
    return _FULL if here else "demo:20000"


def rows(name: str, pyg: ModuleType, *, turns: int, size: BenchSize) -> list[BenchRow]:
    """The rows of one graph; on one thread, so that both sides have the same."""
    forest, shard = _trees_of(name, size)
    trees = Trees.of(forest)
    own = torch.rand(trees.devices, FEATURES)
    neighbour = own[torch.from_numpy(forest.neighbour)].contiguous()
    x, edges, _ = block_diagonal(trees, own, neighbour)
    found = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for backbone in BACKBONES:
            ours = OurEpoch(backbone, trees, own, neighbour, shard)
            timed = alternated(ours, pyg_epoch(pyg, backbone, x, edges), turns)
            drawn = seconds_of(ours.drops).cpu / timed.ours.cpu
            speed = ours.least_bytes() / 1e9 / timed.ours.cpu
            note = f"{drawn:.0%} draws dropout; {speed:.1f} GB/s of least traffic"
            label = f"epoch of {backbone}, {trees.branches:,} branches"
            found.append(timed_row(label, AGAINST, timed, note))
    finally:
        torch.set_num_threads(threads)
    return found


def _trees_of(name: str, size: BenchSize) -> tuple[Forest, Shard]:
    graph = load(name, data_dir=size.data_dir, features=False)
    settings = TreeSettings(balancer="optimal", compare="ideal")
    balanced = balance(graph, settings, seed=size.seed)
    ids = np.arange(graph.devices)
    forest = Forest.grow(ids, graph.offsets, graph.neighbours, balanced.keep)
    return forest, cut(graph, 1, size.seed)[0]


class OurEpoch:
    """An epoch of our layers; every call is the next."""

    def __init__(
        self, backbone: str, trees: Trees, own: Tensor, neighbour: Tensor, shard: Shard
    ) -> None:
        self.network = TreeNetwork(ModelSettings(backbone=backbone), FEATURES)
        self.network.initialise(np.random.default_rng(0))
        self.trees, self.own, self.neighbour, self.shard = trees, own, neighbour, shard
        self._step = 0

    def drops(self) -> Any:
        """Draw what falls in the next epoch."""
        self._step += 1
        return self.network.drops(self.trees, self.shard.coins, self._step)

    def __call__(self) -> None:
        """Forward and backward."""
        leaves: Leaves = self.network(self.trees, self.own, self.neighbour, self.drops())
        torch.autograd.backward(leaves.own.sum() + leaves.neighbour.sum())

    def least_bytes(self) -> int:
        """Bytes that an epoch cannot avoid to read or write.

        Features in both passes; two kinds of rows of every hidden layer and of the leaves, written
        once and read once.
        """
        features = 2 * (self.own.numel() + self.neighbour.numel())
        kept = 4 * self.trees.branches * sum(self.network.widths)
        return 4 * (features + kept)


def pyg_epoch(pyg: ModuleType, backbone: str, x: Tensor, edges: Tensor) -> Callable[[], None]:
    """An epoch of PyG's layers on all trees as one graph."""
    layers = (
        [pyg.GCNConv(FEATURES, 16), pyg.GCNConv(16, 16)]
        if backbone == "gcn"
        else [pyg.GATConv(FEATURES, 16, heads=4), pyg.GATConv(64, 16)]
    )

    def epoch() -> None:
        h = x
        for layer in layers:
            h = dropout(torch.relu(layer(h, edges)), 0.01)
        torch.autograd.backward(h.sum())

    return epoch
