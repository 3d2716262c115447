"""The oracle: the same model in one piece, on dense arrays of doubles, by autograd.

No device, no message, no shape of a tree: nodes and edges come from `Forest`, a layer is a product
with the adjacency matrix of all trees, and POOL is a loop over vertices.
"""

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from lumos import Forest
from lumos.paper.trainer import FullModel
from lumos.trees.forest import VIRTUAL


def node_features(forest: Forest, own: Tensor, leaf: Tensor) -> Tensor:
    """[nodes, d] own features on own leaves, `leaf` on neighbour leaves, 0 on virtual nodes."""
    owner, lone = torch.from_numpy(forest.owner), torch.from_numpy(forest.lone)
    if not forest.virtual_nodes:
        return torch.cat([own, leaf])
    zeros = own.new_zeros(forest.branches + len(forest.roots), own.shape[1])
    return torch.cat([own[owner], leaf, zeros, own[lone]])


class Whole:
    """A model of `FullModel`'s weights on a forest that holds the trees of all devices."""

    def __init__(self, model: FullModel, forest: Forest) -> None:
        self.weights = {
            name: value.detach().to(torch.float64).requires_grad_()
            for name, value in model.named_parameters()
        }
        self.settings = model.network.settings
        self.forest = forest
        ends = torch.from_numpy(forest.edge_index())
        self._reach = torch.eye(forest.nodes, dtype=torch.float64)
        self._reach[ends[1], ends[0]] = 1

    def leaves(self, x: Tensor) -> Tensor:
        """[nodes, width] embeddings of all nodes."""
        for number in range(self.settings.layers):
            x = self._gcn(x, number) if self.settings.backbone == "gcn" else self._gat(x, number)
            if number < self.settings.layers - 1 or self.settings.activate_last:
                x = torch.relu(x)
        return x

    def embeddings(self, own: Tensor, leaf: Tensor) -> Tensor:
        """[devices, width] POOL of the leaves that stand for each vertex."""
        nodes = self.leaves(node_features(self.forest, own, leaf))
        vertex = torch.from_numpy(self.forest.vertex())
        assert (vertex != VIRTUAL).any()
        return torch.stack([self._pool(nodes[vertex == device]) for device in range(len(own))])

    def logits(self, embeddings: Tensor) -> Tensor:
        """[devices, classes]"""
        return embeddings @ self.weights["head.weight"].T + self.weights["head.bias"]

    def gradient(self, loss: Tensor) -> Tensor:
        """[weights] in the order of the model's parameters."""
        gradients = torch.autograd.grad(loss, list(self.weights.values()), materialize_grads=True)
        return torch.cat([gradient.flatten() for gradient in gradients])

    def _of(self, layer: int, name: str) -> Tensor:
        return self.weights[f"network.layers.{layer}.{name}"]

    def _gcn(self, x: Tensor, layer: int) -> Tensor:
        degree = self._reach.sum(dim=1)
        mix = self._reach / (degree[:, None] * degree[None, :]).sqrt()
        return mix @ (x @ self._of(layer, "weight")) + self._of(layer, "bias")

    def _gat(self, x: Tensor, layer: int) -> Tensor:
        source, target = self._of(layer, "source"), self._of(layer, "target")
        z = (x @ self._of(layer, "weight")).view(len(x), *source.shape)
        heads = []
        for head in range(len(source)):
            scores = leaky_relu(
                (z[:, head] @ source[head])[None, :] + (z[:, head] @ target[head])[:, None], 0.2
            )
            scores = scores.masked_fill(self._reach == 0, -torch.inf)
            heads.append(torch.softmax(scores, dim=1) @ z[:, head])
        return torch.cat(heads, dim=1) + self._of(layer, "bias")

    def _pool(self, mine: Tensor) -> Tensor:
        kind = self.settings.pool
        if kind == "average":
            return mine.mean(dim=0)
        if kind == "sum":
            return mine.sum(dim=0)
        if kind == "max":
            return mine.amax(dim=0)
        return torch.softmax(mine @ self.weights["attention"], dim=0) @ mine
