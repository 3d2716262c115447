"""A function of whole trees, piece by piece.

Trees do not touch each other, so a piece of some ten thousand branches goes through all layers
while it is in the processor's cache, and back again in the backward pass.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lumos.model.dropout import Drops
from lumos.model.tree_tensors import Trees

Body = Callable[[Trees, Drops | None, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""From trees, what falls, and rows of devices and branches to leaves: own, lone, neighbour."""


def piecewise(
    body: Body, trees: Trees, drops: Drops | None, own: Tensor, neighbour: Tensor
) -> tuple[Tensor, Tensor]:
    """`body` on every piece: own leaves, those of lone devices last, and neighbour leaves.

    Args:
        own: [devices, …]; neighbour: [branches, …].
    """
    pieces = trees.pieces
    none: list[Drops | None] = [None] * len(pieces)
    leaves = [
        body(piece.trees, fallen, rows, others)
        for piece, fallen, rows, others in zip(
            pieces,
            none if drops is None else drops.by_piece(pieces),
            # Their backward pass joins the gradients in one go; that of slices would not.
            torch.split_with_sizes(own, [piece.trees.devices for piece in pieces]),
            torch.split_with_sizes(neighbour, [piece.trees.branches for piece in pieces]),
            strict=True,
        )
    ]
    owns, lones, neighbours = zip(*leaves, strict=True)
    return torch.cat([*owns, *lones]), torch.cat(neighbours)
