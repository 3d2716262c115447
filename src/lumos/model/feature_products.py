"""Products of features with a table of weights, whatever form the features have.

dense tensor [rows, d]      one product; gradients reach the features too
scipy CSR [rows, d]         O(nonzero · width); features are constants
RecoveredFeatures           O(elements that came · width), see `RecoveredFeatures.blocks`
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from scipy.sparse import csr_array, issparse
from torch import Tensor
from torch.autograd.function import once_differentiable

from lumos.errors import UsageError
from lumos.ldp.bounds import Sparse
from lumos.ldp.one_bit import RecoveredFeatures
from lumos.model.tree_tensors import csr
from lumos.typing import Floats

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
