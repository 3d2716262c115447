"""The model of devices against hand computation, and against loops over devices."""

from itertools import pairwise

import numpy as np
import pytest
from reproduce.device_model import (
    DeviceModel,
    EpochCost,
    Traffic,
    elements_of,
    epoch_seconds,
    forward_flops,
)

import lumos
from lumos.model import ModelSettings
from lumos.trees.balance import balance
from lumos.trees.balancers import TreeSettings

ROUND = DeviceModel(latency=1.0, upload=100.0, download=1000.0, header=10, flops=50.0)


def flow(sent: list[int], received: list[int], size: int) -> Traffic:
    one, other = np.array(sent, float), np.array(received, float)
    return Traffic(one, other, size * one, size * other)


def test_three_devices_by_hand() -> None:
    # Device 0 sends two messages of 40 bytes, device 1 receives both.
    first = flow([2, 0, 0], [0, 2, 0], 40)
    # In the second topic, device 2 sends one of 90 bytes to device 0.
    second = flow([0, 0, 1], [1, 0, 0], 90)
    work = {"first": np.array([5.0, 10.0, 100.0])}
    computed = epoch_seconds(EpochCost({"first": first, "second": second}, 3.0), work, ROUND)
    # first: device 0: 0.1 + 2·50/100 = 1.1; device 1: 0.2 + 2·50/1000 = 0.3; device 2: 2.0
    # second: device 2: 100/100 = 1.0; device 0: 100/1000 = 0.1
    assert computed == pytest.approx({"": 3.0, "first": 2.0, "second": 1.0})


@pytest.mark.parametrize("workload", range(5))
def test_flops_of_a_tree_node_by_node(workload: int) -> None:
    """Build the tree, and count every product and every message on it."""
    model = ModelSettings(hidden=3, output=5)
    nodes, edges = ["root"], []
    for branch in range(workload):
        nodes += [f"parent {branch}", f"own {branch}", f"neighbour {branch}"]
        edges += [
            ("root", f"parent {branch}"),
            (f"parent {branch}", f"own {branch}"),
            (f"parent {branch}", f"neighbour {branch}"),
        ]
    operations, elements = 0, 7 * (1 + workload)
    operations += 2 * elements * 3  # features that are not zero, times W
    for _ in nodes:
        operations += 2 * 3 * 5  # the second product
    for width in (3, 5):
        for _ in [*edges, *(edge[::-1] for edge in edges), *nodes]:
            operations += 2 * width  # scale and add
    computed = forward_flops(np.array([workload]), np.array([float(elements)]), model)
    assert computed.tolist() == [operations]


@pytest.mark.parametrize("balancer", ["none", "greedy", "optimal"])
def test_elements_device_by_device(balancer: str) -> None:
    graph = lumos.load("demo:60")
    trees = balance(graph, TreeSettings(balancer=balancer, compare="ideal"))
    width = graph.feature_count
    dense = graph.features.toarray()  # type: ignore[union-attr]
    kept = [
        set(graph.neighbours[a:b][trees.keep[a:b]].tolist()) for a, b in pairwise(graph.offsets)
    ]
    expected = []
    for device in range(graph.devices):
        count = np.count_nonzero(dense[device])
        for neighbour in kept[device]:
            receivers = sum(neighbour in others for others in kept)
            count += -(-width // receivers)
        expected.append(count)
    assert elements_of(trees, width).tolist() == expected
