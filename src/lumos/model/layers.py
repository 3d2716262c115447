"""Layers on trees by kind of node, with their derivatives written out: `TreeGCN` and `TreeGAT`.

`lumos.model.tree_pass` runs them. Graph convolution comes first, then attention between the few
nodes of a tree, then the layer that uses it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from lumos.model.dropout import Activation
from lumos.model.tree_pass import Arena, Kinds, LayerStep, LayerWeights
from lumos.model.tree_tensors import Trees

# Graph convolution on trees, H' = D̂^(-1/2) (A + I) D̂^(-1/2) H W + b, by kind of node.
#
# With self-loops a leaf has degree 2, a parent 4, a root workload + 1, a lone leaf 1. So
#
#     leaf'   = leaf/2 + parent/√8
#     parent' = parent/4 + (own + neighbour)/√8 + root/(2√(w + 1))
#     root'   = root/(w + 1) + Σ parent/(2√(w + 1))
#
# and in the star, centre' = centre/(w + 1) + Σ leaf/√(2(w + 1)), leaf' = leaf/2 + centre/√(2(w +
# 1)). Rows come halved (see `TreeGCN.table`), which leaves a leaf's own row as it is; `_ROOT` is
# twice 1/√8. All of it is linear, so the backward pass needs no more than the output. Time and
# memory O(branches · width) per layer, after the products with W.

EIGHTH = 8.0**-0.5
"""1/√8: what passes between leaves and parents."""
_ROOT = 2 * EIGHTH


class TreeGCN(torch.nn.Module):
    """One layer. Parameters in this order: `weight` [in, out], `bias` [out].

    PyG's `GCNConv` calls them `lin.weight` = weightᵀ and `bias`.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = torch.nn.Parameter(torch.zeros(outputs))

    def table(self, activation: Activation) -> Tensor:
        """[in, out] what rows are multiplied with: W/2, times the factor of the dropout."""
        return self.weight * (activation.factor / 2)

    def scores(self) -> None:
        """None: a convolution has no scores."""

    def forward_step(self, step: LayerStep) -> Kinds:
        """One step on trees or stars, see `TreeLayer`."""
        return step.finish((_gcn_tree if step.trees.virtual_nodes else _gcn_star)(step))

    def backward_step(
        self, step: LayerStep, back: Kinds, found: LayerWeights
    ) -> dict[str, tuple[Tensor, float]]:
        """The same backwards."""
        return (_gcn_tree_back if step.trees.virtual_nodes else _gcn_star_back)(
            step, back, found.bias
        )


def _gcn_tree(step: LayerStep) -> Kinds:
    trees, bias, number = step.trees, step.weights.bias, step.activation.layer
    rows = {"neighbour": step.affine("neighbour", step.rows_for("neighbour", trees.branches))}
    lone = step.rows_for("lone", len(step.rows["lone"]))
    rows["lone"] = torch.add(bias, step.product("lone", step.work), alpha=2, out=lone)
    if number == 0:
        rows["own"] = step.affine("own", step.rows_for("own", trees.devices))
    else:
        own = rows["own"] = step.rows_for("own", trees.branches)
        if step.shared:
            by_device = step.affine("own", step.work.empty(trees.devices, len(bias)))
            torch.index_select(by_device, 0, trees.owner, out=own)
        else:
            step.affine("own", own)
        step.accumulate("parent", own, _ROOT)
        step.accumulate("parent", rows["neighbour"], _ROOT)
    if step.remaining >= 1:
        rows["parent"] = _parent(step, rows)
    if step.remaining >= 2:
        rows["root"] = _root(step)
    return rows


def _parent(step: LayerStep, leaves: Kinds) -> Tensor:
    """[branches, width] what comes from the device is added there, before it is repeated."""
    trees, bias, out = step.trees, step.weights.bias, step.rows_for("parent", step.trees.branches)
    if step.activation.layer == 0:  # leaves are their products and the bias: no second product
        by_device = torch.add(bias * (1 - 2 * _ROOT), leaves["own"], alpha=_ROOT)
        torch.index_select(by_device, 0, trees.owner, out=out)
        return out.add_(leaves["neighbour"], alpha=_ROOT)
    by_device = bias.repeat(trees.devices, 1)
    if step.shared:
        step.accumulate("own", by_device, _ROOT)
    if "root" in step.rows:
        by_device.addcmul_(step.product("root", step.work), trees.degree.rsqrt())
    torch.index_select(by_device, 0, trees.owner, out=out)
    if not step.shared:
        step.accumulate("own", out, _ROOT)
    step.accumulate("neighbour", out, _ROOT)
    return step.accumulate("parent", out, 0.5)


def _root(step: LayerStep) -> Tensor:
    """[devices, width]"""
    trees = step.trees
    rows = step.rows_for("root", trees.devices).copy_(step.weights.bias)
    if "parent" in step.rows:
        parents = trees.summed(step.product("parent", step.work))
        rows.addcmul_(parents, trees.degree.rsqrt())
    if "root" in step.rows:
        rows.addcmul_(step.product("root", step.work), 2 / trees.degree)
    return rows


def _gcn_tree_back(step: LayerStep, back: Kinds, bias: Tensor) -> dict[str, tuple[Tensor, float]]:
    trees, number, parent = step.trees, step.activation.layer, None
    own, neighbour, above = back["own"], back["neighbour"], back.get("parent")
    sums = None if above is None else trees.summed(above)
    bias += back["lone"].sum(dim=0)
    if number == 0:
        bias += own.sum(dim=0).add_(neighbour.sum(dim=0))
    else:
        parent = torch.add(own, neighbour, out=step.work.empty(*neighbour.shape))
        bias += parent.sum(dim=0)
    found = {"lone": (back["lone"], 2.0)}
    if above is not None and sums is not None:
        bias += sums.sum(dim=0)
        neighbour.add_(above, alpha=_ROOT)
        own.add_(sums if number == 0 else above, alpha=_ROOT)
        if parent is not None:
            parent.add_(above, alpha=0.5 / _ROOT)
            found["root"] = sums * trees.degree.rsqrt(), 1.0
    if "root" in back:
        top = back["root"]
        bias += top.sum(dim=0)
        if parent is not None:
            parent.add_(trees.repeated(top * trees.degree.rsqrt()), alpha=1 / _ROOT)
            found["root"][0].addcmul_(top, 2 / trees.degree)
    if parent is not None:
        found["parent"] = parent, _ROOT
        own = trees.summed(own) if step.shared else own
    return {**found, "own": (own, 1.0), "neighbour": (neighbour, 1.0)}


def _gcn_star(step: LayerStep) -> Kinds:
    trees, bias, pair = step.trees, step.weights.bias, _pair(step.trees)
    z, leaf = step.product("centre", step.work), step.product("leaf", step.work)
    centre = step.rows_for("centre", trees.devices)
    torch.addcmul(bias, z, 2 / trees.degree, out=centre).addcmul_(trees.summed(leaf), pair)
    rows = step.rows_for("leaf", trees.branches)
    torch.index_select(torch.addcmul(bias, z, pair), 0, trees.owner, out=rows).add_(leaf)
    return {"centre": centre, "leaf": rows}


def _gcn_star_back(step: LayerStep, back: Kinds, bias: Tensor) -> dict[str, tuple[Tensor, float]]:
    trees, pair, centre, leaf = step.trees, _pair(step.trees), back["centre"], back["leaf"]
    sums = trees.summed(leaf)
    bias += sums.sum(dim=0).add_(centre.sum(dim=0))
    by_device = torch.mul(centre, 2 / trees.degree).addcmul_(sums, pair)
    leaf.add_(trees.repeated(centre * pair))
    return {"centre": (by_device, 1.0), "leaf": (leaf, 1.0)}


def _pair(trees: Trees) -> Tensor:
    """[devices, 1] 2/√(2(w + 1)): what passes between a centre and its leaves, of halved rows."""
    return (trees.degree / 2).rsqrt()


# Attention between the few nodes of a tree, with its derivative written out.
#
# A node i becomes f Σ_j α_j z_j + b with α = softmax_j(LeakyReLU(s_j + t_i)), f the factor of the
# dropout, which b has already. With m the gradient of that and d_j = f m·z_j, the score before the
# LeakyReLU has gradient α_j (d_j - Σ_k α_k d_k) LeakyReLU'(s_j + t_i), and z_j has f α_j m.
# Only products, shares and outputs are kept for it.

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
        """Return the heads of rows times W.

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


def mix(step: LayerStep, kind: str, sources: list[Heads | None], shares: list[Tensor]) -> Tensor:
    """[rows, heads · width] b + f Σ share · z; what is None is zero."""
    out, factor = None, step.activation.factor
    for rows, share in zip(sources, shares, strict=True):
        if rows is None:
            continue
        weight = (share * factor).unsqueeze(2)
        if out is None:
            into = step.rows_for(kind, len(rows.z)).view(rows.z.shape)
            out = torch.mul(rows.z, weight, out=into)
        else:
            out.addcmul_(rows.z, weight)
    if out is None:
        raise TypeError("a node receives at least from itself")
    return out.flatten(1).add_(step.weights.bias)


def leaf_share(leaf: Heads, above: Heads | None) -> Tensor:
    """[rows, heads] of a leaf in what it receives; the rest is of the node above it.

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


def few_shares(sources: list[Heads | None]) -> Tensor:
    """[4, branches, heads] of what a parent receives from: two leaves, itself, the root."""
    return torch.softmax(leaky_relu(_scores(sources), SLOPE), dim=0)


def _scores(sources: list[Heads | None]) -> Tensor:
    first, parent = sources[0], sources[2]
    if first is None:
        raise TypeError("a parent has leaves")
    target = torch.zeros_like(first.source) if parent is None else parent.target
    return torch.stack([target if one is None else one.source + target for one in sources])


def few_back(sources: list[Back | None], shares: Tensor, m: Tensor, factor: float) -> None:
    """The derivative of parents, see `few_shares`."""
    weights = shares * factor
    pull = torch.zeros_like(shares)
    for one, to in zip(sources, pull, strict=True):
        if one is not None:
            to.copy_(_dot(m, one.rows.z))
    mean = (shares * pull).sum(dim=0)
    scores = _scores([None if one is None else one.rows for one in sources])
    found = _leaky_back(pull.sub_(mean).mul_(weights), scores)
    for one, weight, score in zip(sources, weights, found, strict=True):
        if one is not None:
            one.add(m, weight, score)
    if sources[2] is not None:
        sources[2].add_target(found.sum(dim=0))


def segment_shares(step: LayerStep, kind: str, middle: Heads | None, around: Heads) -> Tensor:
    """[devices, heads · width] roots or centres: they receive from themselves and all branches.

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


# Graph attention on trees: softmax over a node's neighbours and itself, by kind of node.
#
# With z = h W, source score s = z·a, target score t = z·a' (per head) and e(j→i) = LeakyReLU(s_j +
# t_i), node i becomes Σ_j softmax_j(e(j→i)) z_j + b. A leaf receives from itself and its parent, so
# its softmax is one sigmoid; a parent receives from four nodes; only roots and centres need
# segments. Scores are products with a and a', all heads at once. Time and memory O(branches · heads
# · width) per layer, after the products with the table.


class TreeGAT(torch.nn.Module):
    """One layer; heads are concatenated.

    Parameters in this order: `weight` [in, heads · width], `source` and `target` [heads, width],
    `bias` [heads · width]. PyG's `GATConv` calls them `lin.weight` = weightᵀ, `att_src` and
    `att_dst` [1, heads, width], and `bias`.
    """

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.weight = torch.nn.Parameter(torch.zeros(inputs, heads * outputs))
        self.source = torch.nn.Parameter(torch.zeros(heads, outputs))
        self.target = torch.nn.Parameter(torch.zeros(heads, outputs))
        self.bias = torch.nn.Parameter(torch.zeros(heads * outputs))

    def table(self, activation: Activation) -> Tensor:
        """[in, heads · width] what rows are multiplied with: W.

        The factor of the dropout is no part of it: it is multiplied into the shares.
        """
        return self.weight

    def scores(self) -> Tensor:
        """[heads · width, 2 · heads] what products are multiplied with: a and a', by head."""
        each = torch.eye(self.heads).unsqueeze(1)
        both = [vector.unsqueeze(2) * each for vector in (self.source, self.target)]
        return torch.cat(both, dim=2).flatten(0, 1)

    def forward_step(self, step: LayerStep) -> Kinds:
        """One step on trees or stars, see `TreeLayer`."""
        scores = step.weights.scores
        z = {kind: Heads.of(step.product(kind, step.keep), scores) for kind in step.rows}
        step.saved["z"] = z
        return step.finish((_gat_tree if step.trees.virtual_nodes else _gat_star)(step, z))

    def backward_step(
        self, step: LayerStep, back: Kinds, found: LayerWeights
    ) -> dict[str, tuple[Tensor, float]]:
        """The same backwards."""
        for rows in back.values():
            found.bias.add_(rows.sum(dim=0))
        to = {kind: Back(rows, step.work) for kind, rows in step.saved["z"].items()}
        m = {kind: rows.view(len(rows), *self.source.shape) for kind, rows in back.items()}
        (_gat_tree_back if step.trees.virtual_nodes else _gat_star_back)(step, to, m)
        scores = step.weights.scores
        return {kind: (one.finish(scores, found.scores), 1.0) for kind, one in to.items()}


def _gat_tree(step: LayerStep, z: dict[str, Heads]) -> Kinds:
    trees, parent = step.trees, z.get("parent")
    own = z["own"]
    if parent is not None and step.shared:
        own = own.repeated(trees, step.keep)
        step.saved["own"] = own
    rows = {}
    for kind, leaf in (("own", own), ("neighbour", z["neighbour"])):
        share = step.saved[f"{kind} share"] = leaf_share(leaf, parent)
        rows[kind] = mix(step, kind, [leaf, parent], [share, 1 - share])
    lone = z["lone"]
    rows["lone"] = mix(step, "lone", [lone], [torch.ones_like(lone.source)])
    if step.remaining >= 1:
        if parent is None:
            own = own.repeated(trees, step.work)
        root = z["root"].repeated(trees, step.work) if "root" in z else None
        sources = [own, z["neighbour"], parent, root]
        shares = step.saved["parent shares"] = few_shares(sources)
        rows["parent"] = mix(step, "parent", sources, list(shares))
    if step.remaining >= 2:
        if parent is None:  # everything it receives is zero
            rows["root"] = step.rows_for("root", trees.devices).copy_(step.weights.bias)
        else:
            rows["root"] = segment_shares(step, "root", z.get("root"), parent)
    return rows


def _gat_tree_back(step: LayerStep, to: dict[str, Back], m: Kinds) -> None:
    trees, factor, parent = step.trees, step.activation.factor, to.get("parent")
    copied: Heads | None = step.saved.get("own")
    own = to["own"] if copied is None else Back(copied, step.work)
    for kind, leaf in (("own", own), ("neighbour", to["neighbour"])):
        leaf_back(leaf, parent, step.saved[f"{kind} share"], m[kind], factor)
    lone = to["lone"]
    lone.add(m["lone"], torch.full_like(lone.rows.source, factor))
    if "parent" in m:
        mine, top = own, None
        if parent is None:
            mine = Back(own.rows.repeated(trees, step.work), step.work)
        if "root" in to:
            top = Back(to["root"].rows.repeated(trees, step.work), step.work)
        sources = [mine, to["neighbour"], parent, top]
        few_back(sources, step.saved["parent shares"], m["parent"], factor)
        if mine is not own:
            own.add_copies(trees, mine)
        if top is not None:
            to["root"].add_copies(trees, top)
    if own is not to["own"]:
        to["own"].add_copies(trees, own)
    if "root" in m and parent is not None:
        segment_back(step, "root", to.get("root"), parent, m["root"])


def _gat_star(step: LayerStep, z: dict[str, Heads]) -> Kinds:
    leaf, above = z["leaf"], z["centre"].repeated(step.trees, step.keep)
    share = step.saved["leaf share"] = leaf_share(leaf, above)
    step.saved["above"] = above
    return {
        "centre": segment_shares(step, "centre", z["centre"], leaf),
        "leaf": mix(step, "leaf", [leaf, above], [share, 1 - share]),
    }


def _gat_star_back(step: LayerStep, to: dict[str, Back], m: Kinds) -> None:
    above = Back(step.saved["above"], step.work)
    leaf_back(to["leaf"], above, step.saved["leaf share"], m["leaf"], step.activation.factor)
    to["centre"].add_copies(step.trees, above)
    segment_back(step, "centre", to["centre"], to["leaf"], m["centre"])
