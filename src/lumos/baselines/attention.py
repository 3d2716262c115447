"""Graph attention over tens of millions of arcs: softmax over the arcs into a device, in chunks.

    α_ij = softmax_j LeakyReLU(a_i + b_j)          over the arcs j → i and the self-loop
    out_i = Σ_j α_ij h_j

Nothing of the size of all arcs is kept: both passes compute α afresh, one head and one span of
devices at a time, and all sums are products with CSR matrices. With G_i the gradient of out_i,
c_i = G_i·out_i and s_ij the slope of LeakyReLU,

    ∂a_i = Σ_j α_ij s_ij (G_i·h_j - c_i) = G_i·(Σ_j α_ij s_ij h_j) - c_i Σ_j α_ij s_ij
    ∂b_j = Σ_i α_ij s_ij (G_i·h_j - c_i) = h_j·(Σ_i α_ij s_ij G_i) - Σ_i α_ij s_ij c_i
    ∂h_j = Σ_i α_ij G_i

and since every arc has its reverse, the sums over i run over the arcs of j as well.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lumos.baselines.arcs import Arcs
from lumos.model.sparse import csr

SLOPE = 0.2
"""Of LeakyReLU below 0."""
CHUNK = 1 << 20
"""Arcs that are worked on at a time."""


def attend(arcs: Arcs, values: Tensor, mine: Tensor, theirs: Tensor, chunk: int = CHUNK) -> Tensor:
    """[devices, heads, width] attention-weighted sums, each device also attending to itself.

    Args:
        values: [devices, heads, width] h.
        mine: [devices, heads] a, of the device that an arc leads to.
        theirs: [devices, heads] b, of the device that it comes from.
        chunk: arcs at a time.
    """
    by_head = zip(
        *(part.transpose(0, 1).contiguous() for part in (values, mine, theirs)), strict=True
    )
    heads = [_Head.apply(arcs, chunk, *head) for head in by_head]  # type: ignore[no-untyped-call]
    return torch.stack(heads, dim=1)


class _Span(NamedTuple):
    """The arcs into a span of devices."""

    devices: slice
    counts: Tensor
    """[devices of the span] arcs into each."""
    offsets: Tensor
    """[devices of the span + 1]"""
    sources: Tensor
    """[arcs of the span]"""

    def each(self, numbers: Tensor) -> Tensor:
        """[arcs] the number of the device that each arc leads to."""
        return numbers[self.devices].repeat_interleave(self.counts, output_size=len(self.sources))

    def matrix(self, values: Tensor, devices: int) -> Tensor:
        """[devices of the span, devices] with these values at the arcs."""
        return csr(self.offsets, self.sources, values, devices)


def _spans(arcs: Arcs, chunk: int) -> Iterator[_Span]:
    """Spans of devices with about `chunk` arcs each."""
    offsets, start = arcs.offsets, 0
    while start < arcs.devices:
        limit = int(torch.searchsorted(offsets, int(offsets[start]) + chunk, right=True)) - 1
        end = min(max(limit, start + 1), arcs.devices)
        here = offsets[start : end + 1]
        first, last = int(here[0]), int(here[-1])
        yield _Span(slice(start, end), here.diff(), here - first, arcs.sources[first:last])
        start = end


def _leaky(sums: Tensor) -> Tensor:
    return torch.maximum(sums, SLOPE * sums)


def _slope(sums: Tensor) -> Tensor:
    return torch.where(sums > 0, 1.0, SLOPE)


def _with(rows: Tensor, column: Tensor) -> Tensor:
    return torch.cat([rows, column[:, None]], dim=1)


class _Head(torch.autograd.Function):
    """One head: h [devices, width], a and b [devices]."""

    @staticmethod
    def forward(
        ctx: Any, arcs: Arcs, chunk: int, values: Tensor, mine: Tensor, theirs: Tensor
    ) -> Tensor:
        counted = _with(values, torch.ones_like(mine))
        top = torch.empty_like(mine)
        sums = torch.empty_like(counted)
        for span in _spans(arcs, chunk):
            here, incoming = span.devices, theirs.index_select(0, span.sources)
            most = torch.segment_reduce(
                incoming, "max", lengths=span.counts.long(), initial=-torch.inf
            )
            top[here] = _leaky(mine[here] + torch.maximum(most, theirs[here]))  # it rises with b
            share = arcs.weight * torch.exp(_leaky(span.each(mine) + incoming) - span.each(top))
            sums[here] = span.matrix(share, arcs.devices) @ counted
        sums += torch.exp(_leaky(mine + theirs) - top)[:, None] * counted
        total = sums[:, -1]
        out = sums[:, :-1] / total[:, None]
        ctx.arcs, ctx.chunk = arcs, chunk
        ctx.save_for_backward(values, mine, theirs, top + total.log(), out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor, Tensor, Tensor]:
        values, mine, theirs, level, out = ctx.saved_tensors
        arcs: Arcs = ctx.arcs
        common = (gradient * out).sum(dim=1)
        counted, known = _with(values, torch.ones_like(mine)), _with(gradient, common)
        sums = mine + theirs
        share = torch.exp(_leaky(sums) - level)
        to_values = share[:, None] * gradient
        steep = (share * _slope(sums))[:, None]
        arriving, leaving = steep * counted, steep * known
        for span in _spans(arcs, ctx.chunk):
            here, sources = span.devices, span.sources
            sums = span.each(mine) + theirs.index_select(
                0, sources
            )  # arcs into these devices: Σ over j
            share = arcs.weight * torch.exp(_leaky(sums) - span.each(level))
            arriving[here] += span.matrix(share * _slope(sums), arcs.devices) @ counted
            sums = span.each(theirs) + mine.index_select(0, sources)  # their reverses: Σ over i
            share = arcs.weight * torch.exp(_leaky(sums) - level.index_select(0, sources))
            to_values[here] += span.matrix(share, arcs.devices) @ gradient
            leaving[here] += span.matrix(share * _slope(sums), arcs.devices) @ known
        to_mine = (gradient * arriving[:, :-1]).sum(dim=1) - common * arriving[:, -1]
        to_theirs = (values * leaving[:, :-1]).sum(dim=1) - leaving[:, -1]
        return None, None, to_values, to_mine, to_theirs
