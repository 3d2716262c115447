"""The schedule of links: its epochs, and how far vectors move, searched for on real vectors."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.strict.composition import DELTA, epsilon_of
from tests.strict.linking import schedule, started

from lumos.errors import UsageError
from lumos.graph import Graph
from lumos.secagg.noise import epsilon_for, mu_for
from lumos.strict.link.answers import AnswerBudget
from lumos.strict.link.encoder import LinkEncoder, TokenRows, unit
from lumos.strict.link.levels import BOTH, COSINES, WAYS, NeighbourhoodSketch, integers
from lumos.strict.link.stages import (
    ASSOCIATIONS,
    CHOICE_DEVICES,
    COUNTS,
    LEVELS,
    MANY_DEVICES,
    MARGIN,
    MARKS,
    WHITENING,
    LinkSchedule,
)
from lumos.strict.stages import SCALING_SHARE
from lumos.training.config import Config

ROOT = math.sqrt(2)


def sums_of(made: LinkSchedule) -> list[tuple[str, int]]:
    return [(stage.name, step) for stage, step in made.sums]


# -- epochs -------------------------------------------------------------------------------


@pytest.mark.parametrize("propagated_labels", range(4))
def test_every_epoch_has_a_stage(propagated_labels: int) -> None:
    made = schedule(propagated_labels=propagated_labels)
    assert made.config.train.epochs == 4 + propagated_labels
    assert sums_of(made) == [
        (COUNTS, 0),
        *((MARKS, step) for step in range(1 + propagated_labels)),
        (ASSOCIATIONS, 0),
        (WHITENING, 0),
        (LEVELS, 0),
    ]
    with pytest.raises(ValueError, match="no such epoch"):
        made.place(4 + propagated_labels)
    assert Config.of(profile="strict", task="link").train.epochs == 7


@pytest.mark.parametrize("propagated_labels", range(4))
@pytest.mark.parametrize("more", [-3, -1, 1, 50])
def test_another_number_of_epochs_is_refused_in_one_line(propagated_labels: int, more: int) -> None:
    right = 4 + propagated_labels
    with pytest.raises(UsageError) as refused:
        schedule(propagated_labels=propagated_labels, epochs=right + more)
    assert str(refused.value) == (
        f"`epochs` must be {right} with these settings: 1 for counts, {1 + propagated_labels} for "
        f"random_marks, 1 for associations, 1 for whitening; got {right + more}"
    )


def test_defaults_that_depend_on_the_number_of_devices() -> None:
    for devices, marks in ((2, 24), (MANY_DEVICES - 1, 24), (MANY_DEVICES, 32), (10**6, 32)):
        made = schedule(devices)
        assert made.random_marks == made.propagated_label_mechanism.size == marks
        assert made[ASSOCIATIONS].width(10) == 10 * marks
        assert made[WHITENING].width(10) == marks * (marks + 1) // 2
        assert schedule(devices, random_marks=7).random_marks == 7
    assert MANY_DEVICES == 10_000
    assert schedule(CHOICE_DEVICES).compared == WAYS
    assert schedule(CHOICE_DEVICES - 1).compared == (BOTH,)


# -- budget -------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 8.0, 100.0])
@pytest.mark.parametrize(
    "given",
    [{}, {"random_marks": 3}, {"propagated_labels": 0}, {"scaling": "standard"}],
    ids=str,
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
    ASSOCIATIONS: (1.0, ROOT),
    WHITENING: (1.0, ROOT),
    MARKS: (1.0, 0.0),
    LEVELS: (ROOT, 2.0),
}


@pytest.mark.parametrize("devices", [60, 1000])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_the_cost_by_convolving_privacy_losses(devices: int, epsilon: float) -> None:
    made = schedule(devices, feature_epsilon=epsilon)
    for place, question in enumerate(("norm", "features")):
        moves = [FAR[stage][place] / deviation(made, stage, step) for stage, step in sums_of(made)]
        found = epsilon_of(moves, DELTA)
        spent = made.account(made.mu(question))
        assert spent is not None
        assert found == pytest.approx(spent[0], rel=0.01)
        assert found <= spent[0] * 1.001


def test_zeros_in_place_of_a_vector_cost_less_than_other_features() -> None:
    made = schedule()
    assert made.mu("norm") < made.mu("features")


@pytest.mark.parametrize("bits", [12, 16, 18, 20, 24])
def test_rounding_to_a_coarse_fixed_point_is_in_the_noise(bits: int) -> None:
    """Whitening of half a step in every number: a margin of 1e-5 is too small below 21 bits."""
    made = schedule()
    updates = replace(made.config.updates, fraction_bits=bits)
    made = replace(made, config=replace(made.config, updates=updates))
    half = 0.5 ** (bits + 1) * math.sqrt(made[WHITENING].width(0))
    reach = made[WHITENING].sensitivity
    assert reach.norm >= 1 + half
    assert reach.features >= ROOT + 2 * half
    assert (ROOT + 2 * half <= ROOT * (1 + MARGIN)) == (bits > 20)


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


def associations(signed: bool, bits: int) -> np.ndarray:
    """[devices, numbers] what devices with one sketch add: their distances are those of other
    words in one of them. The first has opposite words, nearly the same, and quite others."""
    rng = np.random.default_rng(0)
    rows = word_sets(rng, 60, 40)
    rows[:4] = 0
    rows[0, :9], rows[1, 9:18] = 1, 1
    if signed:
        rows *= rng.choice([-1, 1], rows.shape)
    rows[2:4] = -rows[0], rows[0]
    rows[3, 20] = 0.001
    tokens = TokenRows(rows, signed=signed)
    encoder = LinkEncoder(tokens, schedule(random_marks=4, signed=signed))
    encoder.learn_counts(rng.random(len(encoder.weights)) * 20, None)
    sketch = np.tile(unit(rng.normal(size=(1, 4))), (60, 1))
    return encoder.associations(sketch, bits, each=True)


def largest(vectors: np.ndarray) -> tuple[list[float], list[float]]:
    """Norms of vectors, and their distances from one another."""
    moves = np.linalg.norm(vectors[:, None] - vectors, axis=2)
    return np.linalg.norm(vectors, axis=1).tolist(), moves.ravel().tolist()


SIGNED_AND_BITS = [(False, 6), (True, 6), (False, 32), (True, 32)]


@pytest.mark.parametrize(("signed", "bits"), SIGNED_AND_BITS)
def test_reach_of_associations(signed: bool, bits: int) -> None:
    norm, features, *_ = schedule()[ASSOCIATIONS].moves
    assert (norm, features) == (1, ROOT)
    vectors, nearly = associations(signed, bits), 1 - 6 * 0.5**bits
    norms, moves = largest(vectors)
    never_beyond(norms, norm, nearly)
    never_beyond(moves, features, nearly)
    assert np.array_equal(vectors * 2.0**bits, np.rint(vectors * 2.0**bits))


def of_words_too(patch: pytest.MonkeyPatch) -> None:
    """Devices with an odd number of words have the opposite sketch."""
    honest = LinkEncoder.associations

    def broken(self: LinkEncoder, sketch: np.ndarray, bits: int, *, each: bool) -> np.ndarray:
        odd = self._tokens.held % 2
        return honest(self, sketch * (1 - 2 * odd)[:, None], bits, each=each)

    patch.setattr(LinkEncoder, "associations", broken)


def of_both_signs(patch: pytest.MonkeyPatch) -> None:
    """A negative value is the same word as a positive one, and stays negative."""
    honest = TokenRows.__init__

    def broken(self: TokenRows, features: Any, *, signed: bool) -> None:
        honest(self, abs(features), signed=signed)
        self._values.data *= np.sign(features)[features != 0]

    patch.setattr(TokenRows, "__init__", broken)


def away_from_zero(patch: pytest.MonkeyPatch) -> None:
    """Numbers are rounded up in size."""
    patch.setattr(np, "trunc", lambda values: np.sign(values) * np.ceil(abs(values)))


@pytest.mark.parametrize(
    ("broken", "signed", "bits"),
    [
        *((of_words_too, *case) for case in SIGNED_AND_BITS),
        (of_both_signs, True, 6),
        (of_both_signs, True, 32),
        (away_from_zero, False, 6),
        (away_from_zero, True, 6),
    ],
)
def test_associations_that_move_further_are_found(
    broken: Any, signed: bool, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    norm, features, *_ = schedule()[ASSOCIATIONS].moves
    broken(monkeypatch)
    norms, moves = largest(associations(signed, bits))
    assert max(moves) > 1.01 * features
    assert (max(norms) > 1.01 * norm) == (broken is away_from_zero)


def test_reach_of_whitening() -> None:
    rng = np.random.default_rng(0)
    rows = np.vstack([np.eye(10), word_sets(rng, 100, 10)])
    words = TokenRows(rows, signed=False)
    encoder = LinkEncoder(words, schedule(random_marks=4))
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
