"""Gradients of single devices add up to that of all trees at once."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from tests.narrow import present
from torch.testing import assert_close

from lumos import Forest
from lumos.device.randomness import PrivateRandomness, simulated_secrets
from lumos.ldp import EncoderSettings, recover, release
from lumos.model.network import Leaves, TreeNetwork, device_gradients
from lumos.model.tree_tensors import Trees


@pytest.mark.parametrize("virtual_nodes", [True, False])
@pytest.mark.parametrize("encoded", [True, False])
@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage"])
def test_they_add_up_and_are_those_of_the_device_alone(
    backbone: str,
    encoded: bool,
    virtual_nodes: bool,
    random_forest: Callable[..., Forest],
    network_of: Callable[..., TreeNetwork],
) -> None:
    forest = random_forest(6, 12, virtual_nodes=virtual_nodes)
    trees, network = Trees.of(forest), network_of(9, backbone=backbone, layers=3, dropout=0.2)
    randomness = PrivateRandomness(simulated_secrets(0, forest.devices))
    dense = np.random.default_rng(0).random((12, 9), np.float32)
    settings = EncoderSettings(epsilon=20.0)
    one_each = np.ones(12, np.int64)
    sent = release(dense, one_each, settings, randomness).take(forest.neighbour)
    own = csr_array(dense) if encoded else torch.from_numpy(dense)
    neighbour = recover(sent, settings) if encoded else torch.from_numpy(dense[forest.neighbour])
    drops = network.drops(trees, randomness, 0)
    leaves = network(trees, own, neighbour, drops)
    back = Leaves(*(torch.randn(rows.shape) for rows in leaves))
    torch.autograd.backward([*leaves], [*back])
    fused = torch.cat([present(one.grad).reshape(-1) for one in network.parameters()])
    alone = torch.stack(list(device_gradients(network, trees, own, neighbour, drops, back)))
    assert alone.shape == (12, len(fused))
    scale = float(fused.abs().max())
    assert_close(alone.sum(dim=0) / scale, fused / scale, rtol=1e-5, atol=1e-5)

    own_back = torch.where((trees.own_device == 3)[:, None], back.own, 0)
    neighbour_back = torch.where((trees.owner == 3)[:, None], back.neighbour, 0)
    network.zero_grad()
    torch.autograd.backward([*network(trees, own, neighbour, drops)], [own_back, neighbour_back])
    third = torch.cat([present(one.grad).reshape(-1) for one in network.parameters()])
    assert_close(alone[3] / scale, third / scale, rtol=1e-5, atol=1e-5)
