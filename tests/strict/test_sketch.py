"""Neighbourhood sketch: what devices hear, against loops over messages; and that degrees do not
show."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.runs.running import listening
from tests.strict.linking import schedule, started, town

from lumos.device.shard import Shard, cut
from lumos.graph import Graph
from lumos.ldp.mechanisms import make_mechanism
from lumos.strict.link.levels import CROWD, NeighbourhoodSketch
from lumos.strict.link.stages import MARKS
from lumos.strict.messages import most_likely, uses_edge


def star_of(degrees: list[int], seed: int = 0) -> Shard:
    """One shard: device i has so many neighbours, which are leaves."""
    edges, leaf = [], len(degrees)
    for device, degree in enumerate(degrees):
        edges += [(device, leaf + number) for number in range(degree)]
        leaf += degree
    return cut(Graph.from_edges(np.array(edges), devices=leaf), 1, seed=seed)[0]


def surroundings_of(
    shard: Shard, random_marks: int = 4, epsilon: float = 4.0
) -> NeighbourhoodSketch:
    return NeighbourhoodSketch(shard, make_mechanism(random_marks, epsilon, "krr"))


def test_a_run_against_loops_over_its_messages() -> None:
    graph = town(60)
    random_marks = 8
    with listening() as wire:
        made = started(graph, protect="none", random_marks=random_marks)
        last = made.config.train.epochs
        made.run(lambda trainer: trainer.epochs(0, last), lambda program: program.epochs(0, last))
    found = made.trainers[0].sketch
    rounds = [*wire.of("strict/colour"), *wire.of("strict/opinion")]
    assert len(rounds) == 1 + 3
    own, memory = None, np.zeros((60, random_marks))
    for number, messages in enumerate(rounds):
        told = {message.sender: message.body[0] for message in messages}
        assert len(messages) == 2 * graph.edges, "the same to all neighbours"
        assert len({(m.sender, m.body) for m in messages}) == len(told)
        usual = np.zeros(random_marks)
        heard = np.zeros((60, random_marks))
        for message in messages:
            heard[message.receiver, message.body[0]] += 1
        for device, random_mark in told.items():
            usual[random_mark] += min(int(graph.degrees[device]), CROWD) / CROWD
        usual = np.maximum(usual, 1e-3)
        assert_allclose(found.usual[number], usual / usual.sum(), atol=1e-5)
        if number == 0:
            own = np.array([told[device] for device in range(60)])
        used = np.zeros_like(heard)
        for message in messages:
            if uses_edge(np.array([message.receiver]), np.array([message.sender])):
                used[message.receiver, message.body[0]] += 1

        def above(counts: np.ndarray, number: int = number, own: Any = own) -> np.ndarray:
            expected = (counts.sum(axis=1, keepdims=True) + 1) * found.usual[number]
            return counts + np.eye(random_marks)[own] - expected

        evidence = above(used)
        memory = above(heard) + memory / 2
        if number + 1 < len(rounds):
            chance = made.shards[0].randomness.uniform(np.arange(60), "opinion/tie", number + 1)[
                :, 0
            ]
            own = most_likely(evidence, chance)
    vectors = memory / np.linalg.norm(memory, axis=1, keepdims=True)
    assert_allclose(found.vectors(), vectors, atol=1e-9)
    assert_array_equal(found._received, heard)


def test_colours_are_drawn_uniformly_and_depend_on_no_data() -> None:
    shard = star_of([1] * 4000)
    drawn = surroundings_of(shard).message(0)[:, 0]
    counts = np.bincount(drawn, minlength=4)
    assert (np.abs(counts - 2000) < 5 * np.sqrt(8000 * 3 / 16)).all()
    assert_array_equal(surroundings_of(shard).message(0)[:, 0], drawn)
    assert (surroundings_of(star_of([1] * 4000, seed=1)).message(0)[:, 0] != drawn).any()


def test_an_propagated_label_uses_the_tie_of_the_devices_own_choice() -> None:
    """Without noise a device tells exactly what it takes for its own, also where it is a tie."""
    shard = star_of([2] * 300)
    found = surroundings_of(shard, epsilon=60.0)
    found.message(0)
    # Two random marks heard once each, and a third one's own: ties everywhere.
    receiver = np.repeat(np.arange(300), 2)
    found._uses[:600] = True
    found.receive(receiver, np.arange(600), np.tile([0, 1], 300))
    found.learn_usual(np.ones(4))
    sent = found.message(1)[:300, 0]
    assert_array_equal(sent, found._own[:300])
    assert {0, 1} <= set(sent.tolist())
    tied = np.bincount(sent, minlength=4)
    assert tied.min() > 0


def test_vectors_are_the_last_rounds() -> None:
    shard = star_of([3, 1])
    found = surroundings_of(shard)
    found.message(0)
    found.receive(np.array([0, 0, 0, 1]), np.arange(4), np.array([2, 2, 1, 0]))
    found.learn_usual(np.array([1.0, 1, 2, 4]))
    own = np.eye(4)[found._own[:2]]
    expected = np.array([[0, 1, 2, 0], [1, 0, 0, 0]]) + own
    expected = expected - np.array([[4], [2]]) * np.array([1, 1, 2, 4]) / 8
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert_allclose(found.vectors()[:2], expected)


def test_noise_never_makes_a_frequency_zero_or_negative() -> None:
    found = surroundings_of(star_of([1]))
    found.learn_usual(np.array([-3.0, 0.0, 5.0, 5.0]))
    assert (found.usual[0] > 0).all()
    assert found.usual[0].sum() == pytest.approx(1)


def non_neighbours(found: Any, few: slice, many: slice) -> tuple[float, float]:
    """Mean cosine of two non-neighbours that both have few neighbours, and that both have many."""
    vectors = found.vectors()
    means = []
    for group in (few, many):
        z = vectors[group]
        total = z.sum(axis=0)
        means.append(float((total @ total - len(z)) / (len(z) * (len(z) - 1))))
    return means[0], means[1]


def test_the_direction_does_not_tell_the_degree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where random marks are drawn apart from edges, popular non-neighbours are no more alike than
    others."""
    many = 600
    shard = star_of([1] * many + [60] * many)
    found = surroundings_of(shard, random_marks=16)
    rng = np.random.default_rng(0)
    usual = rng.dirichlet(np.ones(16))
    found._own = rng.choice(16, len(shard), p=usual)
    found.receive(
        shard.owner, np.arange(len(shard.owner)), rng.choice(16, len(shard.owner), p=usual)
    )
    found.learn_usual(usual)
    few, lots = slice(0, many), slice(many, 2 * many)
    for mean in non_neighbours(found, few, lots):
        assert abs(mean) < 0.12
    low, high = non_neighbours(found, few, lots)
    assert abs(low - high) < 0.12

    # The twin: counts as they are. All that are popular hear much the same.
    def uncentred(self: Any, number: int, received: np.ndarray) -> np.ndarray:
        heard: np.ndarray = received + np.eye(self._size)[self._own]
        return heard

    monkeypatch.setattr(NeighbourhoodSketch, "_above_usual", uncentred)
    low, high = non_neighbours(found, few, lots)
    assert high > low + 0.3


def test_without_propagated_labels_a_vector_is_of_colours_alone() -> None:
    graph = town(40)
    made = started(graph, protect="none", propagated_labels=0)
    made.run(lambda trainer: trainer.epochs(0, 4), lambda program: program.epochs(0, 4))
    found = made.trainers[0].sketch
    assert len(found.usual) == 1
    assert schedule(propagated_labels=0)[MARKS].num_sums == 1
    assert_array_equal(found._own, found._sent)


def test_who_knows_the_same_people_hears_the_same() -> None:
    """Groups without any words: neighbourhood sketch of a group are alike."""
    graph = town(150, 5, within=0.4)
    made = started(graph, protect="none")
    made.run(lambda trainer: trainer.epochs(0, 7), lambda program: program.epochs(0, 7))
    vectors = made.trainers[0].sketch.vectors()
    same = (np.arange(150)[:, None] - np.arange(150)) % 5 == 0
    products = vectors @ vectors.T
    assert products[same].mean() > products[~same].mean() + 0.1
