"""POOL (section VI-B): the embeddings of a vertex's leaves become the vertex's embedding.

Leaves arrive as messages and gradients return as messages, so no autograd graph connects them:
forward and backward are plain functions of per-leaf arrays. O(leaves · width).
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from lumos.errors import UsageError
from lumos.model.settings import POOLINGS, Pooling


@dataclass(frozen=True, eq=False)
class Pooled:
    """Vertex embeddings, and what the backward pass needs."""

    embedding: Tensor
    """[devices, width]; zero for a device that has no leaf."""
    kind: Pooling
    leaves: Tensor = field(repr=False)
    vertex: Tensor = field(repr=False)
    shares: Tensor = field(repr=False)
    """[leaves, 1] weight of each leaf; for max [leaves, width], ties share."""
    attention: Tensor | None = field(default=None, repr=False)


def pool(
    kind: Pooling, leaves: Tensor, vertex: Tensor, devices: int, attention: Tensor | None = None
) -> Pooled:
    """Combine the leaves of each vertex.

    Args:
        kind: average, sum, max, or attention: weights softmax(leaf · a) over a vertex's leaves.
        leaves: [leaves, width] embeddings, a device's own and those that came, in any order.
        vertex: [leaves] position of the device that a leaf stands for.
        devices: number of devices.
        attention: [width] the vector a, for attention only.
    """
    if kind not in POOLINGS:
        raise UsageError(f"pool must be one of {', '.join(POOLINGS)}, got {kind!r}")
    if (kind == "attention") != (attention is not None):
        raise UsageError("attention: a vector is needed for the pool 'attention', and only there")
    leaves = leaves.detach()
    if kind == "max":
        return _largest(leaves, vertex, devices)
    shares = leaves.new_ones(len(leaves), 1)
    if kind == "average":
        number = torch.bincount(vertex, minlength=devices).to(leaves.dtype)
        shares = (1 / number).index_select(0, vertex).unsqueeze(1)
    elif attention is not None:
        attention = attention.detach()
        shares = _softmax(leaves @ attention, vertex, devices).unsqueeze(1)
    embedding = _sum(leaves * shares, vertex, devices)
    return Pooled(embedding, kind, leaves, vertex, shares, attention)


def pool_backward(pooled: Pooled, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
    """Gradients of the leaves [leaves, width], and of the attention vector or None.

    The latter is [devices, width], device by device: their sum is the gradient.

    Args:
        pooled: what `pool` returned.
        gradient: [devices, width] of the loss with respect to the vertex embeddings.
    """
    by_leaf = gradient.index_select(0, pooled.vertex)
    back = by_leaf * pooled.shares
    if pooled.attention is None:
        return back, None
    # d softmax: ds_i = α_i (g·leaf_i - Σ_j α_j g·leaf_j)
    devices = len(pooled.embedding)
    alpha = pooled.shares.squeeze(1)
    pull = (by_leaf * pooled.leaves).sum(dim=1)
    mean = _sum(alpha * pull, pooled.vertex, devices)
    scores = alpha * (pull - mean.index_select(0, pooled.vertex))
    by_device = _sum(scores[:, None] * pooled.leaves, pooled.vertex, devices)
    return back + torch.outer(scores, pooled.attention), by_device


def _largest(leaves: Tensor, vertex: Tensor, devices: int) -> Pooled:
    index = vertex.unsqueeze(1).expand_as(leaves)
    zeros = leaves.new_zeros(devices, leaves.shape[1])
    embedding = zeros.scatter_reduce(0, index, leaves, "amax", include_self=False)
    ties = (leaves == embedding.index_select(0, vertex)).to(leaves.dtype)
    shares = ties / _sum(ties, vertex, devices).index_select(0, vertex)
    return Pooled(embedding, "max", leaves, vertex, shares)


def _softmax(scores: Tensor, vertex: Tensor, devices: int) -> Tensor:
    lowest = scores.new_full((devices,), -torch.inf)
    most = lowest.scatter_reduce(0, vertex, scores, "amax")
    weights = torch.exp(scores - most.index_select(0, vertex))
    return weights / _sum(weights, vertex, devices).index_select(0, vertex)


def _sum(rows: Tensor, vertex: Tensor, devices: int) -> Tensor:
    zeros = rows.new_zeros(devices, *rows.shape[1:])
    return zeros.index_add(0, vertex, rows)
