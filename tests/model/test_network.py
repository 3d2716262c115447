"""Settings, generic layers, initial weights and dropout."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lumos import Forest
from lumos.device.randomness import PrivateRandomness, PublicRandomness, simulated_secrets
from lumos.errors import UsageError
from lumos.model import ModelSettings
from lumos.model.custom import LAYERS
from lumos.model.dropout import Drops, Site
from lumos.model.network import TreeNetwork
from lumos.model.tree_tensors import Trees


def randomness(devices: int | np.ndarray) -> PrivateRandomness:
    ids = np.arange(devices) if isinstance(devices, int) else devices
    return PrivateRandomness(simulated_secrets(0, ids))


@pytest.mark.parametrize("name", ["layers", "hidden", "output", "heads"])
def test_sizes_must_be_positive(name: str) -> None:
    settings: dict[str, Any] = {name: 0}
    with pytest.raises(UsageError, match=f"{name} must be 1 or more, got 0"):
        ModelSettings(**settings)


def test_settings_are_the_papers() -> None:
    settings = ModelSettings()
    assert (settings.layers, settings.hidden, settings.output) == (2, 16, 16)
    assert (settings.heads, settings.dropout, settings.pool) == (4, 0.01, "average")
    gat = TreeNetwork(ModelSettings(backbone="gat"), 5)
    assert [tuple(one.shape) for one in gat.parameters()] == [
        (5, 64), (4, 16), (4, 16), (64,), (64, 16), (1, 16), (1, 16), (16,)
    ]  # fmt: skip
    with pytest.raises(UsageError, match="dropout must be"):
        ModelSettings(dropout=1.0)
    with pytest.raises(UsageError, match="pool must be one of average, sum, max, attention"):
        ModelSettings(pool="median")  # type: ignore[arg-type]


def test_a_wrong_name_lists_the_right_ones() -> None:
    with pytest.raises(UsageError, match=r"'gnc' does not exist; use one of gcn, gat, .*sage"):
        TreeNetwork(ModelSettings(backbone="gnc"), 4)


@pytest.mark.parametrize("virtual_nodes", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_any_pyg_layer_learns_on_trees(
    name: str, virtual_nodes: bool, random_forest: Callable[..., Forest]
) -> None:
    forest = random_forest(2, virtual_nodes=virtual_nodes)
    trees = Trees.of(forest)
    network = TreeNetwork(ModelSettings(backbone=name), 6)
    network.initialise(PublicRandomness(0).generator("weights"))
    drops = network.drops(trees, randomness(trees.devices), 0)
    leaves = network(trees, torch.rand(trees.devices, 6), torch.rand(trees.branches, 6), drops)
    assert leaves.own.shape == (len(trees.own_device), 16)
    assert leaves.neighbour.shape == (trees.branches, 16)
    (leaves.own.sum() + leaves.neighbour.sum()).backward()
    assert any(one.grad is not None and one.grad.any() for one in network.parameters())


@pytest.mark.parametrize("virtual_nodes", [True, False])
def test_the_graph_of_all_trees_is_the_forest_tree_by_tree(
    virtual_nodes: bool, random_forest: Callable[..., Forest]
) -> None:
    forest = random_forest(2, virtual_nodes=virtual_nodes)
    graph = Trees.of(forest).graph
    number = torch.cat(list(graph.kinds.values())).numpy()  # of each node of the forest
    assert sorted(number) == list(range(forest.nodes))
    np.testing.assert_array_equal(graph.batch.numpy()[number], forest.tree())
    assert (graph.batch[1:] >= graph.batch[:-1]).all()
    edges = {(int(a), int(b)) for a, b in number[forest.edge_index()].T}
    assert {(int(a), int(b)) for a, b in graph.edge_index.T} == edges
    assert graph.edge_index.shape == forest.edge_index().shape
    assert (graph.edge_index[1, 1:] >= graph.edge_index[1, :-1]).all()
    rows = {kind: torch.rand(len(nodes), 3) for kind, nodes in graph.kinds.items()}
    assert_close(graph.nodes(rows)[number], torch.cat(list(rows.values())))


def test_initial_weights_come_from_public_randomness() -> None:
    one, other = (TreeNetwork(ModelSettings(backbone="gat"), 20) for _ in range(2))
    for network in (one, other):
        network.initialise(PublicRandomness(7).generator("weights"))
    assert all(map(torch.equal, one.parameters(), other.parameters()))
    first: Any = one.layers[0]
    assert float(first.weight.detach().abs().max()) <= (6 / 84) ** 0.5
    assert not first.bias.any()


def line(devices: int, rows: int, width: int) -> list[Site]:
    return [Site(0, "leaf", width, np.full(devices, rows))]


def test_elements_fall_at_the_given_rate_and_independently() -> None:
    devices, rows, width, chance = 4000, 10, 8, 0.05
    drops = Drops.draw(line(devices, rows, width), chance, randomness(devices), 0)
    fallen = np.zeros(devices * rows * width, bool)
    fallen[drops.of(0, "leaf").numpy()] = True
    grid = fallen.reshape(devices, rows * width)
    error = np.sqrt(chance * (1 - chance) / devices)
    assert (np.abs(grid.mean(axis=0) - chance) < 4.8 * error).all()
    both = (grid[:, :-1] & grid[:, 1:]).mean()
    assert abs(both - chance**2) < 4.8 * chance / np.sqrt(grid[:, 1:].size)


def test_each_epoch_drops_other_elements() -> None:
    first, second = (
        set(Drops.draw(line(50, 4, 8), 0.5, randomness(50), step).of(0, "leaf").tolist())
        for step in (0, 1)
    )
    assert first != second
    assert len(first & second) < 0.7 * len(first)


@pytest.mark.parametrize("virtual_nodes", [True, False])
@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage"])
@pytest.mark.parametrize("shards", [2, 7])
def test_dropout_does_not_depend_on_shards(
    backbone: str,
    virtual_nodes: bool,
    shards: int,
    random_forest: Callable[..., Forest],
    network_of: Callable[..., TreeNetwork],
) -> None:
    forest = random_forest(4, 20, virtual_nodes=virtual_nodes)
    network = network_of(5, backbone=backbone, layers=3, dropout=0.3)
    inputs = torch.Generator().manual_seed(2)  # others may differ in the last digit of a float32
    own, neighbour = (torch.rand(rows, 5, generator=inputs) for rows in (20, forest.branches))
    trees = Trees.of(forest)
    whole = network(trees, own, neighbour, network.drops(trees, randomness(20), 1))
    for shard in range(shards):
        devices = np.arange(shard, 20, shards)
        mine = np.flatnonzero(np.isin(forest.owner, devices))
        part = Forest(
            devices=devices,
            owner=np.searchsorted(devices, forest.owner[mine]),
            neighbour=forest.neighbour[mine],
            virtual_nodes=virtual_nodes,
        )
        some = Trees.of(part)
        leaves = network(
            some, own[devices], neighbour[mine], network.drops(some, randomness(devices), 1)
        )
        assert_close(leaves.neighbour, whole.neighbour[mine])
        for position, device in enumerate(devices.tolist()):
            assert_close(
                leaves.own[some.own_device == position], whole.own[trees.own_device == device]
            )


def test_dropped_elements_are_zero_and_have_no_gradient(
    random_forest: Callable[..., Forest], network_of: Callable[..., TreeNetwork]
) -> None:
    forest = random_forest(1)
    trees, network = Trees.of(forest), network_of(5, layers=1, dropout=0.5)
    own = torch.rand(len(forest.devices), 5)
    neighbour = torch.rand(forest.branches, 5, requires_grad=True)
    plain = network(trees, own, neighbour).neighbour.detach()
    drops = network.drops(trees, randomness(trees.devices), 0)
    assert drops is not None
    leaves = network(trees, own, neighbour, drops)
    fallen = torch.zeros_like(plain).view(-1)
    fallen[drops.of(0, "neighbour")] = 1
    expected = plain * (1 - fallen.view_as(plain)) * 2
    assert_close(leaves.neighbour, expected)
    leaves.neighbour.sum().backward()
    layer: Any = network.layers[0]
    gradient = ((expected > 0) * 2.0) @ layer.weight.detach().T * 0.5
    assert_close(neighbour.grad, gradient)


def test_no_dropout_draws_nothing(random_forest: Callable[..., Forest]) -> None:
    trees = Trees.of(random_forest(0))
    assert TreeNetwork(ModelSettings(dropout=0.0), 3).drops(trees, randomness(9), 0) is None


def test_without_the_last_activation_embeddings_may_be_negative(
    random_forest: Callable[..., Forest], network_of: Callable[..., TreeNetwork]
) -> None:
    forest = random_forest(1)
    trees, inputs = Trees.of(forest), (torch.rand(9, 5), torch.rand(forest.branches, 5))
    bare = network_of(5, activate_last=False)(trees, *inputs)
    assert float(bare.own.detach().min()) < 0
    assert_close(network_of(5)(trees, *inputs).own, torch.relu(bare.own))
