"""POOL against autograd on the whole graph."""

from typing import get_args

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lumos.errors import UsageError
from lumos.model import Pooling
from lumos.model.network import pool, pool_backward


def in_one_piece(kind: str, leaves: Tensor, vertex: Tensor, devices: int, a: Tensor) -> Tensor:
    """The same in a loop over vertices, with autograd."""
    rows = []
    for device in range(devices):
        mine = leaves[vertex == device]
        if kind == "average":
            rows.append(mine.mean(dim=0))
        elif kind == "sum":
            rows.append(mine.sum(dim=0))
        elif kind == "max":
            rows.append(mine.amax(dim=0))
        else:
            rows.append(torch.softmax(mine @ a, dim=0) @ mine)
    return torch.stack(rows)


@pytest.mark.parametrize("kind", get_args(Pooling))
def test_forward_and_backward_equal_autograd(kind: Pooling) -> None:
    generator = torch.Generator().manual_seed(0)
    vertex = torch.tensor([0, 2, 1, 2, 2, 0, 3, 1, 2])
    leaves = torch.relu(torch.randn(9, 5, generator=generator)).requires_grad_()  # ties at 0
    vector = torch.randn(5, generator=generator, requires_grad=True)
    gradient = torch.randn(4, 5, generator=generator)
    expected = in_one_piece(kind, leaves, vertex, 4, vector)
    expected.backward(gradient)
    pooled = pool(kind, leaves, vertex, 4, vector if kind == "attention" else None)
    assert_close(pooled.embedding, expected.detach())
    back, vector_back = pool_backward(pooled, gradient)
    assert_close(back, leaves.grad)
    if kind == "attention":
        assert vector_back is not None
        assert_close(vector_back.sum(dim=0), vector.grad)
    else:
        assert vector_back is None


@pytest.mark.parametrize("kind", get_args(Pooling))
def test_a_device_without_leaves_is_zero(kind: Pooling) -> None:
    vector = torch.ones(2) if kind == "attention" else None
    pooled = pool(kind, torch.ones(2, 2), torch.tensor([0, 0]), 2, vector)
    assert pooled.embedding[1].tolist() == [0, 0]
    back, _ = pool_backward(pooled, torch.ones(2, 2))
    assert torch.isfinite(back).all()


def test_attention_needs_its_vector_and_nothing_else_does() -> None:
    leaves, vertex = torch.ones(1, 2), torch.tensor([0])
    with pytest.raises(UsageError, match="only there"):
        pool("attention", leaves, vertex, 1)
    with pytest.raises(UsageError, match="only there"):
        pool("sum", leaves, vertex, 1, torch.ones(2))
    with pytest.raises(UsageError, match="pool must be one of"):
        pool("median", leaves, vertex, 1)  # type: ignore[arg-type]
