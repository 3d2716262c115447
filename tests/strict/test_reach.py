"""How far one device's vector moves: searched for on real vectors, and never beyond `Reach`."""

import math
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest
from tests.strict.classifying import (
    DIGITS,
    encoder_of,
    labels_of,
    rounding,
    schedule_of,
    square,
    squares,
)

from lumos.strict.classify.encoder import Encoder
from lumos.strict.classify.evidence import (
    EvidenceWeights,
    MessageCounts,
    confidence_vectors,
    selection_vectors,
)
from lumos.strict.classify.stages import (
    COUNTS,
    ENCODER,
    EVIDENCE_WEIGHTS,
    PROPAGATED,
    RANDOMIZED,
    SELECTION,
    TEMPERATURE,
    TEMPERED,
    TREES,
    ClassifySchedule,
)

FORMS: dict[str, dict[str, Any]] = {
    "krr": {},
    "two classes": {"classes": 2, "label_epsilon": 1.0},
    "digits": DIGITS,
}
WIDTH = 6


def randomness(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def farthest(schedule: ClassifySchedule, vectors: np.ndarray) -> float:
    """The largest distance of two vectors, as a sum rounds them."""
    rounded = rounding(schedule)(vectors)
    inner = rounded @ rounded.T
    apart = np.diag(inner)[:, None] + np.diag(inner) - 2 * inner
    first, second = np.unravel_index(apart.argmax(), apart.shape)
    return math.sqrt(squares(schedule, rounded[first] - rounded[second])[0])


def encoder_at(rows: np.ndarray, schedule: ClassifySchedule, value: int) -> Encoder:
    """Devices that have one randomized label, and these features."""
    return encoder_of(rows.astype(np.float32), np.full(len(rows), value), schedule)


# The local classifier: other features, and the same randomized label.


def random_rows(rng: np.random.Generator, many: int, *, signed: bool) -> np.ndarray:
    """Rows with many features or few, of several sizes, some of a single one, one of zeros."""
    rows = rng.exponential(size=(many, WIDTH)) * (rng.random((many, WIDTH)) < rng.random())
    rows[:WIDTH] = np.eye(WIDTH)
    rows[WIDTH] = 0
    return rows * rng.choice([-1, 1], rows.shape) if signed else rows


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_clipped_gradients_of_one_label_by_random_search(form: str, signed: bool) -> None:
    schedule = schedule_of(signed=signed, **FORMS[form])
    reach = schedule[ENCODER].sensitivity
    clip = 0.3 * schedule.strength
    assert reach.norm == clip
    assert reach.features == (2 if signed else math.sqrt(2)) * clip
    rng, largest = randomness(1), 0.0
    for value in range(min(4, schedule.label_form.alphabet)):
        for size in (0.0, 0.3, 3.0, 30.0):
            encoder = encoder_at(random_rows(rng, 60, signed=signed), schedule, value)
            encoder.learn_counts(rng.uniform(0, 50, WIDTH))
            encoder.weights = size * rng.normal(size=encoder.weights.shape)
            largest = max(largest, farthest(schedule, encoder.update(each=True)))
    assert largest <= reach.features
    assert largest > (1.9 if signed else 1.35) * clip  # so the factors are no smaller


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("form", ["krr", "digits"])
def test_clipped_gradients_of_one_label_by_adversarial_search(form: str, signed: bool) -> None:
    """Two rows, the weights and the label are changed for as long as it drives them apart."""
    schedule = schedule_of(signed=signed, **FORMS[form])
    limit, rng, best = schedule[ENCODER].sensitivity.features, randomness(2), 0.0

    def apart(rows: np.ndarray, weights: np.ndarray, value: int) -> float:
        encoder = encoder_at(rows if signed else np.abs(rows), schedule, value)
        encoder.weights = weights
        one, other = rounding(schedule)(encoder.update(each=True))
        return math.sqrt(squares(schedule, one - other)[0])

    for start in range(4):
        rows = rng.normal(size=(2, WIDTH))
        weights = (0.0, 0.1, 1.0, 10.0)[start] * rng.normal(size=(WIDTH + 1, schedule.classes))
        value = int(rng.integers(schedule.label_form.alphabet))
        distance = apart(rows, weights, value)
        for _ in range(150):
            moved = rows + rng.normal(size=rows.shape) * rng.choice([0.02, 0.5])
            turned = weights + rng.normal(size=weights.shape) * rng.choice([0.0, 0.1, 1.0])
            further = apart(moved, turned, value)
            if further > distance:
                rows, weights, distance = moved, turned, further
        assert distance <= limit
        best = max(best, distance)
    assert best > (1.7 if signed else 1.35) * schedule.strength * 0.3


def test_slopes_of_one_label_lie_in_one_cone() -> None:
    """Why √2: the class of ỹ, or those with its digit, fall, and all others rise."""
    for settings in FORMS.values():
        schedule = schedule_of(**settings)
        form = schedule.label_form
        for value in range(form.alphabet):
            labels = labels_of(schedule, np.full(50, value))
            logits = randomness(value).normal(0, 5, (50, schedule.classes))
            slopes = labels.slopes(logits, np.arange(50))[0]
            agree = form.agrees(np.arange(schedule.classes), np.array(value))
            assert (slopes[:, agree] <= 1e-15).all()
            assert (slopes[:, ~agree] >= -1e-15).all()


def others_at(rows: np.ndarray, schedule: ClassifySchedule, likelihood: np.ndarray) -> np.ndarray:
    """Gradients of devices that have these features and no training label, at random weights."""
    encoder = encoder_of(rows.astype(np.float32), np.full(len(rows), -1), schedule)
    encoder.use_propagated_labels(np.tile(likelihood, (len(rows), 1)), 1.0)
    encoder.weights = 3 * randomness(9).normal(size=encoder.weights.shape)
    return encoder.update(each=True)


@pytest.mark.parametrize("signed", [False, True])
def test_gradients_by_a_propagated_label(signed: bool) -> None:
    """A label that was sent takes the place of a label: the same cone, and a smaller norm."""
    schedule = schedule_of(signed=signed, participation="all")
    part = schedule.others_part
    assert 0 < part < 1
    limit = part * schedule[ENCODER].sensitivity.features
    assert limit == pytest.approx((2 if signed else math.sqrt(2)) * part * 0.3 * schedule.strength)
    rows, largest = random_rows(randomness(8), 80, signed=signed), 0.0
    for accuracy in (0.3, 0.6, 0.9):
        likelihood = np.full(4, (1 - accuracy) / 3)
        likelihood[2] = accuracy
        vectors = others_at(rows, schedule, likelihood)
        assert max(squares(schedule, vectors)) <= square(part * schedule[ENCODER].sensitivity.norm)
        largest = max(largest, farthest(schedule, vectors))
    assert (0.85 if signed else 0.95) * limit < largest <= limit


def test_a_full_correction_matrix_would_move_further() -> None:
    """The broken variant: with three values in a column slopes leave their cone."""
    schedule = schedule_of(participation="all")
    limit = schedule.others_part * schedule[ENCODER].sensitivity.features
    row = np.tile([1.0, 0, 0, 0, 0, 0], (2, 1))  # one direction, and weights that turn the slope
    encoder = encoder_of(row.astype(np.float32), [-1, -1], schedule)
    found = []
    for likelihood in ([0.1, 0.1, 0.7, 0.1], [0.02, 0.3, 0.66, 0.02]):
        encoder.use_propagated_labels(np.tile(likelihood, (2, 1)), 1.0)
        vectors = []
        for sure in (0, 2):  # the class that the weights are sure of
            encoder.weights = np.zeros_like(encoder.weights)
            encoder.weights[0, [sure, 1]] = 8.0
            vectors.append(encoder.update(each=True)[0])
        found.append(farthest(schedule, np.array(vectors)))
    assert found[0] <= limit < 1.2 * limit < found[1]


@pytest.mark.parametrize("signed", [False, True])
def test_counts(signed: bool) -> None:
    """Sizes of features are never negative, so √2 also where features are."""
    schedule = schedule_of(signed=signed)
    encoder = encoder_at(random_rows(randomness(3), 80, signed=signed), schedule, 0)
    vectors = encoder.counts(each=True)
    reach = schedule[COUNTS].sensitivity
    assert (vectors >= 0).all()
    assert max(squares(schedule, vectors)) <= square(reach.norm) == 1
    assert 1.414 < farthest(schedule, vectors) <= reach.features == math.sqrt(2)


# Matrices: one message more or less.


def counted(messages: list[tuple[int, ...]], alphabet: int) -> MessageCounts:
    """Counts of one device that received these messages; each names some values, or none."""
    support = np.zeros((len(messages), alphabet))
    for number, named in enumerate(messages):
        support[number, list(named)] = 1
    return MessageCounts(support, np.zeros(len(messages), np.int64), 1)


@pytest.mark.parametrize("stage", [RANDOMIZED, PROPAGATED])
@pytest.mark.parametrize("several", [False, True])
def test_one_message_moves_a_matrix_by_a_quarter(stage: str, several: bool) -> None:
    """By brute force: all neighbourhoods of up to four messages, and any one more."""
    alphabet, most = 3, 3 if several else 4
    sizes = range(alphabet + 1) if several else (1,)  # how many values a message may name
    messages = [named for size in sizes for named in combinations(range(alphabet), size)]
    schedule = schedule_of(classes=3)
    labels = labels_of(schedule, [1])
    reach, one = schedule[stage].sensitivity, np.zeros(1, np.int64)
    largest = longest = 0.0
    for many in range(most + 1):
        for received in combinations_with_replacement(messages, many):
            before = counted(list(received), alphabet).matrix_vectors(labels, one)
            longest = max(longest, float(np.linalg.norm(before)))
            for message in messages:
                after = counted([*received, message], alphabet).matrix_vectors(labels, one)
                largest = max(largest, float(np.linalg.norm(after - before)))
    assert largest == reach.edge == 1 / 4
    assert longest < reach.norm == 1
    assert reach.features == 0  # counts are of messages, rows of the randomized label


def test_a_neighbourhood_of_any_size_moves_no_further() -> None:
    labels = labels_of(schedule_of(), [0])
    one = np.zeros(1, np.int64)
    for many in (0, 1, 2, 5, 100, 10_000):
        before = counted([(1,)] * many, 4)
        for message in ((0,), (1,), (0, 1), ()):
            after = counted([*[(1,)] * many, message], 4)
            vectors = (counts.matrix_vectors(labels, one) for counts in (before, after))
            assert np.linalg.norm(np.subtract(*vectors)) <= 1 / 4
        assert np.linalg.norm(before.matrix_vectors(labels, one)) < 1


# The model selection.


def selections(candidates: int, settings: dict[str, Any]) -> dict[tuple[bool, ...], np.ndarray]:
    """By which candidates agree with the randomized label: what a device adds. All outcomes."""
    schedule = schedule_of(**settings)
    form = schedule.label_form
    value = form.base - 1  # in digits, the last one at the first place
    agrees = form.agrees(np.arange(schedule.classes), np.array(value))
    right, wrong = int(np.flatnonzero(agrees)[0]), int(np.flatnonzero(~agrees)[0])
    labels, found = labels_of(schedule, [value]), {}
    for outcome in product((False, True), repeat=candidates):
        logits = [np.eye(schedule.classes)[[right if agreed else wrong]] for agreed in outcome]
        found[outcome] = selection_vectors(logits, labels, np.zeros(1, np.int64))[0]
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("trees", [False, True])
def test_selections_by_brute_force(form: str, trees: bool) -> None:
    """All outcomes for two and three candidates: the account is exact, not only a bound."""
    schedule = schedule_of(tree_network=trees, **FORMS[form])
    outcomes = selections(len(schedule.candidates), FORMS[form])
    assert len(outcomes) == (8 if trees else 4)

    def largest(*, same_own: bool) -> float:
        return max(
            float(np.linalg.norm(outcomes[one] - outcomes[other]))
            for one, other in product(outcomes, repeat=2)
            if one[0] == other[0] or not same_own
        )

    reach = schedule[SELECTION].sensitivity
    assert max(np.linalg.norm(vector) for vector in outcomes.values()) == reach.norm
    assert largest(same_own=False) == reach.features
    # Own features do not change with an edge. Both ends use it in their predictions.
    assert 2 * largest(same_own=True) == reach.edge
    for agreed, vector in outcomes.items():
        net = vector[1::2] - vector[2::2]
        assert (vector[0] + net).tolist() == [float(other) for other in agreed[1:]]


# Confidences and evidence weights.


def test_confidences() -> None:
    """Probabilities of the most likely class, whatever the logits: none leaves [1/k, 1]."""
    schedule, rng = schedule_of(), randomness(4)
    reach = schedule[TEMPERATURE].sensitivity
    sizes = np.repeat([0.0, 0.1, 1.0, 5.0, 50.0, 1e6], 15)
    logits = sizes[:, None] * rng.normal(size=(90, schedule.classes))
    vectors = confidence_vectors(logits, TEMPERED, np.arange(90))
    assert vectors.min() >= 1 / schedule.classes - 1e-12
    assert vectors.max() <= 1
    assert max(squares(schedule, vectors)) <= square(reach.norm)
    spread = (1 - 1 / schedule.classes) * reach.norm
    assert 0.999 * spread < farthest(schedule, vectors) <= reach.features
    assert reach.norm == reach.features == reach.edge / 2  # both ends of an edge


@pytest.mark.parametrize("form", FORMS)
def test_evidence_weights(form: str) -> None:
    """Evidence is signed: other evidence may turn a gradient around."""
    schedule = schedule_of(**FORMS[form])
    reach, rng = schedule[EVIDENCE_WEIGHTS].sensitivity, randomness(5)
    weights = np.concatenate([[1.0, 1.0, 0.7], np.zeros(schedule.classes)])
    limit = schedule[EVIDENCE_WEIGHTS].limit(len(weights) + 1)
    labels = labels_of(schedule, np.zeros(200, np.int64))
    sizes = rng.choice([0.0, 0.3, 3.0, 30.0], (3, 200, 1))
    own, *evidence = sizes * rng.normal(size=(3, 200, schedule.classes))
    vectors = EvidenceWeights(own, evidence).update(weights, labels, np.arange(200), limit)
    assert max(squares(schedule, vectors)) <= square(reach.norm) == square(0.3)
    assert 1.5 * reach.norm < farthest(schedule, vectors) <= 2 * reach.norm
    assert {reach.features, reach.edge} == {2 * reach.norm}
    assert schedule[TREES].sensitivity == reach
