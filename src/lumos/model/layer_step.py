"""One layer on one piece of the trees: what it gets, what it keeps, what it returns.

Rows stand by kind of node. In a tree, `own` has one row per device as long as a device's own leaves
are all equal (up to and including the first layer's output: the parents they hear from are still
zero), and one row per branch afterwards. `parent` and `root` are missing while they are zero, and
where nothing that follows needs them: a parent reaches a leaf in one layer, a root in two. `lone`
are the leaves of devices that keep nobody: their trees are one leaf. Rows of `root` of such devices
mean nothing. A star has `centre` [devices] and `leaf` [branches].
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from lumos.model.arena import Arena
from lumos.model.dropout import Activation
from lumos.model.tree_tensors import Trees

Kinds: TypeAlias = "dict[str, Tensor]"
"""[rows, width] of each kind of node."""


@dataclass(eq=False)
class LayerStep:
    """One layer on one piece.

    Args:
        trees: the piece.
        remaining: layers that follow, which decide what is needed.
        activation: what follows the layer.
        rows: the input.
        weights: what the layer computes with.
        keep: memory for what the backward pass needs.
        work: memory for what it does not need.
        places: where rows of a kind are to be written, if not in memory of `keep`.
    """

    trees: Trees
    remaining: int
    activation: Activation
    rows: Kinds
    weights: "LayerWeights"
    keep: Arena
    work: Arena
    places: Kinds = field(default_factory=dict)
    saved: dict[str, Any] = field(default_factory=dict)
    """What the layer keeps for its backward pass, by names of its own."""
    out: Kinds = field(default_factory=dict)
    """What the layer returned."""

    @property
    def shared(self) -> bool:
        """Whether rows of `own` come one for each device, not for each branch."""
        return self.activation.layer <= 1

    def product(self, kind: str, memory: Arena) -> Tensor:
        """[rows, width] the input of a kind times the table."""
        rows, table = self.rows[kind], self.weights.table
        if table is None:
            return rows
        return torch.mm(rows, table, out=memory.empty(len(rows), table.shape[1]))

    def affine(self, kind: str, into: Tensor) -> Tensor:
        """The product of a kind, and the bias."""
        rows, table, bias = self.rows[kind], self.weights.table, self.weights.bias
        if table is None:
            return torch.add(rows, bias, out=into)
        return torch.addmm(bias, rows, table, out=into)

    def accumulate(self, kind: str, into: Tensor, factor: float) -> Tensor:
        """Add the product of a kind, times a factor."""
        rows, table = self.rows[kind], self.weights.table
        if table is None:
            return into.add_(rows, alpha=factor)
        return into.addmm_(rows, table, alpha=factor)

    def rows_for(self, kind: str, rows: int) -> Tensor:
        """[rows, width] uninitialised, for the output of a kind."""
        place = self.places.get(kind)
        return self.keep.empty(rows, len(self.weights.bias)) if place is None else place

    def finish(self, rows: Kinds) -> Kinds:
        """Activate the output, in place, and keep it."""
        for kind, some in rows.items():
            self.activation.clip_(some, kind)
        self.out = rows
        return rows

    def before_activation(self, gradients: Kinds) -> Kinds:
        """Gradients with respect to what was activated; they may be written to."""
        return {
            kind: self.activation.back(gradients[kind], out, self.work.empty(*out.shape))
            for kind, out in self.out.items()
        }


class LayerWeights(NamedTuple):
    """What a layer computes with, or the gradients of it."""

    table: Tensor | None
    """[in, width] what rows are multiplied with; None if they come multiplied. Its gradient is
    [width, in]: so rows of features are read as they lie, a quarter faster."""
    bias: Tensor
    """[width] times the factor of the activation."""
    scores: Tensor
    """[width, 2 · heads] of a layer with attention; empty otherwise."""


class TreeLayer(Protocol):
    """A layer that knows the shape of a tree, with its derivative written out."""

    def table(self, activation: Activation) -> Tensor:
        """[in, width] what rows are multiplied with."""
        ...

    def scores(self) -> Tensor | None:
        """[width, 2 · heads] what gives the scores of a product, for a layer with attention."""
        ...

    def forward_step(self, step: LayerStep) -> Kinds:
        """Activated rows."""
        ...

    def backward_step(
        self, step: LayerStep, back: Kinds, found: LayerWeights
    ) -> dict[str, tuple[Tensor, float]]:
        """Of every kind, the gradient of its product, to be multiplied by the number beside it.

        Args:
            back: what `step.before_activation` returned; it may be written to.
            found: gradients of bias and scores, to which it adds.
        """
        ...
