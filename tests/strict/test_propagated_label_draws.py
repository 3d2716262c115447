"""How one propagated label is drawn: the best class, ties at random; who received nothing sends
too."""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lumos.device import Shard, cut
from lumos.graph import Graph, demo_graph
from lumos.ldp.mechanisms import COIN, make_mechanism
from lumos.strict.messages import PURPOSE, most_likely, propagated_labels

CLASSES = 4


def shard_of(devices: int = 4000, seed: int = 0) -> Shard:
    """One shard of devices without edges: a propagated label needs randomness only."""
    return cut(Graph.from_edges(np.empty((0, 2), np.int64), devices=devices), 1, seed=seed)[0]


def frequencies(values: np.ndarray, classes: int = CLASSES) -> np.ndarray:
    return np.bincount(values, minlength=classes) / len(values)


def error(share: float, many: int) -> float:
    """Five standard errors."""
    return 5 * math.sqrt(share * (1 - share) / many)


def test_the_best_class_is_chosen_and_ties_are_drawn_uniformly() -> None:
    chance = (np.arange(1200) + 0.5) / 1200  # evenly spaced: shares come out exactly
    for tied in ([2], [0, 3], [1, 2, 3], [0, 1, 2, 3]):
        evidence = np.full((1200, CLASSES), -1.0)
        evidence[:, tied] = 2.5
        chosen = most_likely(evidence, chance)
        expected = np.zeros(CLASSES)
        expected[tied] = 1 / len(tied)
        assert_array_equal(frequencies(chosen), expected)


def test_chances_near_the_ends_stay_within_the_classes() -> None:
    evidence = np.zeros((2, CLASSES))
    assert most_likely(evidence, np.array([2.0**-53, 1 - 2.0**-53])).tolist() == [0, 3]


@pytest.mark.parametrize("name", ["krr", "digits"])
def test_an_propagated_label_is_a_release_of_the_best_class(name: str) -> None:
    shard, classes = shard_of(500), 20
    mechanism = make_mechanism(classes, 2.0, name)
    evidence = np.random.default_rng(1).normal(size=(500, classes))
    sent = propagated_labels(shard, evidence, mechanism, 2)
    randomness = shard.randomness.words(np.arange(500), PURPOSE, 2, mechanism.randomness)
    assert_array_equal(sent, mechanism.release(evidence.argmax(axis=1), randomness))
    assert sent.shape == (500, mechanism.width)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_a_device_without_evidence_sends_that_it_has_no_class(epsilon: float) -> None:
    """Randomized like a class; ties between some classes are drawn as ever."""
    shard, mechanism = shard_of(), make_mechanism(CLASSES + 1, epsilon, "krr")
    evidence = np.zeros((len(shard), CLASSES))
    evidence[1::2, :2] = 1.0
    sent = propagated_labels(shard, evidence, mechanism, 1)[:, 0].astype(np.int64)
    truth, other = mechanism.truth / COIN, mechanism.other / COIN
    tied = (truth + other) / 2
    for start, expected in ((0, [other] * 4 + [truth]), (1, [tied] * 2 + [other] * 3)):
        shares = frequencies(sent[start::2], CLASSES + 1)
        for share, wanted in zip(shares, expected, strict=True):
            assert abs(share - wanted) < error(wanted, len(shard) // 2)


def test_without_such_a_value_a_device_without_evidence_sends_any_class() -> None:
    shard, mechanism = shard_of(), make_mechanism(CLASSES, 4.0, "krr")
    sent = propagated_labels(shard, np.zeros((len(shard), CLASSES)), mechanism, 1)
    assert len(sent) == len(shard)
    shares = frequencies(sent[:, 0].astype(np.int64))
    assert np.abs(shares - 1 / CLASSES).max() < error(1 / CLASSES, len(shard))


def test_the_truth_is_told_as_often_as_the_mechanism_says() -> None:
    shard, mechanism = shard_of(), make_mechanism(CLASSES, 2.0, "krr")
    evidence = np.tile([0.0, 1.0, 0.5, 0.0], (len(shard), 1))
    shares = frequencies(propagated_labels(shard, evidence, mechanism, 1)[:, 0].astype(np.int64))
    expected = np.full(CLASSES, mechanism.other / COIN)
    expected[1] = mechanism.truth / COIN
    for share, wanted in zip(shares, expected, strict=True):
        assert abs(share - wanted) < error(wanted, len(shard))


def test_each_propagated_label_and_its_ties_have_randomness_of_their_own() -> None:
    shard, mechanism = shard_of(), make_mechanism(CLASSES, 1e-3, "krr")
    nothing = np.zeros((len(shard), CLASSES))
    drawn = [propagated_labels(shard, nothing, mechanism, number)[:, 0] for number in (1, 2, 3)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        same = float((drawn[one] == drawn[other]).mean())
        assert abs(same - 1 / CLASSES) < error(1 / CLASSES, len(shard))
    again = propagated_labels(shard, nothing, mechanism, 1)[:, 0]
    assert_array_equal(again, drawn[0])  # a resumed run repeats them
    chance = shard.randomness.uniform(np.arange(len(shard)), f"{PURPOSE}/tie", 1)[:, 0]
    words = shard.randomness.words(np.arange(len(shard)), PURPOSE, 1, 1)[:, 0] / COIN
    assert abs(np.corrcoef(chance, words)[0, 1]) < 5 / math.sqrt(len(shard))


def test_any_division_into_shards_sends_the_same() -> None:
    graph = demo_graph(60, features=False)
    mechanism = make_mechanism(CLASSES, 2.0, "krr")
    evidence = np.random.default_rng(2).integers(0, 2, (60, CLASSES)).astype(np.float64)
    whole = propagated_labels(cut(graph, 1, seed=3)[0], evidence, mechanism, 1)
    for shards in (2, 7, 60):
        for shard in cut(graph, shards, seed=3):
            assert_array_equal(
                propagated_labels(shard, evidence[shard.devices], mechanism, 1),
                whole[shard.devices],
            )
