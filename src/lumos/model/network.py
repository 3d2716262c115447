"""The network that every device runs on its tree, for all devices of a shard at once.

After `TreeNetwork` come the gradient of each device by itself, POOL, and PyG layers by name.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lumos.device.randomness import PrivateRandomness
from lumos.errors import UsageError
from lumos.model import POOLINGS, ModelSettings, Pooling
from lumos.model.dropout import Activation, Drops, sites
from lumos.model.feature_products import Features, as_dense, checked, project, span
from lumos.model.layers import TreeGAT, TreeGCN
from lumos.model.tree_pass import Memory, TreePass
from lumos.model.tree_tensors import Piece, Trees

FAST = ("gcn", "gat")
"""Backbones that have layers of their own for trees."""


class Leaves(NamedTuple):
    """Leaf embeddings after the last layer: what POOL needs and nothing else."""

    own: Tensor
    """[own leaves, output]: of the device itself, leaf i of device `Trees.own_device[i]`; in a
    tree one for each branch, then those of lone devices; in a star one for each device."""
    neighbour: Tensor
    """[branches, output]: of the kept neighbours, to be sent to them."""


class TreeNetwork(torch.nn.Module):
    """l layers on trees or stars (section VI-B), ReLU and dropout after each.

    The layers gcn and gat use the shape of the tree: a device's own leaves are computed once
    as long as they are equal, virtual nodes are skipped while they are zero and where no leaf will
    receive from them, and features are multiplied in whatever sparse form they came. Time and
    memory O(branches · width) per layer, after the first product. Any other PyG layer runs on all
    nodes of the trees as one graph.

    Parameters stand layer by layer in the order that `TreeGCN` and `TreeGAT` document, so
    `torch.nn.utils.parameters_to_vector(network.parameters())` is the vector to aggregate.
    """

    def __init__(self, settings: ModelSettings, features: int) -> None:
        super().__init__()
        self.settings = settings
        self.features = features
        last = settings.layers - 1
        wide = settings.hidden * (settings.heads if settings.backbone == "gat" else 1)
        self.widths = [wide] * last + [settings.output]
        """[layers] width of each layer's output."""
        inputs = [features, *self.widths[:-1]]
        layers: Sequence[torch.nn.Module]
        if settings.backbone == "gcn":
            layers = [TreeGCN(*pair) for pair in zip(inputs, self.widths, strict=True)]
        elif settings.backbone == "gat":
            layers = [TreeGAT(size, settings.hidden, settings.heads) for size in inputs[:-1]]
            layers += [TreeGAT(inputs[-1], settings.output, 1)]
        else:
            layers = generic_layers(settings.backbone, inputs, self.widths)
        self.layers = torch.nn.ModuleList(layers)
        self._memory = Memory()

    def initialise(self, generator: np.random.Generator) -> None:
        """Weights from public randomness: Glorot's uniform distribution, biases 0.

        Of a generic layer, every matrix is drawn so, and vectors are 0.
        """
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.dim() < 2:
                    parameter.zero_()
                    continue
                reach = float(np.sqrt(6 / (parameter.shape[-1] + parameter.shape[-2])))
                values = generator.uniform(-reach, reach, tuple(parameter.shape))
                parameter.copy_(torch.from_numpy(values.astype(np.float32)))

    def drops(self, trees: Trees, randomness: PrivateRandomness, step: int) -> Drops | None:
        """Draw what falls in epoch `step`, from private randomness; None at dropout 0."""
        if self.settings.dropout == 0:
            return None
        expanded = self.settings.backbone not in FAST
        found = sites(trees, self.widths, expanded=expanded)
        return Drops.draw(found, self.settings.dropout, randomness, step, expanded=expanded)

    def forward(
        self, trees: Trees, own: Features, neighbour: Features, drops: Drops | None = None
    ) -> Leaves:
        """Leaf embeddings.

        Args:
            trees: the trees of the devices.
            own: [devices, d] features of the devices themselves.
            neighbour: [branches, d] what is known of the kept neighbours' features.
            drops: what falls, see `drops`; None in evaluation.
        """
        if self.settings.backbone not in FAST:
            last = self.settings.activate_last
            return Leaves(
                *generic_leaves(self.layers, trees, own, neighbour, drops, activate_last=last)
            )
        layers = self._fast
        activations = [self._activation(number, drops) for number in range(len(layers))]
        pairs = list(zip(layers, activations, strict=True))
        tables = [layer.table(activation) for layer, activation in pairs]
        biases = [layer.bias * activation.factor for layer, activation in pairs]
        scores = [layer.scores() for layer in layers]
        dense = isinstance(own, Tensor) and isinstance(neighbour, Tensor)
        plan = TreePass(layers, self._activation, trees, drops, not dense, self._memory)
        # Products of features in another form are made for all trees at once, before the pass.
        rows = [
            one if isinstance(one, Tensor) and dense else project(one, tables[0])
            for one in (checked(own, self.features), checked(neighbour, self.features))
        ]
        return Leaves(*plan.run(rows[0], rows[1], tables, biases, scores))

    @property
    def _fast(self) -> list[TreeGCN | TreeGAT]:
        return [layer for layer in self.layers if isinstance(layer, TreeGCN | TreeGAT)]

    def _activation(self, layer: int, drops: Drops | None) -> Activation:
        last = layer == len(self.layers) - 1
        return Activation(layer, drops, relu=not last or self.settings.activate_last)


# The gradient of each device by itself: what enters the masked sum (door `aggregate`).
#
# The fused backward pass gives their sum at once; this gives the summands, one tree after the
# other, a few milliseconds each: for small federations, and for shards of one device.


def device_gradients(
    network: TreeNetwork,
    trees: Trees,
    own: Features,
    neighbour: Features,
    drops: Drops | None,
    back: Leaves,
) -> Iterator[Tensor]:
    """[parameters] gradient of each device in turn, in the order of `network.parameters()`.

    Args:
        trees, own, neighbour, drops: as in `TreeNetwork.forward`.
        back: gradients of the loss with respect to the leaves, as POOL returned them.
    """
    none: list[Drops | None] = [None] * trees.devices
    fallen = none if drops is None else drops.by_piece(trees.single)
    parameters = list(network.parameters())
    for piece, mine in zip(trees.single, fallen, strict=True):
        leaves = network(
            piece.trees, span(own, piece.devices), span(neighbour, piece.branches), mine
        )
        found = torch.autograd.grad(
            [leaves.own, leaves.neighbour],
            parameters,
            [_own_back(piece, trees, back.own), back.neighbour[piece.branches]],
            allow_unused=True,
            materialize_grads=True,
        )
        yield torch.cat([gradient.reshape(-1) for gradient in found])


def _own_back(piece: Piece, trees: Trees, back: Tensor) -> Tensor:
    """The rows of a piece's own leaves among those of all trees: branches, then lone leaves."""
    if not trees.virtual_nodes:
        return back[piece.devices]
    lone = slice(trees.branches + piece.lone.start, trees.branches + piece.lone.stop)
    return torch.cat([back[piece.branches], back[lone]])


# POOL (section VI-B): the embeddings of a vertex's leaves become the vertex's embedding.
#
# Leaves arrive as messages and gradients return as messages, so no autograd graph connects them:
# forward and backward are plain functions of per-leaf arrays. O(leaves · width).


@dataclass(frozen=True, eq=False)
class Pooled:
    """Vertex embeddings, and what the backward pass needs."""

    embedding: Tensor
    """[devices, width]; zero for a device that has no leaf."""
    kind: Pooling
    leaves: Tensor = field(repr=False)
    vertex: Tensor = field(repr=False)
    shares: Tensor = field(repr=False)
    """[leaves, 1] weight of each leaf; for max [leaves, width], ties share."""
    attention: Tensor | None = field(default=None, repr=False)


def pool(
    kind: Pooling, leaves: Tensor, vertex: Tensor, devices: int, attention: Tensor | None = None
) -> Pooled:
    """Combine the leaves of each vertex.

    Args:
        kind: average, sum, max, or attention: weights softmax(leaf · a) over a vertex's leaves.
        leaves: [leaves, width] embeddings, a device's own and those that came, in any order.
        vertex: [leaves] position of the device that a leaf stands for.
        devices: number of devices.
        attention: [width] the vector a, for attention only.
    """
    if kind not in POOLINGS:
        raise UsageError(f"pool must be one of {', '.join(POOLINGS)}, got {kind!r}")
    if (kind == "attention") != (attention is not None):
        raise UsageError("attention: a vector is needed for the pool 'attention', and only there")
    leaves = leaves.detach()
    if kind == "max":
        return _largest(leaves, vertex, devices)
    shares = leaves.new_ones(len(leaves), 1)
    if kind == "average":
        number = torch.bincount(vertex, minlength=devices).to(leaves.dtype)
        shares = (1 / number).index_select(0, vertex).unsqueeze(1)
    elif attention is not None:
        attention = attention.detach()
        shares = _softmax(leaves @ attention, vertex, devices).unsqueeze(1)
    embedding = _sum(leaves * shares, vertex, devices)
    return Pooled(embedding, kind, leaves, vertex, shares, attention)


def pool_backward(pooled: Pooled, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
    """Gradients of the leaves [leaves, width], and of the attention vector or None.

    The latter is [devices, width], device by device: their sum is the gradient.

    Args:
        pooled: what `pool` returned.
        gradient: [devices, width] of the loss with respect to the vertex embeddings.
    """
    by_leaf = gradient.index_select(0, pooled.vertex)
    back = by_leaf * pooled.shares
    if pooled.attention is None:
        return back, None
    # d softmax: ds_i = α_i (g·leaf_i - Σ_j α_j g·leaf_j)
    devices = len(pooled.embedding)
    alpha = pooled.shares.squeeze(1)
    pull = (by_leaf * pooled.leaves).sum(dim=1)
    mean = _sum(alpha * pull, pooled.vertex, devices)
    scores = alpha * (pull - mean.index_select(0, pooled.vertex))
    by_device = _sum(scores[:, None] * pooled.leaves, pooled.vertex, devices)
    return back + torch.outer(scores, pooled.attention), by_device


def _largest(leaves: Tensor, vertex: Tensor, devices: int) -> Pooled:
    index = vertex.unsqueeze(1).expand_as(leaves)
    zeros = leaves.new_zeros(devices, leaves.shape[1])
    embedding = zeros.scatter_reduce(0, index, leaves, "amax", include_self=False)
    ties = (leaves == embedding.index_select(0, vertex)).to(leaves.dtype)
    shares = ties / _sum(ties, vertex, devices).index_select(0, vertex)
    return Pooled(embedding, "max", leaves, vertex, shares)


def _softmax(scores: Tensor, vertex: Tensor, devices: int) -> Tensor:
    lowest = scores.new_full((devices,), -torch.inf)
    most = lowest.scatter_reduce(0, vertex, scores, "amax")
    weights = torch.exp(scores - most.index_select(0, vertex))
    return weights / _sum(weights, vertex, devices).index_select(0, vertex)


def _sum(rows: Tensor, vertex: Tensor, devices: int) -> Tensor:
    zeros = rows.new_zeros(devices, *rows.shape[1:])
    return zeros.index_add(0, vertex, rows)


# Any PyG layer on trees, by name: all nodes of all trees as one graph.

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
