r"""Graph convolution on trees, H' = D̂^(-1/2) (A + I) D̂^(-1/2) H W + b, by kind of node.

With self-loops a leaf has degree 2, a parent 4, a root workload + 1, a lone leaf 1. So

    leaf'   = leaf/2 + parent/√8
    parent' = parent/4 + (own + neighbour)/√8 + root/(2√(w + 1))
    root'   = root/(w + 1) + Σ parent/(2√(w + 1))

and in the star, centre' = centre/(w + 1) + Σ leaf/√(2(w + 1)), leaf' = leaf/2 + centre/√(2(w + 1)).
Rows come halved (see `TreeGCN.table`), which leaves a leaf's own row as it is; `_ROOT` is twice
1/√8. All of it is linear, so the backward pass needs no more than the output.
Time and memory O(branches · width) per layer, after the products with W.
"""

import torch
from torch import Tensor

from lumos.model.dropout import Activation
from lumos.model.layer_step import Kinds, LayerStep, LayerWeights
from lumos.model.tree_tensors import Trees

EIGHTH = 8.0**-0.5
"""1/√8: what passes between leaves and parents."""
_ROOT = 2 * EIGHTH


class TreeGCN(torch.nn.Module):
    """One layer. Parameters in this order: `weight` [in, out], `bias` [out].

    PyG's `GCNConv` calls them `lin.weight` = weightᵀ and `bias`.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(inputs, outputs))
        self.bias = torch.nn.Parameter(torch.empty(outputs))

    def table(self, activation: Activation) -> Tensor:
        """[in, out] what rows are multiplied with: W/2, times the factor of the dropout."""
        return self.weight * (activation.factor / 2)

    def scores(self) -> None:
        """None: a convolution has no scores."""

    def forward_step(self, step: LayerStep) -> Kinds:
        """One step on trees or stars, see `TreeLayer`."""
        return step.finish((_tree if step.trees.virtual_nodes else _star)(step))

    def backward_step(
        self, step: LayerStep, back: Kinds, found: LayerWeights
    ) -> dict[str, tuple[Tensor, float]]:
        """The same backwards."""
        return (_tree_back if step.trees.virtual_nodes else _star_back)(step, back, found.bias)


def _tree(step: LayerStep) -> Kinds:
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


def _tree_back(step: LayerStep, back: Kinds, bias: Tensor) -> dict[str, tuple[Tensor, float]]:
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


def _star(step: LayerStep) -> Kinds:
    trees, bias, pair = step.trees, step.weights.bias, _pair(step.trees)
    z, leaf = step.product("centre", step.work), step.product("leaf", step.work)
    centre = step.rows_for("centre", trees.devices)
    torch.addcmul(bias, z, 2 / trees.degree, out=centre).addcmul_(trees.summed(leaf), pair)
    rows = step.rows_for("leaf", trees.branches)
    torch.index_select(torch.addcmul(bias, z, pair), 0, trees.owner, out=rows).add_(leaf)
    return {"centre": centre, "leaf": rows}


def _star_back(step: LayerStep, back: Kinds, bias: Tensor) -> dict[str, tuple[Tensor, float]]:
    trees, pair, centre, leaf = step.trees, _pair(step.trees), back["centre"], back["leaf"]
    sums = trees.summed(leaf)
    bias += sums.sum(dim=0).add_(centre.sum(dim=0))
    by_device = torch.mul(centre, 2 / trees.degree).addcmul_(sums, pair)
    leaf.add_(trees.repeated(centre * pair))
    return {"centre": (by_device, 1.0), "leaf": (leaf, 1.0)}


def _pair(trees: Trees) -> Tensor:
    """[devices, 1] 2/√(2(w + 1)): what passes between a centre and its leaves, of halved rows."""
    return (trees.degree / 2).rsqrt()
