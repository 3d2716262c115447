"""Sparse matrices of torch."""

import warnings

import torch
from torch import Tensor


def csr(offsets: Tensor, columns: Tensor, values: Tensor, width: int) -> Tensor:
    """A sparse matrix [rows, width] by rows; int32 indices, which its fast product wants."""
    with warnings.catch_warnings():  # torch calls these tensors "beta"
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(offsets, columns, values, (len(offsets) - 1, width))
