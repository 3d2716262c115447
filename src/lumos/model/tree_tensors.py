"""Forests as the tensors that the layers need, in pieces that fit a processor's cache.

Rows of devices become rows of branches by repeating them, and back by summing the branches of a
device, which follow each other: a sum over a run of rows, not a scatter.
"""

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from lumos.errors import UsageError
from lumos.trees.forest import Forest

_BRANCHES_AT_ONCE = 1 << 16
"""Branches of a piece: an array of width 16 takes 4 MB, and a few fit a processor's last cache.

Measured on Facebook's trees (170,823 branches) an epoch takes 1.4 times as long in pieces of 4,096,
where the calls cost more than the second cache saves, and 1.05 times as long as in one piece."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trees:
    """Trees of some devices whose branches follow each other in the order of the devices.

    Args:
        owner: [branches] position of the branch's device, not decreasing.
        workload: [devices] branches of each device.
        virtual_nodes: trees as in the paper, or stars.
    """

    owner: Tensor = field(repr=False)
    workload: Tensor = field(repr=False)
    virtual_nodes: bool

    @staticmethod
    def of(forest: Forest) -> "Trees":
        """The trees of a forest.

        Raises:
            UsageError: there is no device, or the branches are not in the order of the devices.
        """
        if not len(forest.devices):
            raise UsageError("forest: there is no device")
        if (np.diff(forest.owner) < 0).any():
            raise UsageError("forest: branches must be in the order of their devices")
        return Trees(
            owner=torch.from_numpy(np.array(forest.owner, np.int64)),
            workload=torch.from_numpy(np.array(forest.workload, np.int64)),
            virtual_nodes=forest.virtual_nodes,
        )

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.workload)

    @property
    def branches(self) -> int:
        """Number of branches."""
        return len(self.owner)

    @cached_property
    def lone(self) -> Tensor:
        """[lone] positions of the devices that keep nobody: in a tree of their own kind."""
        alone = self.workload == 0
        return torch.nonzero(alone).flatten()

    @cached_property
    def own_device(self) -> Tensor:
        """[own leaves] position of the device that each own leaf stands for."""
        if not self.virtual_nodes:
            return torch.arange(self.devices)
        return torch.cat([self.owner, self.lone])

    @cached_property
    def degree(self) -> Tensor:
        """[devices, 1] degree of the root (or centre) with its self-loop: workload + 1."""
        return (self.workload + 1).to(torch.float32).unsqueeze(1)

    def repeated(self, per_device: Tensor) -> Tensor:
        """[devices, …] as [branches, …]: every branch gets its device's row."""
        return per_device.index_select(0, self.owner)

    def summed(self, per_branch: Tensor) -> Tensor:
        """[branches, width, …] as [devices, …]: the sum over a device's branches."""
        sums = self._sums @ per_branch.flatten(1)
        return sums.view(self.devices, *per_branch.shape[1:])

    @cached_property
    def _sums(self) -> Tensor:
        """[devices, branches] sparse: 1 where a branch is the device's; 4 times a scatter's speed.

        The indices are 32 bits wide: `pieces` have few enough branches, whole shards may not.
        """
        kind = torch.int32 if self.branches < 1 << 31 else torch.int64
        ends = torch.cumsum(self.workload, 0)
        offsets = torch.cat([ends.new_zeros(1), ends]).to(kind)
        columns = torch.arange(self.branches, dtype=kind)
        return csr(offsets, columns, torch.ones(self.branches), self.branches)

    @cached_property
    def pieces(self) -> "list[Piece]":
        """The same trees in runs of whole devices, of about 65,000 branches each."""
        ends = np.cumsum(self.workload.numpy())
        firsts = [0]
        while firsts[-1] < self.devices:
            first = firsts[-1]
            start = int(ends[first - 1]) if first else 0
            last = int(np.searchsorted(ends, start + _BRANCHES_AT_ONCE, side="right"))
            firsts.append(min(max(last, first + 1), first + _BRANCHES_AT_ONCE, self.devices))
        return self._cut(firsts)

    @cached_property
    def single(self) -> "list[Piece]":
        """The same trees one by one."""
        return self._cut(list(range(self.devices + 1)))

    def _cut(self, firsts: list[int]) -> "list[Piece]":
        """Pieces that begin at these devices; the last number is where the last one ends."""
        workload = self.workload.numpy()
        branch = np.concatenate([[0], np.cumsum(workload)]).tolist()
        lone = np.concatenate([[0], np.cumsum(workload == 0)]).tolist()
        return [
            Piece(
                trees=Trees(
                    owner=self.owner[branch[first] : branch[last]] - first,
                    workload=self.workload[first:last],
                    virtual_nodes=self.virtual_nodes,
                ),
                devices=slice(first, last),
                branches=slice(branch[first], branch[last]),
                lone=slice(lone[first], lone[last]),
            )
            for first, last in pairwise(firsts)
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """Some trees of a forest, and where their devices, branches and lone leaves stand in it."""

    trees: Trees
    devices: slice
    branches: slice
    lone: slice


def csr(offsets: Tensor, columns: Tensor, values: Tensor, width: int) -> Tensor:
    """A sparse matrix [rows, width] by rows; int32 indices, which its fast product wants."""
    with warnings.catch_warnings():  # torch calls these tensors "beta"
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(offsets, columns, values, (len(offsets) - 1, width))
