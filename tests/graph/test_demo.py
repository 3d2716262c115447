"""The generator: the same graph every time, with the properties that it documents."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from lumos.errors import UsageError
from lumos.graph import Graph, demo_graph
from lumos.graph.demo import COMMUNITIES, DEVICES, SAME_COMMUNITY, SHARES


@pytest.fixture(scope="module")
def demo() -> Graph:
    return demo_graph()


@pytest.fixture(scope="module")
def large() -> Graph:
    return demo_graph(100_000, features=False)


def test_it_is_the_same_ten_times(demo: Graph) -> None:
    for _ in range(10):
        again = demo_graph()
        assert np.array_equal(again.neighbours, demo.neighbours)
        assert (again.features != demo.features).nnz == 0  # type: ignore[union-attr]


def test_another_seed_is_another_graph(demo: Graph) -> None:
    assert not np.array_equal(demo_graph(seed=1).neighbours, demo.neighbours)


def test_leaving_out_features_changes_nothing_else(demo: Graph) -> None:
    bare = demo_graph(features=False)
    assert bare.features is None
    assert bare.notes == ("features absent: not asked for",)
    assert np.array_equal(bare.neighbours, demo.neighbours)
    assert np.array_equal(bare.labels, demo.labels)  # type: ignore[arg-type]


def test_its_size_is_what_is_documented(demo: Graph) -> None:
    assert demo.devices == DEVICES == 2000
    assert demo.class_count == len(COMMUNITIES) == 6
    assert demo.degrees.mean() == pytest.approx(10, rel=0.1)
    assert np.count_nonzero(demo.degrees == 0) < 0.02 * demo.devices
    shares = np.bincount(demo.labels, minlength=6) / demo.devices  # type: ignore[arg-type]
    assert np.allclose(shares, SHARES, atol=0.001)


def test_degrees_follow_the_power_law(large: Graph) -> None:
    # Hill's estimator of the exponent over the tail, between the mean and the cut-off.
    lowest = 40
    tail = large.degrees[(large.degrees >= lowest) & (large.degrees < 600)]
    exponent = 1 + len(tail) / np.log(tail / (lowest - 0.5)).sum()
    assert exponent == pytest.approx(2.7, abs=0.25)
    assert large.degrees.max() > 50 * large.degrees.mean()


def test_edges_stay_in_the_community_as_often_as_documented(large: Graph) -> None:
    labels = large.labels
    assert labels is not None
    u, v = large.edge_list().T
    # An edge to anybody ends in the same community with the square of its share of the weight.
    chance = sum(share**2 for share in SHARES)
    expected = SAME_COMMUNITY + (1 - SAME_COMMUNITY) * chance
    assert np.mean(labels[u] == labels[v]) == pytest.approx(expected, abs=0.03)


def test_ids_do_not_give_the_community_away(large: Graph) -> None:
    labels = large.labels
    assert labels is not None
    same_as_next = np.mean(labels[1:] == labels[:-1])
    assert same_as_next == pytest.approx(sum(share**2 for share in SHARES), abs=0.01)


def test_own_words_help_and_neighbours_help_more(demo: Graph) -> None:
    """Naive Bayes, the best classifier for this model, on own words and on neighbours' too."""
    labels, words = demo.labels, demo.features
    assert labels is not None
    assert isinstance(words, csr_array)
    training = np.arange(demo.devices) % 2 == 0
    own = _word_evidence(words, labels, training)
    own_accuracy = _accuracy(own, labels, ~training)
    ones = np.ones(len(demo.neighbours), dtype=np.float32)
    adjacency = csr_array((ones, demo.neighbours, demo.offsets), shape=(demo.devices, demo.devices))
    belief = np.exp(own - own.max(axis=1, keepdims=True))
    belief /= belief.sum(axis=1, keepdims=True)
    together = own + np.log(0.6 * (adjacency @ belief) / np.maximum(demo.degrees, 1)[:, None] + 0.1)
    assert 0.70 < own_accuracy < 0.88
    assert _accuracy(together, labels, ~training) > own_accuracy + 0.05


def _word_evidence(words: csr_array, labels: np.ndarray, training: np.ndarray) -> np.ndarray:
    evidence = []
    for index in range(len(COMMUNITIES)):
        members = words[np.flatnonzero(training & (labels == index))]
        held = (members.sum(axis=0) + 0.5) / (members.shape[0] + 1)
        evidence.append(words @ np.log(held / (1 - held)) + np.log(1 - held).sum())
    return np.stack(evidence, axis=1)


def _accuracy(score: np.ndarray, labels: np.ndarray, chosen: np.ndarray) -> float:
    return float(np.mean(score.argmax(axis=1)[chosen] == labels[chosen]))


@pytest.mark.parametrize("devices", [2, 3, 7, 60, 61])
def test_small_sizes_work(devices: int) -> None:
    graph = demo_graph(devices)
    assert graph.devices == devices
    assert graph.edges >= 1
    assert graph.name == f"demo:{devices}"
    assert (graph.dropped_self_loops, graph.dropped_duplicates) == (0, 0)


@pytest.mark.parametrize("devices", [-1, 0, 1, 10**9])
def test_impossible_sizes_are_refused(devices: int) -> None:
    with pytest.raises(UsageError, match="demo needs 2 to"):
        demo_graph(devices)


def test_it_scales(large: Graph) -> None:
    """With a matrix of all pairs it would need 40 GB."""
    graph = demo_graph(200_000)
    assert graph.edges == pytest.approx(1_000_000, rel=0.02)
