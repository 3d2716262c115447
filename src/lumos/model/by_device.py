"""The gradient of each device by itself: what enters the masked sum (door `aggregate`).

The fused backward pass gives their sum at once; this gives the summands, one tree after the
other, a few milliseconds each: for small federations, and for shards of one device.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from lumos.model.dropout import Drops
from lumos.model.feature_products import Features, span
from lumos.model.network import Leaves, TreeNetwork
from lumos.model.tree_tensors import Piece, Trees


def device_gradients(
    network: TreeNetwork,
    trees: Trees,
    own: Features,
    neighbour: Features,
    drops: Drops | None,
    back: Leaves,
) -> Iterator[Tensor]:
    """[parameters] gradient of each device in turn, in the order of `network.parameters()`.

    Args:
        trees, own, neighbour, drops: as in `TreeNetwork.forward`.
        back: gradients of the loss with respect to the leaves, as POOL returned them.
    """
    none: list[Drops | None] = [None] * trees.devices
    fallen = none if drops is None else drops.by_piece(trees.single)
    parameters = list(network.parameters())
    for piece, mine in zip(trees.single, fallen, strict=True):
        leaves = network(
            piece.trees, span(own, piece.devices), span(neighbour, piece.branches), mine
        )
        found = torch.autograd.grad(
            [leaves.own, leaves.neighbour],
            parameters,
            [_own_back(piece, trees, back.own), back.neighbour[piece.branches]],
            allow_unused=True,
            materialize_grads=True,
        )
        yield torch.cat([gradient.reshape(-1) for gradient in found])


def _own_back(piece: Piece, trees: Trees, back: Tensor) -> Tensor:
    """The rows of a piece's own leaves among those of all trees: branches, then lone leaves."""
    if not trees.virtual_nodes:
        return back[piece.devices]
    lone = slice(trees.branches + piece.lone.start, trees.branches + piece.lone.stop)
    return torch.cat([back[piece.branches], back[lone]])
