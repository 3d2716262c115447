"""Attention between the few nodes of a tree, with its derivative written out.

A node i becomes f Σ_j α_j z_j + b with α = softmax_j(LeakyReLU(s_j + t_i)), f the factor of the
dropout, which b has already. With m the gradient of that and d_j = f m·z_j, the score before the
LeakyReLU has gradient α_j (d_j - Σ_k α_k d_k) LeakyReLU'(s_j + t_i), and z_j has f α_j m.
Only products, shares and outputs are kept for it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from lumos.model.arena import Arena
from lumos.model.layer_step import LayerStep
from lumos.model.tree_tensors import Trees

SLOPE = 0.2


@dataclass(frozen=True, eq=False)
class Heads:
    """Rows times W and their scores, head by head."""

    z: Tensor
    """[rows, heads, width]"""
    source: Tensor
    """[rows, heads]"""
    target: Tensor
    """[rows, heads]"""

    @staticmethod
    def of(product: Tensor, scores: Tensor) -> "Heads":
        """Of rows times W.

        Args:
            product: [rows, heads · width]
            scores: [heads · width, 2 · heads] what gives the scores of a row, source and target.
        """
        heads = scores.shape[1] // 2
        # Arrays of their own: few numbers in each row, with gaps between, would be slow to read.
        source, target = (
            some.contiguous()
            for some in torch.split_with_sizes(product @ scores, [heads, heads], 1)
        )
        return Heads(_by_head(product, heads), source, target)

    def repeated(self, trees: Trees, memory: Arena) -> "Heads":
        """Rows of devices as rows of branches."""
        into = memory.empty(trees.branches, *self.z.shape[1:])
        torch.index_select(self.z, 0, trees.owner, out=into)
        return Heads(into, trees.repeated(self.source), trees.repeated(self.target))


class Back:
    """The gradient of some rows, which is written part by part."""

    def __init__(self, rows: Heads, memory: Arena) -> None:
        self.rows = rows
        self._z = memory.empty(*rows.z.shape)
        self._source, self._target = torch.zeros_like(rows.source), torch.zeros_like(rows.target)
        self._empty = True

    def add(
        self,
        m: Tensor,
        weight: Tensor,
        source: Tensor | None = None,
        target: Tensor | None = None,
    ) -> None:
        """Add weight · m to the gradient of z, and these to those of the scores."""
        if self._empty:
            torch.mul(m, weight.unsqueeze(2), out=self._z)
            self._empty = False
        else:
            self._z.addcmul_(m, weight.unsqueeze(2))
        if source is not None:
            self._source += source
        if target is not None:
            self._target += target

    def add_target(self, target: Tensor) -> None:
        """Add this to the gradient of the target scores."""
        self._target += target

    def add_copies(self, trees: Trees, copies: "Back") -> None:
        """Add the gradients of copies of the rows, one for each branch."""
        whole = trees.summed(copies._z)
        self._z = whole if self._empty else self._z.add_(whole)
        self._empty = False
        self._source += trees.summed(copies._source)
        self._target += trees.summed(copies._target)

    def finish(self, scores: Tensor, by_scores: Tensor) -> Tensor:
        """[rows, heads · width] the gradient of the product; that of `scores` is added to."""
        both = torch.cat([self._source, self._target], dim=1)
        by_scores.addmm_(self.rows.z.flatten(1).T, both)
        return self._z.flatten(1).addmm_(both, scores.T)


def _by_head(rows: Tensor, heads: int) -> Tensor:
    """[rows, heads · width] as [rows, heads, width]."""
    return rows.view(len(rows), heads, rows.shape[1] // heads)


def mix(step: LayerStep, kind: str, heard: "list[Heads | None]", shares: list[Tensor]) -> Tensor:
    """[rows, heads · width] b + f Σ share · z; what is None is zero."""
    out, factor = None, step.activation.factor
    for rows, share in zip(heard, shares, strict=True):
        if rows is None:
            continue
        weight = (share * factor).unsqueeze(2)
        if out is None:
            into = step.rows_for(kind, len(rows.z)).view(rows.z.shape)
            out = torch.mul(rows.z, weight, out=into)
        else:
            out.addcmul_(rows.z, weight)
    if out is None:
        raise TypeError("a node hears at least itself")
    return out.flatten(1).add_(step.weights.bias)


def leaf_share(leaf: Heads, above: Heads | None) -> Tensor:
    """[rows, heads] of a leaf in what it hears; the rest is of the node above it.

    A softmax over two is a sigmoid.
    """
    other = leaf.target if above is None else above.source + leaf.target
    itself = leaky_relu(leaf.source + leaf.target, SLOPE)
    return torch.sigmoid(itself.sub_(leaky_relu(other, SLOPE)))


def leaf_back(leaf: Back, above: Back | None, share: Tensor, m: Tensor, factor: float) -> None:
    """The derivative of leaves, see `leaf_share`."""
    rows, weight = leaf.rows, share * factor
    pull = _dot(m, rows.z) if above is None else _dot(m, rows.z).sub_(_dot(m, above.rows.z))
    argument = pull.mul_(weight).mul_(1 - share)  # of the sigmoid
    itself = _leaky_back(argument, rows.source + rows.target)
    if above is None:
        leaf.add(m, weight, itself, itself - _leaky_back(argument, rows.target))
        return
    other = _leaky_back(argument.neg_(), above.rows.source + rows.target)
    leaf.add(m, weight, itself, itself + other)
    above.add(m, factor - weight, other)


def few_shares(heard: "list[Heads | None]") -> Tensor:
    """[4, branches, heads] of what a parent hears: two leaves, itself, the root."""
    return torch.softmax(leaky_relu(_scores(heard), SLOPE), dim=0)


def _scores(heard: "list[Heads | None]") -> Tensor:
    first, parent = heard[0], heard[2]
    if first is None:
        raise TypeError("a parent has leaves")
    target = torch.zeros_like(first.source) if parent is None else parent.target
    return torch.stack([target if one is None else one.source + target for one in heard])


def few_back(heard: "list[Back | None]", shares: Tensor, m: Tensor, factor: float) -> None:
    """The derivative of parents, see `few_shares`."""
    weights = shares * factor
    pull = torch.zeros_like(shares)
    for one, to in zip(heard, pull, strict=True):
        if one is not None:
            to.copy_(_dot(m, one.rows.z))
    mean = (shares * pull).sum(dim=0)
    scores = _scores([None if one is None else one.rows for one in heard])
    found = _leaky_back(pull.sub_(mean).mul_(weights), scores)
    for one, weight, score in zip(heard, weights, found, strict=True):
        if one is not None:
            one.add(m, weight, score)
    if heard[2] is not None:
        heard[2].add_target(found.sum(dim=0))


def segment_shares(step: LayerStep, kind: str, middle: Heads | None, around: Heads) -> Tensor:
    """[devices, heads · width] roots or centres: they hear themselves and all their branches.

    A middle of None is zero. The shares of both are kept in the step.
    """
    trees = step.trees
    none = around.source.new_zeros(trees.devices, around.source.shape[1])
    itself = none if middle is None else leaky_relu(middle.source + middle.target, SLOPE)
    target = none if middle is None else middle.target
    scores = leaky_relu(around.source + trees.repeated(target), SLOPE)
    index = trees.owner.unsqueeze(1).expand_as(scores)
    # Any number may be taken off all scores of a node; its largest keeps exp in range.
    most = itself.scatter_reduce(0, index, scores, "amax")
    itself, weights = torch.exp(itself - most), torch.exp(scores - trees.repeated(most))
    total = itself + trees.summed(weights)
    share = step.saved[f"{kind} shares"] = weights / trees.repeated(total)
    alone = step.saved[f"{kind} share"] = itself / total
    rows = step.rows_for(kind, trees.devices)
    mixed = trees.summed(around.z * share.unsqueeze(2))
    if middle is not None:
        mixed.addcmul_(middle.z, alone.unsqueeze(2))
    return torch.add(step.weights.bias, mixed.flatten(1), alpha=step.activation.factor, out=rows)


def segment_back(step: LayerStep, kind: str, middle: Back | None, around: Back, m: Tensor) -> None:
    """The derivative of roots or centres, see `segment_shares`."""
    trees, factor = step.trees, step.activation.factor
    share, alone = step.saved[f"{kind} shares"], step.saved[f"{kind} share"]
    by_branch = trees.repeated(m)
    pull = _dot(by_branch, around.rows.z)
    mean = trees.summed(share * pull)
    target = around.rows.source
    if middle is not None:
        own_pull = _dot(m, middle.rows.z)
        mean += alone * own_pull
        target = target + trees.repeated(middle.rows.target)
    weight = share * factor
    found = _leaky_back((pull - trees.repeated(mean)).mul_(weight), target)
    around.add(by_branch, weight, found)
    if middle is not None:
        weight = alone * factor
        before = middle.rows.source + middle.rows.target
        itself = _leaky_back((own_pull - mean).mul_(weight), before)
        middle.add(m, weight, itself, itself + trees.summed(found))


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """[rows, heads] of [rows, heads, width], in one pass: half the time of product and sum."""
    return torch.from_numpy(np.einsum("rhw,rhw->rh", one.numpy(), other.numpy()))


def _leaky_back(gradient: Tensor, before: Tensor) -> Tensor:
    back: Tensor = torch.ops.aten.leaky_relu_backward(gradient, before, SLOPE, False)
    return back
