"""The edges that a server knows or believes in, as an operator on rows of numbers.

An edge is two arcs. Sums over neighbours are products with a symmetric 0/1 matrix, so the gradient
of such a sum is the same sum of the gradients.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.autograd.function import once_differentiable

from lumos.model.sparse import csr
from lumos.typing import Ints


@dataclass(frozen=True, eq=False, kw_only=True)
class Arcs:
    """A symmetric graph without self-loops, in CSR form."""

    offsets: Tensor = field(repr=False)
    """[devices + 1] int32: the arcs into device u are offsets[u] … offsets[u + 1] - 1."""
    sources: Tensor = field(repr=False)
    """[arcs] int32: where each arc comes from."""
    degrees: Tensor = field(repr=False)
    """[devices] float32: neighbours of each device, before any sampling."""
    weight: float = 1.0
    """What each arc counts: more than 1 where arcs stand for others that were not sampled."""
    _matrix: Tensor = field(repr=False)

    @staticmethod
    def of(
        pairs: Ints, devices: int, *, degrees: Tensor | None = None, weight: float = 1.0
    ) -> "Arcs":
        """The graph with the edges `pairs` [edges, 2], each once."""
        low, high = (pairs[:, end].astype(np.int32) for end in (0, 1))
        ones = np.ones(len(pairs), np.float32)
        half = csr_array((ones, (low, high)), shape=(devices, devices))
        whole = csr_array(half + half.T)
        whole.sort_indices()
        offsets = torch.from_numpy(whole.indptr.astype(np.int32))
        sources = torch.from_numpy(whole.indices.astype(np.int32))
        if degrees is None:
            degrees = offsets.diff().to(torch.float32)
        matrix = csr(offsets, sources, torch.from_numpy(whole.data), devices)
        return Arcs(
            offsets=offsets, sources=sources, degrees=degrees, weight=weight, _matrix=matrix
        )

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.offsets) - 1

    def __len__(self) -> int:
        return len(self.sources)

    def sum(self, rows: Tensor) -> Tensor:
        """[devices, width] the sum of the neighbours' rows, times the arcs' weight."""
        total: Tensor = _NeighbourSum.apply(self._matrix, rows)  # type: ignore[no-untyped-call]
        return total if self.weight == 1.0 else self.weight * total

    def mean(self, rows: Tensor) -> Tensor:
        """[devices, width] D⁻¹ A: the mean over neighbours, 0 where there is none."""
        return self.sum(rows) / self.degrees.clamp(min=1)[:, None]

    def smooth(self, rows: Tensor) -> Tensor:
        """[devices, width] D^-½ A D^-½, without self-loops; 0 where there is no neighbour."""
        smooth: Tensor = _NeighbourSum.apply(self._smoother, rows)  # type: ignore[no-untyped-call]
        return smooth

    @cached_property
    def _smoother(self) -> Tensor:
        root = self.degrees.clamp(min=1).rsqrt()
        values = self.weight * root[self.sources] * root.repeat_interleave(self.offsets.diff())
        return csr(self.offsets, self.sources, values, self.devices)

    def smooth_with_self(self, rows: Tensor) -> Tensor:
        """[devices, width] (D + I)^-½ (A + I) (D + I)^-½, as in GCN."""
        root = (self.degrees + 1).rsqrt()[:, None]
        scaled = root * rows
        return root * (self.sum(scaled) + scaled)


class _NeighbourSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, rows: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix @ rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix @ gradient.contiguous()
