"""The fast layers against PyG on the block-diagonal graph, forward and backward."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.narrow import present
from torch import Tensor
from torch.testing import assert_close

from lumos import Forest
from lumos.errors import UsageError
from lumos.model.network import TreeNetwork
from lumos.model.tree_tensors import Trees

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


def loss(own: Tensor, neighbour: Tensor) -> Tensor:
    """Any loss in which every element has a gradient of its own."""
    generator = torch.Generator().manual_seed(1)
    return sum(
        ((leaves * torch.randn(leaves.shape, generator=generator)).sum() + (leaves**2).sum() / 2)
        for leaves in (own, neighbour)
    )  # type: ignore[return-value]


@pytest.mark.parametrize("virtual_nodes", [True, False], ids=["trees", "stars"])
@pytest.mark.parametrize(
    ("layers", "pieces"), [*((layers, 8192) for layers in (1, 2, 3, 4, 5)), (2, 1), (2, 5)]
)
@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_equal_to_pyg_forward_and_backward(
    backbone: str,
    layers: int,
    virtual_nodes: bool,
    pieces: int,
    random_forest: Callable[..., Forest],
    network_of: Callable[..., TreeNetwork],
    oracle: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lumos.model.tree_tensors._BRANCHES_AT_ONCE", pieces)
    for seed in range(3):
        forest = random_forest(seed, virtual_nodes=virtual_nodes)
        network = network_of(6, seed, backbone=backbone, layers=layers, hidden=3, output=4)
        generator = torch.Generator().manual_seed(seed)
        inputs = [
            torch.randn(rows, 6, generator=generator, requires_grad=True)
            for rows in (len(forest.devices), forest.branches)
        ]
        expected_own, expected_neighbour, pyg_layers = oracle(network, forest, *inputs)
        loss(expected_own, expected_neighbour).backward()
        expected = [one.grad for one in inputs]
        for one in inputs:
            one.grad = None
        leaves = network(Trees.of(forest), *inputs)
        assert_close(leaves.own, expected_own, **CLOSE)
        assert_close(leaves.neighbour, expected_neighbour, **CLOSE)
        loss(*leaves).backward()
        for one, gradient in zip(inputs, expected, strict=True):
            assert_close(one.grad, gradient, **CLOSE)
        for layer, conv in zip(network.layers, pyg_layers, strict=True):
            steepest = float(conv.lin.weight.grad.abs().max())
            close: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5 * (steepest + 1)}
            assert_close(layer.weight.grad, conv.lin.weight.grad.T, **close)
            assert_close(layer.bias.grad, conv.bias.grad, **close)
            if backbone == "gat":
                assert_close(layer.source.grad, conv.att_src.grad[0], **close)
                assert_close(layer.target.grad, conv.att_dst.grad[0], **close)


@pytest.mark.parametrize("virtual_nodes", [True, False])
@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_only_lone_devices(
    backbone: str, virtual_nodes: bool, network_of: Callable[..., TreeNetwork], oracle: Any
) -> None:
    none = np.empty(0, np.int64)
    forest = Forest(devices=np.arange(3), owner=none, neighbour=none, virtual_nodes=virtual_nodes)
    network = network_of(5, backbone=backbone)
    own, neighbour = torch.randn(3, 5), torch.empty(0, 5)
    leaves = network(Trees.of(forest), own, neighbour)
    assert_close(leaves.own, oracle(network, forest, own, neighbour)[0], **CLOSE)
    assert leaves.neighbour.shape == (0, 16)
    leaves.own.sum().backward()


def test_at_two_layers_a_leaf_sees_only_its_own_branch(
    random_forest: Callable[..., Forest], network_of: Callable[..., TreeNetwork]
) -> None:
    forest = random_forest(3)
    network, trees = network_of(4, backbone="gat"), Trees.of(forest)
    own, neighbour = torch.randn(len(forest.devices), 4), torch.randn(forest.branches, 4)
    before = network(trees, own, neighbour)
    neighbour[0] += 1
    after = network(trees, own, neighbour)
    assert not torch.equal(before.own[0], after.own[0])
    assert torch.equal(before.own[1:], after.own[1:])
    assert torch.equal(before.neighbour[1:], after.neighbour[1:])


def test_large_scores_do_not_overflow(
    random_forest: Callable[..., Forest], network_of: Callable[..., TreeNetwork]
) -> None:
    for virtual_nodes in (True, False):
        forest = random_forest(0, virtual_nodes=virtual_nodes)
        network = network_of(4, backbone="gat", layers=4)
        own = torch.full((len(forest.devices), 4), 1e4)
        leaves = network(Trees.of(forest), own, torch.full((forest.branches, 4), -1e4))
        (leaves.own.sum() + leaves.neighbour.sum()).backward()
        assert all(torch.isfinite(present(one.grad)).all() for one in network.parameters())


def test_branches_must_be_in_the_order_of_their_devices() -> None:
    forest = Forest(devices=np.arange(2), owner=np.array([1, 0]), neighbour=np.array([0, 1]))
    with pytest.raises(UsageError, match="in the order of their devices"):
        Trees.of(forest)
    none = np.empty(0, np.int64)
    with pytest.raises(UsageError, match="no device"):
        Trees.of(Forest(devices=none, owner=none, neighbour=none))


def test_features_must_fit_the_model(network_of: Callable[..., TreeNetwork]) -> None:
    trees = Trees.of(Forest(devices=np.arange(2), owner=np.array([0]), neighbour=np.array([1])))
    with pytest.raises(UsageError, match="features: 3 columns, the model has 4"):
        network_of(4)(trees, torch.ones(2, 3), torch.ones(1, 3))
