"""The network that every device runs on its tree, for all devices of a shard at once.

After `TreeNetwork` come the gradient of each device by itself, and POOL.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lumos.device.randomness import PrivateRandomness
from lumos.errors import UsageError
from lumos.model import POOLINGS, ModelSettings, Pooling
from lumos.model.custom import (
    CannotAttribute,
    DeviceDropout,
    checked_device,
    make_layers,
    make_model,
    probe,
    seeded,
    takes_batch,
)
from lumos.model.dropout import Activation, Drops, DropSource, sites
from lumos.model.layers import TreeGAT, TreeGCN
from lumos.model.tree_pass import Memory, TreePass
from lumos.model.tree_tensors import (
    Features,
    Piece,
    TreeGraph,
    Trees,
    as_dense,
    checked,
    project,
    span,
)

MAX_DENSE = 1 << 30
"""Most numbers of dense features at the nodes of all trees: 4 GB."""


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
    memory O(branches · width) per layer, after the first product. Any other layer, and a model of
    your own, runs on all nodes of the trees as one graph (`lumos.model.custom`), with memory
    O(nodes · features), or O(nodes · width) after a `projection`.

    Parameters stand layer by layer in the order that `TreeGCN` and `TreeGAT` document, so
    `torch.nn.utils.parameters_to_vector(network.parameters())` is the vector to aggregate.
    """

    def __init__(self, settings: ModelSettings, features: int) -> None:
        super().__init__()
        self.settings = settings
        self.features = features
        last = settings.layers - 1
        wide = settings.hidden * (settings.heads if settings.backbone == "gat" else 1)
        self.widths = [] if settings.model is not None else [wide] * last + [settings.output]
        """[layers] width of each layer's output; empty for a model of your own."""
        width = settings.projection or features
        inputs = [width, *self.widths[:-1]]
        layers: Sequence[torch.nn.Module] = []
        self.device = checked_device(settings.device)
        """Torch device of own layers; features and embeddings stay on the processor."""
        self.projection: torch.nn.Parameter | None = None
        self.model: torch.nn.Module | None = None
        if settings.fast and settings.backbone == "gcn":
            layers = [TreeGCN(*pair) for pair in zip(inputs, self.widths, strict=True)]
        elif settings.fast:
            layers = [TreeGAT(size, settings.hidden, settings.heads) for size in inputs[:-1]]
            layers += [TreeGAT(inputs[-1], settings.output, 1)]
        else:
            if settings.projection:
                self.projection = torch.nn.Parameter(torch.zeros(features, width))
            if settings.model is None:
                layers = make_layers(settings, inputs)
            else:
                self.model = make_model(settings, width).to(self.device)
        self.layers = torch.nn.ModuleList(layers).to(self.device)
        self._memory = Memory()

    @property
    def own_parts(self) -> bool:
        """True if a layer or model was given as a Python object."""
        return self.model is not None or not isinstance(self.settings.backbone, str)

    def initialise(self, generator: np.random.Generator) -> None:
        """Weights from public randomness: Glorot's uniform distribution, biases 0.

        A layer or model of your own starts as its constructor makes it, with torch's randomness
        from the same source; a module that was given starts with the weights that it has.
        """
        if self.own_parts:
            with seeded(generator):
                fresh = TreeNetwork(self.settings, self.features)
            if self.projection is not None and fresh.projection is not None:
                _glorot(fresh.projection, generator)
            self.load_state_dict(fresh.state_dict())
            return
        for parameter in self.parameters():
            _glorot(parameter, generator)

    def drops(self, trees: Trees, randomness: PrivateRandomness, step: int) -> Drops | None:
        """Draw what falls in epoch `step`, from private randomness.

        None where nothing falls; layers that are not ours always get one, which tells training from
        evaluation.
        """
        settings, expanded = self.settings, not self.settings.fast
        if settings.fast and settings.dropout == 0:
            return None
        if self.model is not None:
            source = DropSource(randomness, np.arange(trees.devices), step)
            return Drops(0.0, {}, {}, expanded, source)
        found = sites(trees, self.widths, expanded=expanded)
        return Drops.draw(found, settings.dropout, randomness, step, expanded=expanded)

    def forward(
        self, trees: Trees, own: Features, neighbour: Features, drops: Drops | None = None
    ) -> Leaves:
        """Leaf embeddings.

        Args:
            trees: the trees of the devices.
            own: [devices, d] features of the devices themselves.
            neighbour: [branches, d] what is known of the kept neighbours' features.
            drops: what falls, see `drops`; None in evaluation.

        Raises:
            UsageError: dense features do not fit into memory, or a layer returns other shapes.
        """
        if not self.settings.fast:
            return self._custom(trees, own, neighbour, drops)
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

    def _custom(
        self, trees: Trees, own: Features, neighbour: Features, drops: Drops | None
    ) -> Leaves:
        """Leaves by layers that are not ours, on all nodes of the trees as one graph."""
        rows = [self._dense(checked(one, self.features), trees) for one in (own, neighbour)]
        self.train(drops is not None)
        try:
            return self._on_graph(trees, rows[0], rows[1], drops)
        except CannotAttribute:  # only in training
            fallen = [] if drops is None else drops.by_piece(trees.single)
        pieces = [
            self._on_graph(piece.trees, rows[0][piece.devices], rows[1][piece.branches], mine)
            for piece, mine in zip(trees.single, fallen, strict=True)
        ]
        # Own leaves of branches first, then those of lone devices.
        with_branches = trees.workload.tolist() if trees.virtual_nodes else [1] * trees.devices
        parted = sorted(zip(with_branches, pieces, strict=True), key=lambda pair: pair[0] == 0)
        return Leaves(
            torch.cat([piece.own for _, piece in parted]),
            torch.cat([piece.neighbour for piece in pieces]),
        )

    def _dense(self, features: Features, trees: Trees) -> Tensor:
        """[rows, width] dense, after the projection where there is one."""
        if self.projection is not None:
            return project(features, self.projection)
        nodes = len(trees.graph.batch)
        if nodes * self.features > MAX_DENSE:
            raise UsageError(
                f"`backbone` {self.settings.network}: {nodes:,} nodes with {self.features:,} "
                f"features each take {nodes * self.features * 4 / 1e9:.0f} GB; map them to fewer "
                "first, as with `projection=64`"
            )
        return as_dense(features)

    def _on_graph(
        self, trees: Trees, own: Tensor, neighbour: Tensor, drops: Drops | None
    ) -> Leaves:
        graph = (trees.graph if self.own_parts else trees.graph_by_kind).to(self.device)
        tree = trees.virtual_nodes
        kinds = {"own": trees.repeated(own), "neighbour": neighbour, "lone": own[trees.lone]}
        x = graph.nodes(kinds if tree else {"centre": own, "leaf": neighbour}).to(self.device)
        inside = nullcontext() if drops is None else DeviceDropout(graph, drops.drawn_from)
        with inside:
            if self.model is not None:
                batch = {"batch": graph.batch} if takes_batch(self.model) else {}
                x = self._shaped(self.model(x, graph.edge_index, **batch), graph, "model")
            for number, layer in enumerate(self.layers):
                x = self._shaped(layer(x, graph.edge_index), graph, "backbone", number)
                x = self._activated(x, graph, self._activation(number, drops))
        x = x.cpu()
        if not tree:
            return Leaves(x[graph.kinds["centre"]], x[graph.kinds["leaf"]])
        mine = torch.cat([graph.kinds["own"], graph.kinds["lone"]])
        return Leaves(x[mine], x[graph.kinds["neighbour"]])

    def _shaped(self, x: Any, graph: TreeGraph, setting: str, layer: int = -1) -> Tensor:
        """The output of a layer or model."""
        nodes, width = len(graph.batch), (self.widths or [self.settings.output])[layer]
        if not isinstance(x, Tensor) or x.shape != (nodes, width):
            found = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            hint = "; set `output` to its width" if setting == "model" else ""
            raise UsageError(
                f"`{setting}` {self.settings.network}: returned {found} for {nodes} nodes, not "
                f"[{nodes}, {width}]{hint}"
            )
        return x

    def _activated(self, x: Tensor, graph: TreeGraph, activation: Activation) -> Tensor:
        """ReLU and dropout of a layer's output."""
        if not activation.relu:
            return x
        x = torch.relu(x) * activation.factor
        if activation.drops is None:
            return x
        width = x.shape[1]
        fallen = [
            nodes[(places := activation.drops.of(activation.layer, kind)) // width] * width
            + places % width
            for kind, nodes in graph.kinds.items()
        ]
        return x.flatten().index_fill(0, torch.cat(fallen).to(x.device), 0).view_as(x)

    @property
    def _fast(self) -> list[TreeGCN | TreeGAT]:
        return [layer for layer in self.layers if isinstance(layer, TreeGCN | TreeGAT)]

    def _activation(self, layer: int, drops: Drops | None) -> Activation:
        last = layer == len(self.layers) - 1
        return Activation(layer, drops, relu=not last or self.settings.activate_last)


def check_network(settings: ModelSettings, features: int) -> None:
    """Refuse a network that does not exist, or by which devices would not stay apart.

    gcn, gat and layers by name are known to be right; all others are tried on a small forest.

    Raises:
        UsageError: see `lumos.model.custom.probe`.
    """
    network = TreeNetwork(settings, features)
    if network.own_parts:
        network.initialise(np.random.default_rng(0))
        probe(network, settings, features)


def _glorot(parameter: Tensor, generator: np.random.Generator) -> None:
    """Draw a matrix by Glorot's uniform distribution; set a vector to 0."""
    with torch.no_grad():
        if parameter.dim() < 2:
            parameter.zero_()
            return
        reach = float(np.sqrt(6 / (parameter.shape[-1] + parameter.shape[-2])))
        values = generator.uniform(-reach, reach, tuple(parameter.shape))
        parameter.copy_(torch.from_numpy(values.astype(np.float32)))


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
    parameters = list(network.parameters())
    for piece, mine in by_device(trees, drops):
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
        yield torch.cat([gradient.reshape(-1).cpu() for gradient in found])


def by_device(trees: Trees, drops: Drops | None) -> Iterator[tuple[Piece, Drops | None]]:
    """Each device's tree by itself, and what falls there."""
    none: list[Drops | None] = [None] * trees.devices
    fallen = none if drops is None else drops.by_piece(trees.single)
    return zip(trees.single, fallen, strict=True)


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
