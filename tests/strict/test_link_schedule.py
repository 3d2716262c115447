"""The schedule of links: its epochs, and how far vectors move, searched for on real vectors."""

import math
from typing import Any

import numpy as np
import pytest
from tests.strict.composition import DELTA, epsilon_of
from tests.strict.linking import schedule, started

from lumos.device.randomness import PublicRandomness
from lumos.errors import UsageError
from lumos.graph import Graph
from lumos.secagg.noise import epsilon_for, mu_for
from lumos.strict.link.answers import AnswerBudget
from lumos.strict.link.encoder import Z_STEPS, LinkEncoder, TokenRows
from lumos.strict.link.levels import BOTH, COSINES, WAYS, NeighbourhoodSketch, integers
from lumos.strict.link.stages import (
    CHOICE_DEVICES,
    COUNTS,
    LEVELS,
    MARGIN,
    MARKS,
    PAIR_DEVICES,
    PRODUCTS,
    WHITENING,
    LinkSchedule,
)
from lumos.strict.stages import SCALING_SHARE
from lumos.training.config import Config

ROOT = math.sqrt(2)


def sums_of(made: LinkSchedule) -> list[tuple[str, int]]:
    return [(stage.name, step) for stage, step in made.sums]


# -- epochs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("propagated_labels", "epochs"), [(0, 4), (0, 7), (1, 5), (2, 9), (3, 7), (3, 10)]
)
def test_every_epoch_has_a_stage(propagated_labels: int, epochs: int) -> None:
    made = schedule(propagated_labels=propagated_labels, epochs=epochs, products="pairs")
    products = epochs - 3 - propagated_labels
    assert sums_of(made) == [
        (COUNTS, 0),
        *((PRODUCTS, step) for step in range(products)),
        (WHITENING, 0),
        *((MARKS, step) for step in range(1 + propagated_labels)),
        (LEVELS, 0),
    ]
    assert [stage.name for stage in made.stages if stage.paired] == [PRODUCTS]
    own = schedule(propagated_labels=propagated_labels, epochs=epochs)
    assert sums_of(own) == sums_of(made)
    assert not any(stage.paired for stage in own.stages)
    with pytest.raises(ValueError, match="no such epoch"):
        made.place(epochs)


@pytest.mark.parametrize("propagated_labels", range(4))
def test_smallest_number_of_epochs(propagated_labels: int) -> None:
    assert (
        schedule(propagated_labels=propagated_labels, epochs=4 + propagated_labels).rest_epochs == 1
    )
    with pytest.raises(
        UsageError, match=f"must be above {3 + propagated_labels} with these settings"
    ):
        schedule(propagated_labels=propagated_labels, epochs=3 + propagated_labels)


def test_products_are_of_pairs_where_devices_are_many() -> None:
    for devices, pairs in ((2, False), (PAIR_DEVICES - 1, False), (PAIR_DEVICES, True)):
        made = schedule(devices)
        assert made.pairs == pairs
        assert made.embedding == (24 if pairs else 12)
        assert schedule(devices, embedding=7).embedding == 7
        assert schedule(devices, products="pairs").pairs
        assert not schedule(devices, products="own").pairs
    assert schedule(CHOICE_DEVICES).compared == WAYS
    assert schedule(CHOICE_DEVICES - 1).compared == (BOTH,)


def test_default_epochs_have_four_sums_of_products() -> None:
    for propagated_labels in range(4):
        assert schedule(propagated_labels=propagated_labels).rest_epochs == 4
    assert Config.of(profile="strict", task="link").train.epochs == 10


# -- budget -------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 8.0, 100.0])
@pytest.mark.parametrize(
    "given", [{}, {"epochs": 7}, {"tokens": 3}, {"propagated_labels": 0}], ids=str
)
def test_all_sums_together_cost_what_was_asked_for(epsilon: float, given: dict[str, Any]) -> None:
    made = schedule(feature_epsilon=epsilon, **given)
    spent = made.account(made.mu("features"))
    assert spent is not None
    assert spent[0] == pytest.approx(epsilon, rel=1e-9)
    shares = [stage.share for stage in schedule().stages if stage.question == "features"]
    assert sum(shares) - 2 * SCALING_SHARE == pytest.approx(1)


def deviation(made: LinkSchedule, stage: str, step: int) -> float:
    """Standard deviation of the shares of those that neither collude nor drop out."""
    noise = made[stage].noise(step)
    assert noise is not None
    absent = math.ceil(0.10 * made.devices) + math.ceil(0.05 * made.devices)
    return noise.share * math.sqrt(made.devices - absent)


FAR = {
    COUNTS: (1.0, ROOT),
    WHITENING: (1.0, ROOT),
    MARKS: (1.0, 0.0),
    LEVELS: (ROOT, 2.0),
}
OF_PRODUCTS = {"own": (1.0, 2.0), "pairs": (2 * math.sqrt(8), math.sqrt(10 * 8))}
"""Written out for the default of eight words."""


@pytest.mark.parametrize("devices", [60, 1000])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("products", OF_PRODUCTS)
def test_the_cost_by_convolving_privacy_losses(devices: int, epsilon: float, products: str) -> None:
    made = schedule(devices, feature_epsilon=epsilon, products=products)
    far = FAR | {PRODUCTS: OF_PRODUCTS[products]}
    for place, question in enumerate(("norm", "features")):
        moves = [far[stage][place] / deviation(made, stage, step) for stage, step in sums_of(made)]
        found = epsilon_of(moves, DELTA)
        spent = made.account(made.mu(question))
        assert spent is not None
        assert found == pytest.approx(spent[0], rel=0.01)
        assert found <= spent[0] * 1.001
    assert made[PRODUCTS].moves[:2] == pytest.approx(far[PRODUCTS])


def test_zeros_in_place_of_a_vector_cost_less_than_other_features() -> None:
    made = schedule()
    assert made.mu("norm") < made.mu("features")


def test_each_sum_of_products_has_twice_the_budget_of_the_one_before() -> None:
    made = schedule(epochs=12)
    parts = [1 / deviation(made, PRODUCTS, step) ** 2 for step in range(made.rest_epochs)]
    assert np.allclose(np.divide(parts[1:], parts[:-1]), 2.0)


def test_exact_sums_have_no_noise_and_no_account() -> None:
    made = schedule(protect="none")
    assert all(made[sum_[0]].noise(sum_[1]) is None for sum_ in sums_of(made))
    assert made.account(made.mu("features")) is None
    assert made.mu("features") == 0


def test_whole_budget_is_that_of_one_gaussian_mechanism() -> None:
    made = schedule()
    assert made.mu("features") == pytest.approx(mu_for(8.0, 1e-5), rel=1e-9)
    assert epsilon_for(made.mu("features"), 1e-5) == pytest.approx(8.0)


# -- reach: the largest change that a search finds ------------------------------------------


def never_beyond(found: list[float], limit: float, nearly: float) -> None:
    """No change is larger than the limit, and some come close to it."""
    assert max(found) <= limit * (1 + MARGIN)
    assert max(found) >= nearly * limit


def word_sets(rng: np.random.Generator, many: int, width: int = 200) -> np.ndarray:
    """Rows of words, of all sizes."""
    rows = np.zeros((many, width))
    for row in rows:
        row[rng.permutation(width)[: rng.integers(0, 100)]] = rng.random() + 0.1
    return rows


def test_reach_of_counts() -> None:
    rng = np.random.default_rng(0)
    rows = word_sets(rng, 300)
    rows[0], rows[1] = 0, 0
    rows[0, :40], rows[1, 40:80] = 1, 1  # two devices that share no word
    words = TokenRows(rows, signed=False)
    shares = words.shares().toarray()
    norm, features, *_ = schedule()[COUNTS].moves
    never_beyond(np.linalg.norm(shares, axis=1).tolist(), norm, 0.999)
    moves = np.linalg.norm(shares[:, None] - shares, axis=2)
    never_beyond(moves.ravel().tolist(), features, 0.999)


def product(b: np.ndarray, z: np.ndarray, b_peer: np.ndarray, z_peer: np.ndarray) -> np.ndarray:
    """What a pair adds to a sum of products."""
    whole: np.ndarray = np.outer(b, z_peer) + np.outer(b_peer, z)
    return whole


@pytest.mark.parametrize("most", [1, 3, 8])
def test_reach_of_products(most: int) -> None:
    """Real words and embeddings of random devices, and the worst that can be constructed.

    At the worst the partner has the new words, and embeddings are opposite.
    """
    rng = np.random.default_rng(most)
    made = schedule(tokens=most, embedding=4, products="pairs")
    norm, features, *_ = made[PRODUCTS].moves
    rows = word_sets(rng, 60, 40)
    words = TokenRows(rows, signed=False)
    encoder = LinkEncoder(words, made, PublicRandomness(0))
    encoder.basis = rng.normal(size=encoder.basis.shape)
    b, z = encoder.chosen.toarray(), encoder.integers() / Z_STEPS
    assert b.sum(axis=1).max() == most
    sizes, moves = [], []
    for _ in range(3000):
        me, other, peer = rng.integers(0, 60, 3)
        old, new = (product(b[i], z[i], b[peer], z[peer]) for i in (me, other))
        moves.append(float(np.linalg.norm(new - old)))
        sizes.append(float(np.linalg.norm(old)))
    never_beyond(moves, features, 0.5)
    never_beyond(sizes, norm, 0.5)
    old, new = np.zeros(40), np.zeros(40)
    old[:most], new[most : 2 * most] = 1, 1
    ahead = np.eye(4)[0] * (Z_STEPS - 1) / Z_STEPS
    moved = product(new, ahead, new, ahead) - product(old, -ahead, new, ahead)
    never_beyond([float(np.linalg.norm(moved))], features, 0.99)
    never_beyond([float(np.linalg.norm(product(new, ahead, new, ahead)))], norm, 0.99)


@pytest.mark.parametrize("signed", [False, True])
def test_reach_of_own_products(signed: bool) -> None:
    """Rows and embeddings of random devices, and the worst: opposite embeddings of nearly equal
    rows, which a basis that hardly sees what they share allows."""
    rng = np.random.default_rng(0)
    made = schedule(embedding=4, signed=signed)
    norm, features, *_ = made[PRODUCTS].moves
    rows = word_sets(rng, 60, 40)
    rows[:2] = 0
    rows[:2, :9], rows[0, 10], rows[1, 11] = 1, 0.01, 0.01
    if signed:
        rows *= rng.choice([-1, 1], rows.shape)
        rows[:2] = np.abs(rows[:2])
    encoder = LinkEncoder(TokenRows(rows, signed=signed), made, PublicRandomness(0))
    encoder.basis = rng.normal(size=encoder.basis.shape)
    encoder.basis[:9] = 0
    encoder.basis[11] = -encoder.basis[10]
    products = encoder.own_products(24, each=True)
    never_beyond(np.linalg.norm(products, axis=1).tolist(), norm, 0.999)
    moves = np.linalg.norm(products[:, None] - products, axis=2)
    never_beyond(moves.ravel().tolist(), features, 0.999)
    assert moves[0, 1] == moves.max()


def test_reach_of_whitening() -> None:
    rng = np.random.default_rng(0)
    rows = np.vstack([np.eye(10), word_sets(rng, 100, 10)])
    words = TokenRows(rows, signed=False)
    encoder = LinkEncoder(words, schedule(embedding=4), PublicRandomness(0))
    encoder.basis = np.eye(10, 4)  # the first words have embeddings at right angles
    spread = encoder.spread()
    norm, features, *_ = schedule()[WHITENING].moves
    never_beyond(np.linalg.norm(spread, axis=1).tolist(), norm, 0.999)
    never_beyond(np.linalg.norm(spread[:, None] - spread, axis=2).ravel().tolist(), features, 0.999)


def test_reach_of_colours(sixty: Graph) -> None:
    """One number of at most 1; features do not enter."""
    from lumos.device.shard import cut

    (shard,) = cut(sixty, 1, seed=0)
    sent = NeighbourhoodSketch(shard, schedule().propagated_label_mechanism).sent_weights()
    norm, features, *_ = schedule()[MARKS].moves
    never_beyond(np.linalg.norm(sent, axis=1).tolist(), norm, 0.9)
    assert features == 0
    assert ((sent > 0).sum(axis=1) <= 1).all()


def histograms(made: Any, vectors: np.ndarray) -> np.ndarray:
    """[numbers] the sum of all devices' parts, where all ways compare the same vectors."""
    ways = dict.fromkeys(WAYS, vectors)
    many = [AnswerBudget.unused(len(trainer.shard)) for trainer in made.trainers]
    found = made.run(lambda trainer: trainer._histograms(ways, many[0]), None)
    return np.asarray(found[0]).sum(axis=0)


def test_reach_of_levels() -> None:
    """One device with other vectors moves one bucket of an edge and one of a non-neighbour."""
    rng = np.random.default_rng(0)
    devices = 20
    graph = Graph.from_edges(
        rng.integers(0, devices, (60, 2)), devices=devices, features=rng.random((devices, 6))
    )
    made = started(graph, graph.edge_list(), protect="none")
    norm, features, *_ = schedule()[LEVELS].moves
    vectors = integers(np.tile(np.eye(1, 24), (devices, 1)))
    exact = histograms(made, vectors)
    assert exact.shape == (len(WAYS) * 2 * (len(COSINES) + 1),)
    moves = []
    for device in range(devices):
        other = vectors.copy()
        other[device] = -vectors[device]
        moves.append(float(np.linalg.norm(histograms(made, other) - exact)))
    never_beyond(moves, features, 0.999)
    trainer = made.trainers[0]
    budget = AnswerBudget.unused(devices)
    (rows,) = made.run(lambda t: t._histograms(dict.fromkeys(WAYS, vectors), budget), None)
    never_beyond(np.linalg.norm(rows, axis=1).tolist(), norm, 0.999)
    assert trainer._held_back.shape[1] == 2
    assert budget.calibrated.max() == 2
