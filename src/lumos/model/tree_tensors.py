"""Trees and features as the tensors that the layers need.

Trees come in pieces that fit a processor's cache, or as one graph for layers that know no trees.
Rows of devices become rows of branches by repeating them, and back by summing the branches of a
device, which follow each other: a sum over a run of rows, not a scatter. Features are multiplied
in whatever form they came.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_array, issparse
from torch import Tensor
from torch.autograd.function import once_differentiable

from lumos.errors import UsageError
from lumos.ldp.bounds import Sparse
from lumos.ldp.one_bit import RecoveredFeatures
from lumos.trees.forest import Forest
from lumos.typing import Floats

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
    def graph(self) -> "TreeGraph":
        """All nodes as one graph, tree by tree, edges in the order of their targets."""
        return self._graph(by_tree=True)

    @cached_property
    def graph_by_kind(self) -> "TreeGraph":
        """The same graph in the order of `Forest`, in which PyG layers by name have always run."""
        return self._graph(by_tree=False)

    def _graph(self, *, by_tree: bool) -> "TreeGraph":
        branches, branch = self.branches, torch.arange(self.branches)
        if self.virtual_nodes:
            rooted = torch.nonzero(self.workload).flatten()
            sizes = {"own": branches, "neighbour": branches, "parent": branches}
            sizes |= {"root": len(rooted), "lone": len(self.lone)}
            tree = torch.cat([self.owner, self.owner, self.owner, rooted, self.lone])
            root = 3 * branches + torch.searchsorted(rooted, self.owner)
            up = torch.cat([branch, branches + branch, 2 * branches + branch])
            down = torch.cat([2 * branches + branch, 2 * branches + branch, root])
        else:
            sizes = {"centre": self.devices, "leaf": branches}
            tree = torch.cat([torch.arange(self.devices), self.owner])
            up, down = self.devices + branch, self.owner
        number, edges = torch.arange(len(tree)), torch.cat([up, down, down, up]).view(2, -1)
        if by_tree:
            number = torch.argsort(torch.argsort(tree, stable=True))
            edges = number[edges]
            edges = edges[:, torch.argsort(edges[1] * len(tree) + edges[0])]
            tree = tree.sort().values
        return TreeGraph(
            edge_index=edges,
            batch=tree,
            kinds=dict(zip(sizes, torch.split(number, list(sizes.values())), strict=True)),
        )

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
class TreeGraph:
    """Trees as one graph, as PyG has it. The nodes of a tree stand in the order own leaves,
    neighbour leaves, parents, root."""

    edge_index: Tensor
    """[2, edges] in both directions."""
    batch: Tensor
    """[nodes] position of the device whose tree a node belongs to."""
    kinds: dict[str, Tensor]
    """Numbers of the nodes of each kind, in the order of `Forest`."""

    def nodes(self, rows: dict[str, Tensor]) -> Tensor:
        """[nodes, width] rows of some kinds at their nodes, and 0 at all others."""
        some = torch.cat(list(rows.values()))
        numbers = torch.cat([self.kinds[kind] for kind in rows])
        return some.new_zeros(len(self.batch), some.shape[1]).index_copy(0, numbers, some)

    def to(self, device: torch.device) -> "TreeGraph":
        """The graph on a torch device; the numbers of the nodes stay where they are."""
        moved = self.edge_index.to(device), self.batch.to(device)
        return TreeGraph(edge_index=moved[0], batch=moved[1], kinds=self.kinds)


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


# Products of features with a table of weights, whatever form the features have.
#
# dense tensor [rows, d]      one product; gradients reach the features too
# scipy CSR [rows, d]         O(nonzero · width); features are constants
# RecoveredFeatures           O(elements that came · width), see `RecoveredFeatures.blocks`

_COLUMNS_AT_ONCE = 32

Features: TypeAlias = "Tensor | Floats | Sparse | RecoveredFeatures"


def checked(features: Features, width: int) -> Features:
    """The features.

    Raises:
        UsageError: their number is not the model's.
    """
    if features.shape[1] != width:
        raise UsageError(f"features: {features.shape[1]} columns, the model has {width}")
    return features


def project(features: Features, table: Tensor) -> Tensor:
    """[rows, width] features times table [d, width]; differentiable with respect to the table."""
    checked(features, table.shape[0])
    if isinstance(features, RecoveredFeatures):
        product: Tensor = _RecoveredProduct.apply(features, table)  # type: ignore[no-untyped-call]
    elif issparse(features):
        product = _SparseProduct.apply(csr_array(features), table)  # type: ignore[no-untyped-call]
    else:
        dense = features if isinstance(features, Tensor) else torch.from_numpy(features)
        product = dense @ table
    return product


def span(features: Features, rows: slice) -> Features:
    """The rows `rows.start` … `rows.stop - 1`, in the form that the features have."""
    return features.span(rows) if isinstance(features, RecoveredFeatures) else features[rows]


def as_dense(features: Features) -> Tensor:
    """[rows, d] as an ordinary tensor, for layers that know no other."""
    if isinstance(features, RecoveredFeatures):
        return torch.from_numpy(features.dense())
    if issparse(features):
        return torch.from_numpy(csr_array(features).toarray())
    return features if isinstance(features, Tensor) else torch.from_numpy(features)


def _times(matrix: Sparse, table: Tensor) -> Tensor:
    """The product in torch's own routine, which is two to four times as fast as scipy's."""
    offsets, columns, values = map(torch.from_numpy, (matrix.indptr, matrix.indices, matrix.data))
    return csr(offsets, columns, values, matrix.shape[1]) @ table


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Sparse, table: Tensor) -> Tensor:
        ctx.matrix = matrix
        return torch.from_numpy(matrix @ table.detach().numpy())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, torch.from_numpy(ctx.matrix.T @ gradient.numpy())


class _RecoveredProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: RecoveredFeatures, table: Tensor) -> Tensor:
        ctx.features = features
        weight = table.detach()
        product = torch.zeros(features.shape[0], weight.shape[1])
        for columns, some in _in_cache(weight):
            for block in features.blocks:
                found = _times(block.matrix, some)
                product[block.rows, columns].add_(found, alpha=block.sign)
        product *= torch.from_numpy(features.scale)[:, None]
        return product.add_(weight.sum(dim=0), alpha=features.filler)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        features: RecoveredFeatures = ctx.features
        scaled = gradient * torch.from_numpy(features.scale)[:, None]
        table = torch.zeros(features.shape[1], gradient.shape[1])
        for columns, some in _in_cache(scaled):
            for block in features.blocks:
                found = _times(block.transposed, some[block.rows])
                table[:, columns].add_(found, alpha=block.sign)
        return None, table.add_(gradient.sum(dim=0), alpha=features.filler)


def _in_cache(table: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """A few columns at a time, so that the rows which a block needs stay in the cache."""
    for start in range(0, table.shape[1], _COLUMNS_AT_ONCE):
        columns = slice(start, start + _COLUMNS_AT_ONCE)
        yield columns, table[:, columns].contiguous()
