"""Random forests and the oracle: PyG's layers on all trees as one graph."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lumos import Forest
from lumos.model import ModelSettings
from lumos.model.network import TreeNetwork
from lumos.model.tree_tensors import Trees

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric.nn as pyg

torch.set_num_threads(1)

Oracle = Callable[[TreeNetwork, Forest, Tensor, Tensor], tuple[Tensor, Tensor, list[Any]]]


@pytest.fixture
def random_forest() -> Callable[..., Forest]:
    """A forest of random workloads, some of them 0; the last device is always lone."""

    def grow(seed: int, devices: int = 9, *, virtual_nodes: bool = True) -> Forest:
        rng = np.random.default_rng(seed)
        workload = rng.integers(0, 5, devices)
        workload[-1] = 0
        workload[0] = max(1, workload[0])
        owner = np.repeat(np.arange(devices), workload)
        neighbour = rng.integers(0, devices, len(owner))
        return Forest(
            devices=np.arange(devices),
            owner=owner,
            neighbour=neighbour,
            virtual_nodes=virtual_nodes,
        )

    return grow


@pytest.fixture
def network_of() -> Callable[..., TreeNetwork]:
    """A network with random weights, biases included."""

    def make(features: int, seed: int = 0, **settings: Any) -> TreeNetwork:
        network = TreeNetwork(ModelSettings(**settings), features)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
        return network

    return make


@pytest.fixture
def oracle() -> Oracle:
    """Leaves by PyG on `Forest.edge_index()`, and the PyG layers that hold their gradients."""

    def run(
        network: TreeNetwork, forest: Forest, own: Tensor, neighbour: Tensor
    ) -> tuple[Tensor, Tensor, list[Any]]:
        layers: list[Any] = []
        layer: Any
        for layer in network.layers:
            weight, bias = layer.weight.detach(), layer.bias.detach()
            if network.settings.backbone == "gcn":
                conv = pyg.GCNConv(*weight.shape)
                state = {"lin.weight": weight.T, "bias": bias}
            else:
                heads, width = layer.source.shape
                conv = pyg.GATConv(weight.shape[0], width, heads=heads)
                state = {"lin.weight": weight.T, "bias": bias}
                state |= {"att_src": layer.source.detach()[None]}
                state |= {"att_dst": layer.target.detach()[None]}
            conv.load_state_dict(state)
            layers.append(conv)
        h, edges = all_nodes(forest, own, neighbour), torch.from_numpy(forest.edge_index())
        for conv in layers:
            h = torch.relu(conv(h, edges))
        branches = forest.branches
        if not forest.virtual_nodes:
            return h[: len(forest.devices)], h[len(forest.devices) :], layers
        leaves = torch.cat([h[:branches], h[3 * branches + len(forest.roots) :]])
        return leaves, h[branches : 2 * branches], layers

    return run


def all_nodes(forest: Forest, own: Tensor, neighbour: Tensor) -> Tensor:
    """[nodes, d] features of all nodes, in the forest's order."""
    if not forest.virtual_nodes:
        return torch.cat([own, neighbour])
    zeros = own.new_zeros(forest.branches + len(forest.roots), own.shape[1])
    trees = Trees.of(forest)
    return torch.cat([own[trees.owner], neighbour, zeros, own[trees.lone]])


@pytest.fixture
def nodes_of() -> Callable[[Forest, Tensor, Tensor], Tensor]:
    """Features of all nodes of a forest."""
    return all_nodes
