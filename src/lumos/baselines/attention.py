"""Graph attention over millions of arcs: softmax over the arcs into a device, in chunks of arcs.

    α_ij = softmax_j LeakyReLU(a_i + b_j)          over the arcs j → i and the self-loop
    out_i = Σ_j α_ij h_j

Nothing of the size of all arcs is kept: the backward pass computes α again from the maximum and the
sum of each device. With G_i the gradient of out_i, that of the score before the softmax is
α_ij (G_i·h_j - G_i·out_i).
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lumos.baselines.arcs import Arcs

SLOPE = 0.2
"""Of LeakyReLU below 0."""
CHUNK = 1 << 19
"""Arcs that are worked on at a time."""


def attend(arcs: Arcs, values: Tensor, mine: Tensor, theirs: Tensor, chunk: int = CHUNK) -> Tensor:
    """[devices, heads, width] attention-weighted sums, each device also attending to itself.

    Args:
        values: [devices, heads, width] h.
        mine: [devices, heads] a, of the device that an arc leads to.
        theirs: [devices, heads] b, of the device that it comes from.
        chunk: arcs at a time.
    """
    out: Tensor = _Attend.apply(arcs, chunk, values, mine, theirs)  # type: ignore[no-untyped-call]
    return out


def _leaky(sums: Tensor) -> Tensor:
    return torch.where(sums > 0, sums, SLOPE * sums)


def _chunks(arcs: Arcs, chunk: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Spans of devices with about `chunk` arcs: the span, rows of their arcs in it, sources."""
    offsets = arcs.offsets.long()
    start = 0
    while start < arcs.devices:
        limit = torch.searchsorted(offsets, offsets[start] + chunk, right=True).item() - 1
        end = min(max(int(limit), start + 1), arcs.devices)
        counts = offsets[start : end + 1].diff()
        rows = torch.repeat_interleave(torch.arange(end - start), counts)
        yield slice(start, end), rows, arcs.sources[int(offsets[start]) : int(offsets[end])].long()
        start = end


def _largest(arcs: Arcs, chunk: int, theirs: Tensor) -> Tensor:
    """[devices, heads] the largest b among a device and its neighbours."""
    largest = theirs.clone()
    for span, rows, sources in _chunks(arcs, chunk):
        index = rows[:, None].expand(-1, theirs.shape[1])
        largest[span].scatter_reduce_(0, index, theirs[sources], "amax")
    return largest


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, arcs: Arcs, chunk: int, values: Tensor, mine: Tensor, theirs: Tensor
    ) -> Tensor:
        top = _leaky(mine + _largest(arcs, chunk, theirs))  # the score rises with b
        itself = torch.exp(_leaky(mine + theirs) - top)
        total = itself.clone()
        out = itself[:, :, None] * values
        for span, rows, sources in _chunks(arcs, chunk):
            score = _leaky(mine[span][rows] + theirs[sources]) - top[span][rows]
            share = arcs.weight * torch.exp(score)
            total[span].index_add_(0, rows, share)
            out[span].index_add_(0, rows, share[:, :, None] * values[sources])
        out /= total[:, :, None]
        ctx.arcs, ctx.chunk = arcs, chunk
        ctx.save_for_backward(values, mine, theirs, top, total, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor, Tensor, Tensor]:
        values, mine, theirs, top, total, out = ctx.saved_tensors
        arcs: Arcs = ctx.arcs
        common = (gradient * out).sum(dim=2)
        sums = mine + theirs
        share = torch.exp(_leaky(sums) - top) / total
        to_values = share[:, :, None] * gradient
        slope = share * ((gradient * values).sum(dim=2) - common)
        slope = torch.where(sums > 0, slope, SLOPE * slope)
        to_mine, to_theirs = slope.clone(), slope.clone()
        for span, rows, sources in _chunks(arcs, ctx.chunk):
            sums = mine[span][rows] + theirs[sources]
            share = arcs.weight * torch.exp(_leaky(sums) - top[span][rows]) / total[span][rows]
            arriving = gradient[span][rows]
            slope = share * ((arriving * values[sources]).sum(dim=2) - common[span][rows])
            slope = torch.where(sums > 0, slope, SLOPE * slope)
            to_mine[span].index_add_(0, rows, slope)
            to_theirs.index_add_(0, sources, slope)
            to_values.index_add_(0, sources, arriving.mul_(share[:, :, None]))
        return None, None, to_values, to_mine, to_theirs
