"""Graph attention on trees: softmax over a node's neighbours and itself, by kind of node.

With z = h W, source score s = z·a, target score t = z·a' (per head) and e(j→i) = LeakyReLU(s_j +
t_i), node i becomes Σ_j softmax_j(e(j→i)) z_j + b. A leaf hears from itself and its parent, so its
softmax is one sigmoid; a parent hears from four nodes; only roots and centres need segments
(`tree_attention` has all three). Scores are products with a and a', all heads at once.
Time and memory O(branches · heads · width) per layer, after the products with the table.
"""

import torch
from torch import Tensor

from lumos.model.dropout import Activation
from lumos.model.layer_step import Kinds, LayerStep, LayerWeights
from lumos.model.tree_attention import (
    Back,
    Heads,
    few_back,
    few_shares,
    leaf_back,
    leaf_share,
    mix,
    segment_back,
    segment_shares,
)


class TreeGAT(torch.nn.Module):
    """One layer; heads are concatenated.

    Parameters in this order: `weight` [in, heads · width], `source` and `target` [heads, width],
    `bias` [heads · width]. PyG's `GATConv` calls them `lin.weight` = weightᵀ, `att_src` and
    `att_dst` [1, heads, width], and `bias`.
    """

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.weight = torch.nn.Parameter(torch.empty(inputs, heads * outputs))
        self.source = torch.nn.Parameter(torch.empty(heads, outputs))
        self.target = torch.nn.Parameter(torch.empty(heads, outputs))
        self.bias = torch.nn.Parameter(torch.empty(heads * outputs))

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
        return step.finish((_tree if step.trees.virtual_nodes else _star)(step, z))

    def backward_step(
        self, step: LayerStep, back: Kinds, found: LayerWeights
    ) -> dict[str, tuple[Tensor, float]]:
        """The same backwards."""
        for rows in back.values():
            found.bias.add_(rows.sum(dim=0))
        to = {kind: Back(rows, step.work) for kind, rows in step.saved["z"].items()}
        m = {kind: rows.view(len(rows), *self.source.shape) for kind, rows in back.items()}
        (_tree_back if step.trees.virtual_nodes else _star_back)(step, to, m)
        scores = step.weights.scores
        return {kind: (one.finish(scores, found.scores), 1.0) for kind, one in to.items()}


def _tree(step: LayerStep, z: "dict[str, Heads]") -> Kinds:
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
        heard = [own, z["neighbour"], parent, root]
        shares = step.saved["parent shares"] = few_shares(heard)
        rows["parent"] = mix(step, "parent", heard, list(shares))
    if step.remaining >= 2:
        if parent is None:  # everything it hears is zero
            rows["root"] = step.rows_for("root", trees.devices).copy_(step.weights.bias)
        else:
            rows["root"] = segment_shares(step, "root", z.get("root"), parent)
    return rows


def _tree_back(step: LayerStep, to: "dict[str, Back]", m: Kinds) -> None:
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
        heard = [mine, to["neighbour"], parent, top]
        few_back(heard, step.saved["parent shares"], m["parent"], factor)
        if mine is not own:
            own.add_copies(trees, mine)
        if top is not None:
            to["root"].add_copies(trees, top)
    if own is not to["own"]:
        to["own"].add_copies(trees, own)
    if "root" in m and parent is not None:
        segment_back(step, "root", to.get("root"), parent, m["root"])


def _star(step: LayerStep, z: "dict[str, Heads]") -> Kinds:
    leaf, above = z["leaf"], z["centre"].repeated(step.trees, step.keep)
    share = step.saved["leaf share"] = leaf_share(leaf, above)
    step.saved["above"] = above
    return {
        "centre": segment_shares(step, "centre", z["centre"], leaf),
        "leaf": mix(step, "leaf", [leaf, above], [share, 1 - share]),
    }


def _star_back(step: LayerStep, to: "dict[str, Back]", m: Kinds) -> None:
    above = Back(step.saved["above"], step.work)
    leaf_back(to["leaf"], above, step.saved["leaf share"], m["leaf"], step.activation.factor)
    to["centre"].add_copies(step.trees, above)
    segment_back(step, "centre", to["centre"], to["leaf"], m["centre"])
