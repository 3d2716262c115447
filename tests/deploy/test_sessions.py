"""Phases with sessions of two devices: with a device that comes back in time, and without one."""

from typing import Any

import numpy as np
import pytest
from tests.deploy.conftest import few_words
from tests.deploy.test_absence import IN_A_SUM, LOST, Killer, back_in_time, same, weights

import lumos
from lumos.deploy.protocol.frames import Alive
from lumos.deploy.virtual import Federation
from lumos.device.shard import COORDINATOR
from lumos.graph import load
from lumos.graph.parts import PartsFolder
from lumos.training.config import Config
from lumos.trees.balancers import TreeSettings
from lumos.typing import Arrays


def trees(federation: Federation, *without: int) -> np.ndarray:
    """[slots of all devices] who carries which edge."""
    return np.concatenate(
        [
            federation.device(device).job.assigned
            for device in range(federation.total)
            if device not in without
        ]
    )


STEPS = 10
"""Of the balancer `mcmc`."""


@pytest.fixture(scope="module", params=["greedy", "optimal", "mcmc"])
def building(request: pytest.FixtureRequest) -> Config:
    """The trees of the paper's profile, with secret comparisons."""
    steps = {"iterations": STEPS} if request.param == "mcmc" else {}
    steps["epochs"] = 1
    return Config.asked(
        profile="paper", balancer=request.param, compare="secure", aggregate="secure", **steps
    )


def simulated(config: Config, graph: lumos.Graph) -> np.ndarray:
    settings = TreeSettings(balancer=config.trees.balancer, iterations=STEPS, compare="ideal")
    return lumos.balance(graph, settings).keep


def test_trees_are_those_of_the_simulation(twelve: PartsFolder, building: Config) -> None:
    federation = Federation(twelve, building)
    federation.run()
    assert np.array_equal(trees(federation), simulated(building, load("demo:12")))
    assert federation.coordinator.ended == ""


TREE_TOPIC = {"greedy": "compare", "optimal": "optimal/ask", "mcmc": "mcmc/transfer"}


@pytest.mark.parametrize("after", [False, True])
def test_trees_with_a_device_that_is_back(
    twelve: PartsFolder, building: Config, after: bool
) -> None:
    federation = Federation(twelve, building)
    topic = TREE_TOPIC[building.trees.balancer]
    back_in_time(federation, Killer(federation, LOST, topic, after=after))
    assert np.array_equal(trees(federation), simulated(building, load("demo:12")))
    assert federation.coordinator.left_out == {}
    assert not [line for line in federation.lines if "begins again" in line]


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
    for device in set(range(12)) - {LOST}:
        carried = whole.neighbours[expected & (owner == device)].tolist()
        assert federation.device(device).job.carried == carried


@pytest.fixture(scope="module")
def linking() -> Config:
    """With few words and marks: sums are as wide as both."""
    return Config.asked(task="link", aggregate="secure", random_marks=4)


def link_state(federation: Federation, device: int) -> dict[str, np.ndarray]:
    """Everything that a device scores pairs with."""
    return federation.device(device).job.result.arrays()


@pytest.fixture(scope="module")
def undisturbed(linking: Config) -> Arrays:
    """The weights of the simulation."""
    return lumos.train(few_words(), linking).model.weights


ASSOCIATIONS, LEVELS = 7, 9
"""Phases: that of the sum of associations, and the last one."""
QUICK = [("reveal", ASSOCIATIONS, LOST), ("score", LEVELS, LOST)]
KILLS = [
    *((topic, ASSOCIATIONS, LOST) for topic in IN_A_SUM),
    *((topic, LEVELS, LOST) for topic in ("score", "proposal", "reply", *IN_A_SUM)),
    *((topic, None, LOST) for topic in ("keys", "colour", "opinion")),
    *((topic, ASSOCIATIONS, COORDINATOR) for topic in ("left-out", "lost", "sum")),
    *((topic, LEVELS, COORDINATOR) for topic in ("left-out", "sum")),
]
"""(topic, phase, who is killed)."""


@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize(
    ("topic", "phase", "participant"),
    [pytest.param(*kill, marks=() if kill in QUICK else pytest.mark.long) for kill in KILLS],
)
def test_links_with_a_participant_that_is_back(
    few_words_parts: PartsFolder,
    linking: Config,
    undisturbed: Arrays,
    topic: str,
    phase: int | None,
    participant: int,
    after: bool,
) -> None:
    """It sends the same messages again, byte by byte: of its sessions, too."""
    federation = Federation(few_words_parts, linking)
    back_in_time(federation, Killer(federation, participant, topic, phase, after=after))
    assert federation.coordinator.left_out == {}
    assert federation.coordinator.ended == ""
    assert all(same(weights(federation, one), undisturbed) for one in (COORDINATOR, *range(12)))
    assert not federation.lines


@pytest.mark.parametrize(
    ("topic", "phase"), [("strict/colour", None), ("masked", ASSOCIATIONS), ("score", None)]
)
def test_links_without_a_device_that_is_lost(
    few_words_parts: PartsFolder, linking: Config, topic: str, phase: int | None
) -> None:
    federation = Federation(few_words_parts, linking)
    killer = Killer(federation, LOST, topic, phase)
    federation.run(until=lambda: killer.killed)
    federation.run()
    assert federation.coordinator.ended == ""
    assert set(federation.coordinator.left_out) == {LOST}
    first = weights(federation)
    assert all(same(weights(federation, device), first) for device in range(12) if device != LOST)


@pytest.mark.parametrize("left", [False, True])
def test_a_budget_of_comparisons_is_one_for_all_attempts(twelve: PartsFolder, left: bool) -> None:
    """One comparison of three outcomes an edge; the phase begins again when all have compared."""
    one = float(np.log2(3))
    config = Config.asked(
        profile="paper",
        balancer="greedy",
        compare="secure",
        aggregate="secure",
        epochs=1,
        comparison_budget=(1 + left) * one + 0.001,
    )
    federation = Federation(twelve, config)

    def watch(_now: float, sender: int, _receiver: int, frames: list[Any]) -> None:
        if sender == LOST and any(isinstance(frame, Alive) and frame.ready for frame in frames):
            federation.kill(LOST)

    federation.watch = watch
    federation.run()
    assert federation.coordinator.left_out[LOST] == "trees"
    assert (federation.coordinator.ended == "") == left
    stopped = [
        str(participant.ended)
        for participant in federation.participants.values()
        if participant.ended
    ]
    assert any("the budget is 0" in line for line in stopped) != left
