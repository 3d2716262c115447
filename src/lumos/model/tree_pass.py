"""The network on whole trees, forward and backward, piece by piece.

Trees do not touch each other, so a piece of some thousand branches goes through all layers while it
is in the processor's cache, and back again in the backward pass. Between the two only what the
layers need is kept, in memory that the next epoch uses again (`arena`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lumos.model.arena import Arena, Memory
from lumos.model.dropout import Activation, Drops
from lumos.model.layer_step import Kinds, LayerStep, LayerWeights, TreeLayer
from lumos.model.tree_tensors import Piece, Trees


@dataclass(frozen=True, eq=False)
class TreePass:
    """What a pass is made of.

    Args:
        layers: the layers.
        activation: of a layer, by its number, with what falls.
        trees: all trees.
        drops: what falls in training.
        multiplied: whether the rows given are products with the first layer's table already.
        memory: that of the network.
    """

    layers: Sequence[TreeLayer]
    activation: Callable[[int, Drops | None], Activation]
    trees: Trees
    drops: Drops | None
    multiplied: bool
    memory: Memory = field(repr=False)

    def run(
        self,
        own: Tensor,
        neighbour: Tensor,
        tables: list[Tensor],
        biases: list[Tensor],
        scores: list[Tensor | None],
    ) -> tuple[Tensor, Tensor]:
        """Own leaves, those of lone devices last, and neighbour leaves after the last layer.

        Args:
            own: [devices, …] rows; neighbour: [branches, …].
            tables: of each layer, the first unused if the rows are products.
            biases: of each layer, times the factor of its activation.
            scores: of each layer, see `TreeLayer.scores`.
        """
        given = [torch.empty(0) if one is None else one for one in scores]
        weights = *tables, *biases, *given
        leaves: tuple[Tensor, Tensor] = _Pass.apply(self, own, neighbour, *weights)  # type: ignore[no-untyped-call]
        return leaves

    @property
    def repeats_own(self) -> bool:
        """Whether a device's own leaves are still equal, and one row, after the last layer."""
        return len(self.layers) == 1 and self.trees.virtual_nodes

    @property
    def names(self) -> tuple[str, str]:
        """What own and neighbour rows are called."""
        return ("own", "neighbour") if self.trees.virtual_nodes else ("centre", "leaf")

    def by_layer(self, weights: Sequence[Tensor]) -> list[LayerWeights]:
        """The weights of `run` layer by layer."""
        count = len(self.layers)
        groups = (weights[start : start + count] for start in range(0, 3 * count, count))
        found = [LayerWeights(*some) for some in zip(*groups, strict=True)]
        return [found[0]._replace(table=None), *found[1:]] if self.multiplied else found

    def rows_of(self, piece: Piece, own: Tensor, neighbour: Tensor) -> Kinds:
        """The input of a piece, by kind."""
        given = own[piece.devices], neighbour[piece.branches]
        rows = dict(zip(self.names, given, strict=True))
        if self.trees.virtual_nodes:
            rows["lone"] = rows["own"].index_select(0, piece.trees.lone)
        return rows

    def pieces(self) -> list[tuple[Piece, Drops | None]]:
        """The pieces of the trees, each with what falls there."""
        pieces = self.trees.pieces
        none: list[Drops | None] = [None] * len(pieces)
        drops = none if self.drops is None else self.drops.by_piece(pieces)
        return list(zip(pieces, drops, strict=True))

    def leaf_places(self, piece: Piece, own: Tensor, neighbour: Tensor) -> Kinds:
        """Where the leaves of a piece stand among all leaves, by kind."""
        if not self.trees.virtual_nodes:
            return {"centre": own[piece.devices], "leaf": neighbour[piece.branches]}
        first = self.trees.branches
        lone = slice(first + piece.lone.start, first + piece.lone.stop)
        return {
            "own": own[piece.branches],
            "neighbour": neighbour[piece.branches],
            "lone": own[lone],
        }


class _Run(NamedTuple):
    """What is kept of a piece."""

    piece: Piece
    steps: list[LayerStep]


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: TreePass, own: Tensor, neighbour: Tensor, *weights: Tensor) -> Any:
        learning = any(ctx.needs_input_grad)
        by_layer = plan.by_layer(weights)
        width, keep = len(by_layer[-1].bias), plan.memory.take()
        leaves = (
            torch.empty(len(plan.trees.own_device), width),
            torch.empty(plan.trees.branches, width),
        )
        runs = []
        for piece, drops in plan.pieces():
            rows = plan.rows_of(piece, own, neighbour)
            runs.append(_forward(plan, piece, drops, rows, by_layer, keep, leaves))
            if not learning:
                runs.clear()
                keep.reset()
        if learning:
            ctx.plan, ctx.runs, ctx.keep = plan, runs, keep
            ctx.shapes = own.shape, neighbour.shape
            ctx.save_for_backward(*weights)
        else:
            plan.memory.give(keep)
        return leaves

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, own: Tensor, neighbour: Tensor) -> tuple[Any, ...]:
        plan: TreePass = ctx.plan
        if ctx.runs is None:
            raise RuntimeError("this backward pass was made before, and what it needs is gone")
        found = [
            LayerWeights(
                None if table is None else torch.zeros(table.shape[::-1]),
                torch.zeros_like(bias),
                torch.zeros_like(scores),
            )
            for table, bias, scores in plan.by_layer(ctx.saved_tensors)
        ]
        inputs = [
            torch.empty(shape) if needed else None
            for shape, needed in zip(ctx.shapes, ctx.needs_input_grad[1:3], strict=True)
        ]
        for run in reversed(ctx.runs):
            _backward(plan, run, plan.leaf_places(run.piece, own, neighbour), found, inputs)
        plan.memory.give(ctx.keep)
        ctx.runs = ctx.keep = None
        tables, biases, scores = zip(*found, strict=True)
        turned = (None if table is None else table.T for table in tables)
        return None, *inputs, *turned, *biases, *scores


def _forward(
    plan: TreePass,
    piece: Piece,
    drops: Drops | None,
    rows: Kinds,
    weights: list[LayerWeights],
    keep: Arena,
    leaves: tuple[Tensor, Tensor],
) -> _Run:
    """One piece through all layers; its leaves are written where they stand among all."""
    steps: list[LayerStep] = []
    places = plan.leaf_places(piece, *leaves)
    repeated = places.pop("own") if plan.repeats_own else None
    for number, layer in enumerate(plan.layers):
        remaining = len(plan.layers) - 1 - number
        step = LayerStep(
            piece.trees,
            remaining,
            plan.activation(number, drops),
            rows,
            weights[number],
            keep,
            plan.memory.step,
            {} if remaining else places,
        )
        step.work.reset()
        steps.append(step)
        rows = layer.forward_step(step)
    if repeated is not None:
        torch.index_select(rows["own"], 0, piece.trees.owner, out=repeated)
    return _Run(piece, steps)


def _backward(
    plan: TreePass,
    run: _Run,
    gradients: Kinds,
    found: list[LayerWeights],
    inputs: list[Tensor | None],
) -> None:
    """Of one piece: add to the gradients of the weights, write those of the inputs."""
    if plan.repeats_own:
        gradients["own"] = run.piece.trees.summed(gradients["own"])
    for number in reversed(range(len(plan.layers))):
        step, total = run.steps[number], found[number]
        step.work.reset()
        products = plan.layers[number].backward_step(step, step.before_activation(gradients), total)
        if total.table is not None:
            for kind, (rows, factor) in products.items():
                total.table.addmm_(rows.T, step.rows[kind], alpha=factor)
        if number:
            gradients = _inputs(step, products, plan.memory.between[number % 2])
        elif any(into is not None for into in inputs):
            _write(plan, run.piece, _inputs(step, products, plan.memory.between[0]), inputs)


def _inputs(step: LayerStep, products: dict[str, tuple[Tensor, float]], memory: Arena) -> Kinds:
    """Gradients of the input of a layer, from those of its products."""
    table = step.weights.table
    if table is None:
        return {kind: rows * factor for kind, (rows, factor) in products.items()}
    memory.reset()
    return {
        kind: torch.mm(rows, table.T * factor, out=memory.empty(len(rows), len(table)))
        for kind, (rows, factor) in products.items()
    }


def _write(plan: TreePass, piece: Piece, rows: Kinds, inputs: list[Tensor | None]) -> None:
    """Gradients of what the pass was given, where a piece stands in it."""
    places = piece.devices, piece.branches
    if "lone" in rows:
        rows["own"].index_add_(0, piece.trees.lone, rows["lone"])
    for name, place, into in zip(plan.names, places, inputs, strict=True):
        if into is not None:
            into[place] = rows[name]
