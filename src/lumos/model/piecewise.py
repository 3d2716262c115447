"""A function of whole trees, piece by piece; the backward pass computes a piece again.

Trees do not touch each other, so a piece of some thousand branches goes through all layers while
it is in the processor's cache, and nothing but the leaves is kept: memory O(branches · output).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lumos.model.dropout import Drops
from lumos.model.trees import Piece, Trees

Body = Callable[[Trees, Drops | None, Tensor, Tensor], tuple[Tensor, Tensor]]
"""From trees, what falls, and rows of devices and branches to own leaves and neighbour leaves."""


def piecewise(
    body: Body,
    trees: Trees,
    drops: Drops | None,
    own: Tensor,
    neighbour: Tensor,
    parameters: tuple[Tensor, ...],
) -> tuple[Tensor, Tensor]:
    """`body(trees, drops, own, neighbour)`, with gradients for both rows and `parameters`.

    Args:
        own: [devices, …]; neighbour: [branches, …].
        parameters: every tensor with a gradient that `body` uses beside its arguments.
    """
    leaves: tuple[Tensor, Tensor] = _Piecewise.apply(  # type: ignore[no-untyped-call]
        body, trees, drops, own, neighbour, *parameters
    )
    return leaves


class _Piecewise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        body: Body,
        trees: Trees,
        drops: Drops | None,
        own: Tensor,
        neighbour: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        pieces = trees.pieces
        every: list[Drops | None] = [None] * len(pieces)
        fallen = every if drops is None else drops.by_piece(pieces)
        ctx.body, ctx.trees, ctx.fallen = body, trees, fallen
        ctx.save_for_backward(own, neighbour, *parameters)
        own_leaves, neighbour_leaves = [], []
        for piece, mine in zip(pieces, fallen, strict=True):
            leaves = body(piece.trees, mine, own[piece.devices], neighbour[piece.branches])
            own_leaves.append(leaves[0])
            neighbour_leaves.append(leaves[1])
        if not trees.virtual_nodes:
            return torch.cat(own_leaves), torch.cat(neighbour_leaves)
        # In each piece branches come before lone leaves; so they do in the whole.
        counts = [piece.trees.branches for piece in pieces]
        pairs = list(zip(own_leaves, counts, strict=True))
        in_order = [rows[:count] for rows, count in pairs] + [rows[count:] for rows, count in pairs]
        return torch.cat(in_order), torch.cat(neighbour_leaves)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, own_back: Tensor, neighbour_back: Tensor) -> tuple[Any, ...]:
        own, neighbour, *parameters = ctx.saved_tensors
        own_total, neighbour_total = torch.empty_like(own), torch.empty_like(neighbour)
        totals = [torch.zeros_like(parameter) for parameter in parameters]
        for piece, fallen in zip(ctx.trees.pieces, ctx.fallen, strict=True):
            with torch.enable_grad():
                rows = own[piece.devices].detach().requires_grad_()
                others = neighbour[piece.branches].detach().requires_grad_()
                leaves = ctx.body(piece.trees, fallen, rows, others)
            found = torch.autograd.grad(
                leaves,
                [rows, others, *parameters],
                [_own_of(piece, ctx.trees, own_back), neighbour_back[piece.branches]],
                allow_unused=True,
                materialize_grads=True,
            )
            own_total[piece.devices], neighbour_total[piece.branches] = found[:2]
            for total, part in zip(totals, found[2:], strict=True):
                total += part
        return None, None, None, own_total, neighbour_total, *totals


def _own_of(piece: Piece, trees: Trees, rows: Tensor) -> Tensor:
    """The rows of a piece's own leaves among those of all trees."""
    if not trees.virtual_nodes:
        return rows[piece.devices]
    lone = slice(trees.branches + piece.lone.start, trees.branches + piece.lone.stop)
    return torch.cat([rows[piece.branches], rows[lone]])
