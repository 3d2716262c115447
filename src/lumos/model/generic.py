"""Any PyG layer on trees, by name: all nodes of all trees as one graph."""

import warnings

import numpy as np
import torch
from torch import Tensor

from lumos.errors import UsageError
from lumos.model.dropout import Activation, Drops
from lumos.model.feature_products import Features, as_dense
from lumos.model.tree_tensors import Trees

FAST = ("gcn", "gat")
"""Backbones that have layers of their own for trees."""


LAYERS = {
    "arma": "ARMAConv",
    "cluster": "ClusterGCNConv",
    "gatv2": "GATv2Conv",
    "general": "GeneralConv",
    "gin": "GINConv",
    "graph": "GraphConv",
    "le": "LEConv",
    "mf": "MFConv",
    "res-gated": "ResGatedGraphConv",
    "sage": "SAGEConv",
    "sg": "SGConv",
    "tag": "TAGConv",
    "transformer": "TransformerConv",
}
"""PyG layers by name: made from the widths of input and output, called with x and edge_index."""


def generic_layers(name: str, inputs: list[int], outputs: list[int]) -> list[torch.nn.Module]:
    """PyG layers of these widths.

    Raises:
        UsageError: no layer has this name; the message lists those that exist.
    """
    if name not in LAYERS:
        raise UsageError(
            f"backbone {name!r} does not exist; use one of {', '.join([*FAST, *LAYERS])}"
        )
    with warnings.catch_warnings():  # PyG still scripts a few classes with torch.jit
        warnings.simplefilter("ignore", DeprecationWarning)
        import torch_geometric.nn as pyg
    make = getattr(pyg, LAYERS[name])
    layers: list[torch.nn.Module] = []
    for before, after in zip(inputs, outputs, strict=True):
        if name == "gin":
            inner = torch.nn.Linear(before, after), torch.nn.ReLU(), torch.nn.Linear(after, after)
            layers.append(make(torch.nn.Sequential(*inner)))
        else:
            layers.append(make(before, after))
    return layers


def generic_leaves(
    layers: torch.nn.ModuleList,
    trees: Trees,
    own: Features,
    neighbour: Features,
    drops: Drops | None,
    *,
    activate_last: bool,
) -> tuple[Tensor, Tensor]:
    """Own leaves and neighbour leaves after the last layer. O(nodes · features) memory."""
    x, edges, kinds = block_diagonal(trees, as_dense(own), as_dense(neighbour))
    ends = np.cumsum(list(kinds.values())).tolist()

    def by_kind(rows: Tensor) -> dict[str, Tensor]:
        return {
            kind: rows[end - size : end]
            for (kind, size), end in zip(kinds.items(), ends, strict=True)
        }

    for number, layer in enumerate(layers):
        x = layer(x, edges)
        if number < len(layers) - 1 or activate_last:
            parts = by_kind(x).items()
            activation = Activation(number, drops)
            x = torch.cat(
                [activation.clipped(rows * activation.factor, kind) for kind, rows in parts]
            )
    nodes = by_kind(x)
    if not trees.virtual_nodes:
        return nodes["centre"], nodes["leaf"]
    return torch.cat([nodes["own"], nodes["lone"]]), nodes["neighbour"]


def block_diagonal(
    trees: Trees, own: Tensor, neighbour: Tensor
) -> tuple[Tensor, Tensor, dict[str, int]]:
    """Features [nodes, d], edges [2, …] and the number of nodes of each kind, in `Forest`'s order.

    Virtual nodes have zero features.
    """
    branches = trees.branches
    branch = torch.arange(branches)
    if trees.virtual_nodes:
        rooted = trees.workload > 0
        root_number = torch.cumsum(rooted, 0) - 1
        virtual = own.new_zeros(branches + int(rooted.sum()), own.shape[1])
        x = torch.cat([trees.repeated(own), neighbour, virtual, own[trees.lone]])
        root = 3 * branches + root_number[trees.owner]
        up = torch.cat([branch, branches + branch, 2 * branches + branch])
        down = torch.cat([2 * branches + branch, 2 * branches + branch, root])
        kinds = {"own": branches, "neighbour": branches, "parent": branches}
        kinds |= {"root": int(rooted.sum()), "lone": len(trees.lone)}
    else:
        x = torch.cat([own, neighbour])
        up, down = trees.devices + branch, trees.owner
        kinds = {"centre": trees.devices, "leaf": branches}
    return x, torch.stack([torch.cat([up, down]), torch.cat([down, up])]), kinds
