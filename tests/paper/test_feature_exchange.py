"""Features on their way: ε in the ledger, what is put on leaves, releases that say nothing."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from tests.narrow import present
from tests.runs.running import heard, receivers_of, run

from lumos import Graph
from lumos.ldp import EncoderSettings, Released, recover
from lumos.ldp.one_bit import message_epsilon
from lumos.paper.messages import on_leaves
from lumos.runs.run import Run

INF = float("inf")


def star(features: int, leaves: int = 12) -> Graph:
    """A hub, its leaves, and a device without any neighbour."""
    rng = np.random.default_rng(0)
    return Graph.from_edges(
        [[0, leaf] for leaf in range(1, leaves + 1)],
        devices=leaves + 2,
        features=rng.random((leaves + 2, features), np.float32),
        labels=np.arange(leaves + 2) % 2,
    )


def check_epsilon(result: Run, messages: Any, epsilon: float) -> np.ndarray:
    """Message by message, device by device, against the closed forms; returns ρ."""
    graph, width = present(result.trees.graph), present(result.graph).feature_count
    receivers = receivers_of(graph, result.trees.keep)
    per_receiver, together = np.zeros(graph.devices), np.zeros(graph.devices)
    elements = np.zeros(graph.devices, np.int64)
    for message in messages:
        largest = -(-width // receivers[message.sender])
        s, count = np.frombuffer(message.body, "<u4", 2).tolist()
        assert s == largest
        assert message.epsilon <= epsilon
        closed = message_epsilon(epsilon, np.array([count]), np.array([largest]))[0]
        assert message.epsilon == closed == epsilon * (count / largest)
        sender = message.sender
        per_receiver[sender] = max(per_receiver[sender], closed)
        together[sender] += closed
        elements[sender] += count
    assert np.array_equal(elements, np.where(receivers > 0, width, 0))  # each element once
    ledger = result.ledger
    assert np.array_equal(ledger.device_epsilon, per_receiver)
    assert np.array_equal(ledger.device_epsilon, np.where(receivers > 0, epsilon, 0.0))
    assert ledger.epsilon_per_receiver == epsilon
    s = np.maximum(1, -(-width // np.maximum(receivers, 1)))
    closed_together = np.where(receivers > 0, width * epsilon / s, 0)
    assert_allclose(ledger.device_epsilon_collusion, closed_together, rtol=1e-12)
    assert (ledger.device_epsilon_collusion <= receivers * epsilon * (1 + 1e-12)).all()
    assert ledger.epsilon_collusion == pytest.approx(closed_together.max())
    return receivers


@pytest.mark.parametrize("task", ["classify", "link"])
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_ledger_has_the_closed_form(epsilon: float, task: str, sixty: Graph) -> None:
    result, wire = heard(sixty, epsilon=epsilon, epochs=1, task=task)
    receivers = check_epsilon(result, wire.all_of("train/features"), epsilon)
    assert (receivers == 0).any()  # they send nothing, and spend nothing


@pytest.mark.parametrize("features", [1, 2, 5])
def test_more_receivers_than_features(features: int) -> None:
    result, wire = heard(star(features), epochs=2, balancer="none")
    receivers = check_epsilon(result, wire.all_of("train/features"), 2.0)
    assert receivers[0] == 12 > features
    assert receivers[13] == 0
    empty = [one for one in wire.all_of("train/features") if one.epsilon == 0]
    assert len(empty) == 12 - features  # their messages hold nothing, and cost nothing


def test_features_are_released_once_per_run_not_per_epoch(sixty: Graph) -> None:
    short, long = (run(sixty, epochs=epochs).ledger for epochs in (1, 4))
    assert short.topics["train/features"].messages == long.topics["train/features"].messages
    assert short.epsilon_collusion == long.epsilon_collusion


@pytest.mark.parametrize("bins", [False, True])
def test_without_noise_features_leave_by_the_door_open(bins: bool, sixty: Graph) -> None:
    result, wire = heard(sixty, epsilon=INF, bins=bins, epochs=1)
    assert not any(line.door == "release" for line in result.ledger.topics.values())
    assert result.ledger.topics["train/features-in-the-clear"].door == "open"
    assert result.ledger.epsilon_per_receiver == 0
    assert "as they are (ε = inf)" in result.model.exposed
    assert len(wire.all_of("train/features-in-the-clear")) == result.trees.workload.sum()
    assert all(one.epsilon is None for one in wire.all_of("train/features-in-the-clear"))


def released(settings: EncoderSettings, values: bool = False) -> Released:
    """Three messages on four elements: s = 3 with bits 1 and 0, s = 1 with a 1, and nothing."""
    return Released(
        width=4,
        offsets=np.array([0, 2, 3, 3]),
        codes=np.array([0, 2, 3] if values else [0, 4 + 2, 3], np.int32),
        largest=np.array([3, 1, 2]),
        values=np.array([0.5, 0.25, 0.75], np.float32) if values else None,
    )


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 3.0)])
def test_leaves_by_the_letter_and_shrunk(low: float, high: float) -> None:
    settings = EncoderSettings(epsilon=1.2, low=low, high=high)
    recovered = recover(released(settings), settings)
    middle, half = (low + high) / 2, (high - low) / 2
    three, one = 0.4, 1.2  # ε' = ε/s

    def far(each: float) -> float:
        return half * (np.exp(each) + 1) / (np.exp(each) - 1)

    literal = on_leaves(recovered, settings, "literal")
    expected = np.full((3, 4), middle)
    expected[0, [0, 2]] += [far(three), -far(three)]
    expected[1, 3] += far(one)
    assert_allclose(literal.dense(), expected, rtol=1e-6)

    shrunk = on_leaves(recovered, settings, "shrunk")
    reliability = np.tanh(np.array([three, one, 0.6]) / 2) ** 2
    assert_allclose(shrunk.dense(), (expected - middle) * reliability[:, None], rtol=1e-5)
    assert_allclose(shrunk.dense()[0, 0], half * np.tanh(three / 2), rtol=1e-6)


def test_leaves_without_noise() -> None:
    bins = EncoderSettings(epsilon=INF, bins=True)
    recovered = recover(released(bins, values=True), bins)
    literal, shrunk = (on_leaves(recovered, bins, kind).dense() for kind in ("literal", "shrunk"))
    assert literal.tolist() == [[0.5, 0.5, 0.25, 0.5], [0.5, 0.5, 0.5, 0.75], [0.5] * 4]
    assert shrunk.tolist() == [[0.5, 0, 0.25, 0], [0, 0, 0, 0.75], [0] * 4]
    clear = EncoderSettings(epsilon=INF)
    recovered = recover(released(clear, values=True), clear)
    for kind in ("literal", "shrunk"):
        assert np.array_equal(on_leaves(recovered, clear, kind).dense(), recovered.dense())


def test_recovery_is_post_processing_and_changes_no_message(sixty: Graph) -> None:
    (one, left), (two, right) = (
        heard(sixty, recovery=kind, epochs=2) for kind in ("literal", "shrunk")
    )
    assert left.of("train/features") == right.of("train/features")
    assert one.history != two.history
    assert not any("shrunk" in sentence for sentence in one.config.improvements())
    assert any("shrunk" in sentence for sentence in two.config.improvements())


def other_features(graph: Graph, dense: bool) -> tuple[Graph, Graph]:
    """Two graphs of the same edges and labels, with other features in each."""
    rng = np.random.default_rng(0)
    graphs = []
    for _ in range(2):
        some = (rng.random((graph.devices, 50)) < 0.3).astype(np.float32)
        features = some if dense else csr_array(some)
        graphs.append(Graph.from_edges(graph.edge_list(), features=features, labels=graph.labels))
    return graphs[0], graphs[1]


@pytest.mark.parametrize("dense", [True, False])
def test_the_control_releases_bits_that_do_not_depend_on_features(
    dense: bool, sixty: Graph
) -> None:
    one, other = other_features(sixty, dense)
    wires = [heard(graph, control=True, epochs=2)[1] for graph in (one, other)]
    controls, mains = zip(*(wire.of("train/features") for wire in wires), strict=True)
    assert controls[0] == controls[1]
    assert mains[0] != mains[1]
    # Only the bits differ: the bins come from randomness and ρ alone.
    assert [one[:2] + one[3:] for one in mains[0]] == [one[:2] + one[3:] for one in mains[1]]
    assert [len(one.body) for one in mains[0]] == [len(one.body) for one in mains[1]]


def test_the_control_still_uses_own_features(sixty: Graph) -> None:
    one, other = (run(graph, control=True) for graph in other_features(sixty, True))
    assert one.control is not None
    assert other.control is not None
    assert {"test_accuracy", "val_accuracy"} <= set(one.control)


def test_the_control_of_a_noiseless_run_says_nothing_either(sixty: Graph) -> None:
    one, other = other_features(sixty, dense=True)
    wires = [heard(graph, control=True, epsilon=INF, epochs=1)[1] for graph in (one, other)]
    controls, mains = zip(*(wire.of("train/features-in-the-clear") for wire in wires), strict=True)
    assert controls[0] == controls[1]
    assert mains[0] != mains[1]
