"""Products of features with a table of weights, whatever form the features have.

dense tensor [rows, d]      one product; gradients reach the features too
scipy CSR [rows, d]         O(nonzero · width); features are constants
RecoveredFeatures           O(elements that came · width), see `RecoveredFeatures.blocks`
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from scipy.sparse import csr_array, issparse
from torch import Tensor
from torch.autograd.function import once_differentiable

from lumos.encode.bounds import Floats, Sparse
from lumos.encode.recovered import RecoveredFeatures
from lumos.errors import UsageError

Part = TypeVar("Part")
Found = TypeVar("Found")

Features: TypeAlias = "Tensor | Floats | Sparse | RecoveredFeatures"


def project(features: Features, table: Tensor) -> Tensor:
    """[rows, width] features times table [d, width]; differentiable with respect to the table."""
    if features.shape[1] != table.shape[0]:
        raise UsageError(f"features: {features.shape[1]} columns, the model has {table.shape[0]}")
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


def in_threads(do: Callable[[Part], Found], parts: Iterable[Part]) -> Iterator[Found]:
    """`do` for each part, in as many threads as torch uses, in the order of the parts.

    scipy lets go of Python's lock inside its products, so they run side by side.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield from map(do, parts)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Found]] = deque()
        for part in parts:
            waiting.append(pool.submit(do, part))
            if len(waiting) > threads:  # no more results in memory than threads
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


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
        weight = table.detach().numpy()
        signed = features.released.values is None
        both = np.concatenate([weight, -weight]) if signed else np.ascontiguousarray(weight)
        product = np.empty((features.shape[0], weight.shape[1]), np.float32)

        def multiply(part: tuple[slice, Sparse]) -> None:
            rows, block = part
            product[rows] = block @ both

        for _ in in_threads(multiply, features.blocks()):
            pass
        product *= features.scale[:, None]
        product += np.float32(features.filler) * weight.sum(axis=0)
        return torch.from_numpy(product)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        features: RecoveredFeatures = ctx.features
        back = gradient.numpy()
        scaled = back * features.scale[:, None]
        signed = features.released.values is None
        width = features.shape[1]
        both = np.zeros((2 * width if signed else width, back.shape[1]), np.float32)

        def multiply(part: tuple[slice, Sparse]) -> Floats:
            rows, block = part
            found: Floats = block.T @ scaled[rows]  # the transpose of CSR shares its arrays
            return found

        for found in in_threads(multiply, features.blocks()):
            both += found  # in the order of the blocks, however many threads there are
        table = both[:width] - both[width:] if signed else both
        table += np.float32(features.filler) * back.sum(axis=0)
        return None, torch.from_numpy(table)
