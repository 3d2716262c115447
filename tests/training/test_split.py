"""Who trains, who validates, who tests."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.narrow import present

from lumos import Graph, load
from lumos.device.randomness import PublicRandomness
from lumos.errors import InputError
from lumos.training.split import Role, pairs_without_edge, split_edges, split_vertices


@settings(deadline=None, max_examples=60)
@given(st.integers(4, 300), st.integers(0, 50), st.integers(0, 1000))
def test_half_of_the_labelled_train_and_a_quarter_each_validate_and_test(
    known: int, unknown: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(known) % 2, np.full(unknown, -1)])
    rng.shuffle(labels)
    roles = split_vertices(labels, PublicRandomness(seed))
    assert np.array_equal(roles == Role.NOBODY, labels < 0)
    sizes = [int((roles == role).sum()) for role in (Role.TRAIN, Role.VALIDATION, Role.TEST)]
    assert sum(sizes) == known
    assert min(sizes) >= 1
    assert np.abs(np.array(sizes) - known * np.array([0.5, 0.25, 0.25])).max() <= 1
    assert np.array_equal(roles, split_vertices(labels, PublicRandomness(seed)))


def test_another_seed_gives_another_split() -> None:
    labels = np.arange(200) % 5
    one, other = (split_vertices(labels, PublicRandomness(seed)) for seed in (0, 1))
    assert not np.array_equal(one, other)


def test_roles_do_not_look_at_labels() -> None:
    """Public randomness may not depend on what devices keep: only on who has a label."""
    labels = np.arange(200) % 5
    one, other = (split_vertices(some, PublicRandomness(0)) for some in (labels, labels[::-1]))
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 0, -1, -1], "3 devices have one; classify needs at least 4"),
        ([-1, -1, -1, -1], "0 devices have one"),
        ([2, 2, 2, 2, -1], "all are of one class"),
    ],
)
def test_too_few_labels_are_refused(labels: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        split_vertices(np.array(labels), PublicRandomness(0))


def keys(pairs: np.ndarray) -> set[tuple[int, int]]:
    return set(map(tuple, pairs.tolist()))


@pytest.mark.parametrize("devices", [12, 60, 200])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_edge_is_lost_and_none_counts_twice(devices: int, seed: int) -> None:
    graph = load(f"demo:{devices}")
    split = split_edges(graph, PublicRandomness(seed))
    training, validation, test = map(
        keys, (split.training.edge_list(), split.validation, split.test)
    )
    assert len(training) + len(validation) + len(test) == graph.edges
    assert training | validation | test == keys(graph.edge_list())
    assert len(validation) == max(1, round(0.05 * graph.edges))
    assert len(test) == round(0.15 * graph.edges)
    non_neighbours = keys(split.validation_non_neighbours) | keys(split.test_non_neighbours)
    assert len(split.validation_non_neighbours) == len(validation)
    assert len(split.test_non_neighbours) == len(test)
    assert len(non_neighbours) == len(validation) + len(test)  # distinct
    assert not non_neighbours & keys(graph.edge_list())
    assert all(u < v for u, v in non_neighbours)
    again = split_edges(graph, PublicRandomness(seed))
    assert np.array_equal(again.training.neighbours, split.training.neighbours)
    assert np.array_equal(again.test, split.test)
    assert np.array_equal(again.test_non_neighbours, split.test_non_neighbours)


def test_features_labels_and_ids_stay() -> None:
    graph = load("demo:60")
    training = split_edges(graph, PublicRandomness(0)).training
    features: Any = training.features
    assert (features != graph.features).nnz == 0
    assert np.array_equal(present(training.labels), present(graph.labels))
    assert np.array_equal(training.ids, graph.ids)
    assert training.devices == graph.devices


def test_too_few_edges_are_refused() -> None:
    with pytest.raises(InputError, match="4; link prediction needs at least 5"):
        split_edges(Graph.from_edges([[0, 1], [1, 2], [2, 3], [3, 4]]), PublicRandomness(0))
    path = Graph.from_edges([[i, i + 1] for i in range(9)])
    split = split_edges(path, PublicRandomness(0))
    assert (split.training.edges, len(split.validation), len(split.test)) == (7, 1, 1)


def test_a_complete_graph_has_no_non_neighbours_to_test_on() -> None:
    edges = [[u, v] for u in range(8) for v in range(u)]
    with pytest.raises(InputError, match="28 of 28 pairs are edges; too few are left"):
        split_edges(Graph.from_edges(edges), PublicRandomness(0))


def test_pairs_without_edge_are_uniform() -> None:
    """Each of the 15 - 3 free pairs of 6 devices equally often: χ² with 11 degrees, p = 1e-6."""
    edges = np.array([[0, 1], [2, 5], [3, 4]])
    counts: dict[tuple[int, int], int] = {}
    draws = 6000
    generator = np.random.default_rng(0)
    for _ in range(draws):
        for pair in keys(pairs_without_edge(edges, 6, 2, generator)):
            counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 12
    expected = 2 * draws / 12
    statistic = sum((count - expected) ** 2 / expected for count in counts.values())
    assert statistic < 48.9
