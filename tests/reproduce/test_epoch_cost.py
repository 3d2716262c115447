"""A whole simulated epoch against loops over devices."""

import numpy as np
import pytest
from reproduce.device_model import DeviceModel, elements_of, forward_flops
from reproduce.epoch_cost import measure_epoch

import lumos
from lumos.model import ModelSettings
from lumos.trees.balance import Balanced, balance
from lumos.trees.balancers import TreeSettings

ROUND = DeviceModel(latency=1.0, upload=100.0, download=1000.0, header=10, flops=50.0)


def trees_of(balancer: str, graph: lumos.Graph) -> Balanced:
    return balance(graph, TreeSettings(balancer=balancer, compare="ideal"))


@pytest.mark.parametrize("balancer", ["none", "greedy", "optimal"])
def test_a_whole_epoch_device_by_device(balancer: str) -> None:
    """classify: leaves go out, gradients come back, the sum is the same for everybody."""
    graph = lumos.load("demo:60")
    measured = measure_epoch(
        graph, task="classify", balancers=(balancer,), iterations=10, epochs=2, seed=0, device=ROUND
    )["by"][balancer]
    trees = trees_of(balancer, graph)
    received = np.bincount(graph.neighbours[trees.keep], minlength=graph.devices)
    work = forward_flops(trees.workload, elements_of(trees, graph.feature_count), ModelSettings())
    leaf, gradient = [], []
    for device in range(graph.devices):
        carried, stands = int(trees.workload[device]), int(received[device])
        size = 16 * 4 + 10  # sixteen floats and a header
        leaf.append(work[device] / 50 + carried * size / 100 + stands * size / 1000)
        gradient.append(stands * size / 100 + carried * size / 1000)
    assert measured["seconds_without_sum"] == pytest.approx(2 * 1.0 + max(leaf) + max(gradient))
    assert measured["tree_messages"] == pytest.approx(2 * trees.workload.sum() / graph.devices)
    assert measured["rounds"] == 10
    assert measured["seconds"] > measured["seconds_without_sum"]
    assert measured["max_workload"] == trees.max_workload


def test_trimming_saves_half_where_every_edge_is_carried_once() -> None:
    graph = lumos.load("demo:60")
    by = measure_epoch(
        graph, task="classify", balancers=("none", "optimal"), iterations=1, epochs=1, seed=0
    )["by"]
    assert by["none"]["tree_messages"] == pytest.approx(4 * graph.edges / graph.devices)
    assert by["optimal"]["tree_messages"] == pytest.approx(2 * graph.edges / graph.devices)


def test_links_and_a_graph_without_features() -> None:
    whole = lumos.load("demo:60")
    bare = lumos.load("demo:60", features=False)
    wanted = {"balancers": ("none",), "iterations": 1, "epochs": 1, "seed": 0}
    one = measure_epoch(whole, task="link", **wanted)  # type: ignore[arg-type]
    other = measure_epoch(bare, task="link", **wanted)  # type: ignore[arg-type]
    assert not one["stand_in_features"]
    assert other["stand_in_features"]
    # Messages do not depend on features; bytes of the sum do, with their number.
    assert one["by"]["none"]["tree_messages"] == other["by"]["none"]["tree_messages"]
    assert one["by"]["none"]["seconds"] != other["by"]["none"]["seconds"]
