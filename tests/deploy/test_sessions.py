"""Phases with sessions of two devices, which no disk holds: after a loss they begin again."""

import numpy as np
import pytest
from tests.deploy.network import Federation
from tests.deploy.test_absence import LOST, Killer, back_in_time, same, weights

import lumos
from lumos.graph import load
from lumos.graph.parts import PartsFolder
from lumos.training.config import Config
from lumos.trees.settings import TreeSettings


def trees(federation: Federation, *without: int) -> np.ndarray:
    """[slots of all devices] who carries which edge."""
    return np.concatenate(
        [
            federation.device(device).job.kept
            for device in range(federation.total)
            if device not in without
        ]
    )


@pytest.fixture(scope="module", params=["greedy", "optimal"])
def building(request: pytest.FixtureRequest) -> Config:
    """The trees of the paper's profile, with secret comparisons."""
    return Config.asked(
        profile="paper", balancer=request.param, compare="secure", aggregate="secure"
    )


def simulated(config: Config, graph: lumos.Graph) -> np.ndarray:
    settings = TreeSettings(balancer=config.trees.balancer, compare="ideal")
    return lumos.balance(graph, settings).keep


def test_trees_are_those_of_the_simulation(twelve: PartsFolder, building: Config) -> None:
    federation = Federation(twelve, building)
    federation.run()
    assert np.array_equal(trees(federation), simulated(building, load("demo:12")))
    assert federation.coordinator.ended == ""


TREE_TOPIC = {"greedy": "compare", "optimal": "optimal/ask"}


@pytest.mark.parametrize("after", [False, True])
def test_trees_begin_again_with_a_device_that_is_back(
    twelve: PartsFolder, building: Config, after: bool
) -> None:
    federation = Federation(twelve, building)
    topic = TREE_TOPIC[building.trees.balancer]
    back_in_time(federation, Killer(federation, LOST, topic, after=after))
    assert np.array_equal(trees(federation), simulated(building, load("demo:12")))
    assert f"trees begins again: device {LOST} was restarted" in federation.lines


def test_trees_begin_again_without_a_device_that_is_lost(
    twelve: PartsFolder, building: Config
) -> None:
    """They are those of a graph without its edges."""
    federation = Federation(twelve, building)
    killer = Killer(federation, LOST, TREE_TOPIC[building.trees.balancer])
    federation.run(until=lambda: killer.killed)
    federation.run()
    assert federation.coordinator.left_out == {LOST: "trees"}
    whole = load("demo:12")
    owner = np.repeat(np.arange(12), whole.degrees)
    ends = np.stack([owner, whole.neighbours], axis=1)
    inner = (ends != LOST).all(axis=1)
    one_way = inner & (ends[:, 0] < ends[:, 1])
    rest = lumos.Graph.from_indices(ends[one_way], np.arange(12))
    expected = np.zeros(2 * whole.edges, np.bool_)
    expected[inner] = simulated(building, rest)
    assert np.array_equal(trees(federation, LOST), expected[owner != LOST])


@pytest.fixture(scope="module")
def linking() -> Config:
    """With few words and numbers: their sessions are as long as both."""
    return Config.asked(task="link", aggregate="secure", embedding=4, word_buckets=32)


def link_state(federation: Federation, device: int) -> dict[str, np.ndarray]:
    """Everything that a device scores pairs with."""
    return federation.device(device).job.result.arrays()


@pytest.mark.parametrize(
    "topic",
    [
        pytest.param("products/columns", marks=pytest.mark.long),
        "products/correction",
        "score",
        pytest.param("masked", marks=pytest.mark.long),
    ],
)
def test_links_with_a_device_that_is_back(twelve: PartsFolder, linking: Config, topic: str) -> None:
    """Sums that are made again have fresh masks and shares, and the same vectors and noise."""
    undisturbed = lumos.train("demo:12", linking).model.weights
    federation = Federation(twelve, linking)
    killer = Killer(federation, LOST, topic)
    back_in_time(federation, killer)
    assert same(weights(federation), undisturbed)
    assert same(weights(federation, LOST), undisturbed)
    assert federation.coordinator.left_out == {}


@pytest.mark.parametrize("topic", ["products/columns", "score"])
def test_links_without_a_device_that_is_lost(
    twelve: PartsFolder, linking: Config, topic: str
) -> None:
    federation = Federation(twelve, linking)
    killer = Killer(federation, LOST, topic)
    federation.run(until=lambda: killer.killed)
    federation.run()
    assert federation.coordinator.ended == ""
    assert set(federation.coordinator.left_out) == {LOST}
    first = weights(federation)
    assert all(same(weights(federation, device), first) for device in range(12) if device != LOST)
