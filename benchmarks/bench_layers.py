"""An epoch of the tree layers beside PyG's on the same trees.

Trees come from the optimal balancer. One epoch is a forward and a backward pass of the whole
network (two layers, ReLU, dropout; ours draws its dropout from the devices' private randomness),
with 128 dense features, on one thread.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from benchmarks.bench import Row, Size, alternated, seconds_of
from torch import Tensor
from torch.nn.functional import dropout

from lumos.device.shard import Shard, cut
from lumos.graph import load
from lumos.graph.catalog import CATALOG
from lumos.model import ModelSettings
from lumos.model.dropout import Drops
from lumos.model.network import Leaves, TreeNetwork
from lumos.model.tree_tensors import Trees
from lumos.trees.balance import balance
from lumos.trees.balancers import TreeSettings
from lumos.trees.forest import Forest

FEATURES = 128


def layers(size: Size) -> list[Row]:
    """Measure both backbones: on Facebook if it is here, else on a generated graph."""
    here = size.data_dir is not None and (size.data_dir / CATALOG["facebook"].folders[0]).is_dir()
    name = ("facebook" if here else "demo:20000") if size.full else "demo:5000"
    return rows(name, 9 if size.full else 5, size)


def rows(name: str, turns: int, size: Size) -> list[Row]:
    forest, shard = _trees_of(name, size)
    trees = Trees.of(forest)
    own = torch.rand(trees.devices, FEATURES)
    neighbour = own[torch.from_numpy(forest.neighbour)].contiguous()
    rows_of = {"own": trees.repeated(own), "neighbour": neighbour, "lone": own[trees.lone]}
    x, edges = trees.graph.nodes(rows_of), trees.graph.edge_index
    found = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for backbone in ("gcn", "gat"):
            ours = OurEpoch(backbone, trees, own, neighbour, shard)
            label = f"epoch of {backbone}, {trees.branches:,} branches"
            row = alternated(label, ours, pyg_epoch(backbone, x, edges), turns, "PyG")
            drawn = seconds_of(ours.drops) / row.ours
            found.append(replace(row, note=f"{drawn:.0%} draws dropout"))
    finally:
        torch.set_num_threads(threads)
    return found


def _trees_of(name: str, size: Size) -> tuple[Forest, Shard]:
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

    def drops(self) -> Drops | None:
        """Draw what falls in the next epoch."""
        self._step += 1
        return self.network.drops(self.trees, self.shard.randomness, self._step)

    def __call__(self) -> None:
        """Forward and backward."""
        leaves: Leaves = self.network(self.trees, self.own, self.neighbour, self.drops())
        torch.autograd.backward(leaves.own.sum() + leaves.neighbour.sum())


def pyg_epoch(backbone: str, x: Tensor, edges: Tensor) -> Callable[[], None]:
    """Return an epoch of PyG's layers on all trees as one graph."""
    with warnings.catch_warnings():  # PyG still scripts a few classes with torch.jit
        warnings.simplefilter("ignore", DeprecationWarning)
        import torch_geometric.nn as pyg

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
