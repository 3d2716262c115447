"""Sparse and encoded features give what their dense form gives."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from tests.narrow import present
from torch.testing import assert_close

from lumos import Forest
from lumos.device.randomness import PrivateRandomness, simulated_secrets
from lumos.ldp import EncoderSettings, RecoveredFeatures, recover, release
from lumos.model.network import TreeNetwork
from lumos.model.tree_tensors import Trees, as_dense

CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}


def received(forest: Forest, dense: np.ndarray, settings: EncoderSettings) -> RecoveredFeatures:
    """What every branch gets, straight from the senders."""
    devices = len(forest.devices)
    rho = np.bincount(forest.neighbour, minlength=devices)
    released = release(
        dense, rho, settings, PrivateRandomness(simulated_secrets(0, forest.devices))
    )
    by_sender = np.argsort(forest.neighbour, kind="stable")
    branch_of = np.empty(forest.branches, np.int64)
    branch_of[by_sender] = np.arange(forest.branches)
    return recover(released.take(branch_of), settings)


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage"])
@pytest.mark.parametrize(
    "settings",
    [
        EncoderSettings(epsilon=30.0, low=0.0, high=2.0),
        EncoderSettings(epsilon=math.inf, bins=True),
        EncoderSettings(epsilon=math.inf),
    ],
    ids=["noisy", "bins", "whole"],
)
def test_encoded_branches_equal_their_dense_form(
    backbone: str,
    settings: EncoderSettings,
    random_forest: Callable[..., Forest],
    network_of: Callable[..., TreeNetwork],
) -> None:
    forest = random_forest(5, 12)
    dense = (np.random.default_rng(0).random((12, 30)) < 0.2).astype(np.float32)
    encoded = received(forest, dense, settings)
    if math.isinf(settings.epsilon) and not settings.bins:
        np.testing.assert_array_equal(encoded.dense(), dense[forest.neighbour])
    trees, network = Trees.of(forest), network_of(30, backbone=backbone)
    found = []
    for own, neighbour in ((csr_array(dense), encoded), (torch.tensor(dense), as_dense(encoded))):
        network.zero_grad()
        leaves = network(trees, own, neighbour)
        (leaves.own**2).sum().add((leaves.neighbour**3).sum()).backward()
        found.append([*leaves, *(present(one.grad).clone() for one in network.parameters())])
    for one, other in zip(*found, strict=True):
        scale = float(other.detach().abs().max()) + 1
        assert_close(one / scale, other / scale, **CLOSE)
