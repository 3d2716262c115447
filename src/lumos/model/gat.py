"""Graph attention on trees: softmax over a node's neighbours and itself, by kind of node.

With z = h W, source score s = z·a, target score t = z·a' (per head) and e(j→i) = LeakyReLU(s_j +
t_i), node i becomes Σ_j softmax_j(e(j→i)) z_j + b. A leaf hears from itself and its parent, so its
softmax is one sigmoid; a parent hears from four nodes; only roots and centres need segments.
W, W a and W a' are one table, so the scores come with the product.
Time and memory O(branches · heads · width) per layer, after the products with the table.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from lumos.model.nodes import StarNodes, TreeNodes
from lumos.model.tree_tensors import Trees

SLOPE = 0.2


@dataclass(frozen=True, eq=False)
class _Rows:
    """Projected rows of one kind of node, head by head."""

    z: Tensor
    """[rows, heads, width]"""
    source: Tensor
    """[rows, heads]"""
    target: Tensor
    """[rows, heads]"""


class TreeGAT(torch.nn.Module):
    """One layer; heads are concatenated.

    Parameters in this order: `weight` [in, heads · width], `source` and `target` [heads, width],
    `bias` [heads · width]. PyG's `GATConv` calls them `lin.weight` = weightᵀ, `att_src` and
    `att_dst` [1, heads, width], and `bias`.
    """

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.width = heads * outputs
        self.weight = torch.nn.Parameter(torch.empty(inputs, self.width))
        self.source = torch.nn.Parameter(torch.empty(heads, outputs))
        self.target = torch.nn.Parameter(torch.empty(heads, outputs))
        self.bias = torch.nn.Parameter(torch.empty(self.width))

    def table(self) -> Tensor:
        """[in, heads · width + 2 · heads] what rows are multiplied with: W, W a and W a'."""
        by_head = self.weight.view(len(self.weight), self.heads, -1)
        scores = [(by_head * vector).sum(dim=2) for vector in (self.source, self.target)]
        return torch.cat([self.weight, *scores], dim=1)

    def _rows(self, product: Tensor) -> _Rows:
        sizes = [self.width, self.heads, self.heads]
        z, source, target = torch.split_with_sizes(product, sizes, dim=1)
        return _Rows(z.view(len(product), self.heads, self.width // self.heads), source, target)

    def _out(self, mixed: Tensor) -> Tensor:
        return mixed.flatten(1) + self.bias

    def tree(self, z: TreeNodes, trees: Trees, remaining: int) -> TreeNodes:
        """One step on trees. `remaining`: layers that follow, which decide what is needed."""
        parent = None if z.parent is None else self._rows(z.parent)
        root = None if z.root is None else self._rows(z.root)
        neighbour = self._rows(z.neighbour)
        shared = z.shared and parent is None
        by_branch = self._rows(z.own_rows(trees)) if remaining or not shared else None
        own = self._rows(z.own) if shared or by_branch is None else by_branch
        mixed = None
        if remaining and by_branch is not None:
            above = None if z.root is None else self._rows(trees.to_branches(z.root))
            mixed = self._out(_parent(by_branch, neighbour, parent, above))
        return TreeNodes(
            self._out(_leaf(own, parent)),
            shared,
            self._out(_leaf(neighbour, parent)),
            z.lone[:, : self.width] + self.bias,  # it hears only itself: the softmax is 1
            mixed,
            self._root(parent, root, trees) if remaining >= 2 else None,
        )

    def _root(self, parent: _Rows | None, root: _Rows | None, trees: Trees) -> Tensor:
        if parent is None:  # everything it hears is zero
            return self.bias.expand(trees.devices, -1)
        if root is None:
            nothing = parent.source.new_zeros(trees.devices, self.heads)
            root = _Rows(parent.z.new_zeros(trees.devices, *parent.z.shape[1:]), nothing, nothing)
        return self._out(_gathered(root, parent, trees))

    def star(self, z: StarNodes, trees: Trees) -> StarNodes:
        """One step on stars."""
        centre, leaf = self._rows(z.centre), self._rows(z.leaf)
        return StarNodes(
            self._out(_gathered(centre, leaf, trees)),
            self._out(_leaf(leaf, self._rows(trees.to_branches(z.centre)))),
        )


def _leaf(leaf: _Rows, above: _Rows | None) -> Tensor:
    """A leaf hears itself and the node above it: softmax over two is a sigmoid."""
    itself = leaky_relu(leaf.source + leaf.target, SLOPE)
    if above is None:
        share = torch.sigmoid(itself - leaky_relu(leaf.target, SLOPE))
        return leaf.z * share.unsqueeze(2)
    share = torch.sigmoid(itself - leaky_relu(above.source + leaf.target, SLOPE))
    return torch.lerp(above.z, leaf.z, share.unsqueeze(2))


def _parent(own: _Rows, neighbour: _Rows, parent: _Rows | None, root: _Rows | None) -> Tensor:
    """A parent hears its two leaves, itself and the root."""
    target = torch.zeros_like(own.source) if parent is None else parent.target
    heard = [own, neighbour, parent, root]
    scores = torch.stack([target if one is None else one.source + target for one in heard])
    shares = torch.softmax(leaky_relu(scores, SLOPE), dim=0).unsqueeze(3)
    mixed = own.z * shares[0]
    for one, share in zip(heard[1:], shares[1:], strict=True):
        if one is not None:
            mixed = torch.addcmul(mixed, one.z, share)
    return mixed


def _gathered(middle: _Rows, around: _Rows, trees: Trees) -> Tensor:
    """A root or centre hears itself and all its branches: softmax over a segment."""
    itself = leaky_relu(middle.source + middle.target, SLOPE)
    scores = leaky_relu(around.source + trees.to_branches(middle.target), SLOPE)
    index = trees.owner.unsqueeze(1).expand_as(scores)
    # Any number may be taken off all scores of a node; its largest keeps exp in range.
    most = itself.detach().scatter_reduce(0, index, scores.detach(), "amax")
    itself = torch.exp(itself - most)
    weights = torch.exp(scores - trees.to_branches(most))
    total = itself + trees.to_devices(weights)
    mixed = middle.z * itself.unsqueeze(2) + trees.to_devices(around.z * weights.unsqueeze(2))
    return mixed / total.unsqueeze(2)
