"""The local classifier: autograd's gradients, clipped; sums that do not depend on shards."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from tests.narrow import present
from tests.strict.classifying import (
    DIGITS,
    encoder_of,
    rounding,
    schedule_of,
    square,
    squares,
)

from lumos.errors import UsageError
from lumos.ldp.bounds import unit_rows
from lumos.strict.classify.encoder import (
    BIAS,
    DAMPING,
    LONGEST,
    LOSS_LIMIT,
    LOSS_SCALE,
    MOMENTUM,
    RARE,
    RATE,
)
from lumos.strict.classify.labels import NO_LABEL
from lumos.strict.classify.stages import COUNTS, ENCODER, ClassifySchedule
from lumos.strict.features import FeatureRows, row_products

DEVICES, WIDTH = 25, 11
KINDS = ("sparse", "dense")
FORMS: dict[str, dict[str, Any]] = {
    "krr": {},
    "digits": DIGITS,
}


def randomness(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def features(kind: str, *, signed: bool = False, devices: int = DEVICES, width: int = WIDTH) -> Any:
    """Rows with few words or dense ones; device 3 has no feature."""
    rng = randomness(1)
    rows = rng.normal(size=(devices, width)) if signed else rng.random((devices, width))
    if kind == "sparse":
        rows *= rng.random((devices, width)) < 0.4
    rows[min(3, devices - 1)] = 0
    return csr_array(rows.astype(np.float32)) if kind == "sparse" else rows.astype(np.float32)


def values(schedule: ClassifySchedule, devices: int = DEVICES, seed: int = 0) -> np.ndarray:
    """Randomized labels of six devices in ten; the others have none."""
    rng = randomness(seed)
    drawn = rng.integers(0, schedule.label_form.alphabet, devices)
    return np.where(rng.random(devices) < 0.6, drawn, NO_LABEL)


def plain_rows(kind: str, schedule: ClassifySchedule, weights: np.ndarray) -> np.ndarray:
    """Weighted rows of norm 1 and the bias, in doubles."""
    rows = features(kind, signed=schedule.signed)
    rows = (rows.toarray() if kind == "sparse" else rows).astype(np.float64) * weights
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.hstack([rows / np.where(norms > 0, norms, 1), np.full((len(rows), 1), BIAS)])


def corrected_loss(logits: torch.Tensor, likelihood: np.ndarray) -> torch.Tensor:
    """-log of the probability of a value: R applied to the predicted probabilities."""
    return -torch.log(torch.softmax(logits, dim=-1) @ torch.from_numpy(likelihood))


# Gradients.


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_autograds(form: str, kind: str, signed: bool) -> None:
    schedule = schedule_of(protect="none", signed=signed, **FORMS[form])
    drawn = values(schedule)
    encoder = encoder_of(features(kind, signed=signed), drawn, schedule)
    encoder.learn_counts(randomness(4).uniform(0, 30, WIDTH))
    weights = 0.3 * randomness(3).normal(size=encoder.weights.shape)
    encoder.weights = weights
    table = schedule.label_form.table(schedule.strict.label_epsilon)
    x = plain_rows(kind, schedule, encoder.feature_weights)
    w = torch.tensor(weights, requires_grad=True)
    logits = torch.from_numpy(x) @ w
    assert_allclose(encoder.logits(), logits.detach().numpy(), rtol=1e-5, atol=1e-6)
    rows = encoder.update(each=True)
    for device in range(DEVICES):
        if drawn[device] == NO_LABEL:
            assert not rows[device].any()
            continue
        loss = corrected_loss(logits[device], table[:, drawn[device]])
        (gradient,) = torch.autograd.grad(loss, w, retain_graph=True)
        assert_allclose(rows[device, :-1], gradient.numpy().ravel(), rtol=2e-4, atol=2e-6)
        # The place of a digit is public, so its probability is not part of the loss.
        expected = float(loss.detach()) - math.log(schedule.label_form.places)
        scaled = LOSS_SCALE * schedule.strength * min(expected, LOSS_LIMIT)
        assert rows[device, -1] == pytest.approx(scaled, rel=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_finite_differences(form: str) -> None:
    schedule = schedule_of(protect="none", **FORMS[form])
    drawn = values(schedule)
    encoder = encoder_of(features("dense"), drawn, schedule)
    start = 0.2 * randomness(3).normal(size=encoder.weights.shape)
    likelihood = schedule.label_form.table(schedule.strict.label_epsilon)
    train = np.flatnonzero(drawn != NO_LABEL)

    def loss(weights: np.ndarray) -> np.ndarray:
        encoder.weights = weights
        chances = np.exp(encoder.logits()[train])
        chances /= chances.sum(axis=1, keepdims=True)
        observed: np.ndarray = -np.log((chances * likelihood[:, drawn[train]].T).sum(axis=1))
        return observed

    encoder.weights = start
    rows = encoder.update(each=True)[train]
    for direction in randomness(5).normal(size=(6, *start.shape)):
        step = 1e-5
        slope = (loss(start + step * direction) - loss(start - step * direction)) / (2 * step)
        assert_allclose(rows[:, :-1] @ direction.ravel(), slope, rtol=1e-5, atol=1e-8)


def test_sparse_and_dense_rows_agree() -> None:
    schedule = schedule_of()
    dense = features("sparse").toarray()
    both = [encoder_of(rows, values(schedule), schedule) for rows in (features("sparse"), dense)]
    for encoder in both:
        encoder.learn_counts(randomness(4).uniform(0, 30, WIDTH))
        encoder.weights = randomness(3).normal(size=encoder.weights.shape)
    one, other = (encoder.update(each=True) for encoder in both)
    assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    assert_allclose(both[0].counts(each=True), both[1].counts(each=True), rtol=1e-6)


def test_a_huge_loss_is_cut_off() -> None:
    schedule = schedule_of(protect="none", classes=2, label_epsilon=600.0)
    encoder = encoder_of(np.eye(2, dtype=np.float32), [0, 1], schedule)
    encoder.weights = np.array([[-900.0, 900.0], [900.0, -900.0], [0, 0]])
    rows = encoder.update(each=True)
    assert np.isfinite(rows).all()
    assert_allclose(rows[:, -1], LOSS_SCALE * LOSS_LIMIT)


# Clipping.


def difficult() -> dict[str, Any]:
    """Features that clipping must survive."""
    rng = randomness(7)
    words = (rng.random((12, 40)) < 0.2).astype(np.float32)
    spread = np.float32(10.0) ** rng.integers(-12, 13, (12, 9))
    return {
        "sparse": csr_array(words),
        "dense": rng.random((12, 9)).astype(np.float32),
        "signed": rng.normal(size=(12, 9)).astype(np.float32),
        "offset": (50 + rng.normal(size=(12, 9))).astype(np.float32),
        "zero rows": np.zeros((12, 9), np.float32),
        "no stored number": csr_array((12, 9), dtype=np.float32),
        "many sizes": (spread * rng.choice([-1, 1], (12, 9))).astype(np.float32),
        "huge": (1e37 * rng.normal(size=(12, 9))).astype(np.float32),
        "huge, sparse": csr_array((1e37 * words).astype(np.float32)),
        "tiny": np.full((12, 1000), 2.6e-23, np.float32),
        "tiny, sparse": csr_array(np.full((12, 1000), 2.6e-23, np.float32)),
        "below normal": np.full((12, 50), 1e-42, np.float32),
        "one feature": rng.normal(size=(12, 1)).astype(np.float32),
        "more features than devices": csr_array((rng.random((12, 700)) < 0.05).astype(np.float32)),
    }


@pytest.mark.parametrize("fraction_bits", [None, 15])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", list(difficult()))
def test_no_rounded_vector_is_longer_than_the_noise_assumes(
    name: str, signed: bool, fraction_bits: int | None
) -> None:
    """In whole numbers of the fixed point, exactly; 15 bits make rounding matter."""
    schedule = schedule_of(devices=12, training=12, signed=signed, fraction_bits=fraction_bits)
    rng = randomness(8)
    drawn = rng.integers(0, 4, 12)
    encoder = encoder_of(difficult()[name], drawn, schedule)
    counted = encoder.counts(each=True)
    assert max(squares(schedule, counted)) <= square(schedule[COUNTS].sensitivity.norm)
    encoder.learn_counts(rounding(schedule)(counted).sum(axis=0))
    limit = square(schedule[ENCODER].sensitivity.norm)
    for size in (0.0, 1.0, 1000.0):
        encoder.weights = size * rng.normal(size=encoder.weights.shape)
        vectors = encoder.update(each=True)
        assert np.isfinite(vectors).all()
        assert max(squares(schedule, vectors)) <= limit


def test_without_the_margin_rounding_would_exceed_the_norm() -> None:
    """The broken twin: clipped to the norm itself, some rounded vectors are longer."""
    schedule = schedule_of(devices=12, training=12, fraction_bits=15)
    rows = randomness(1).random((12, 700)).astype(np.float32)
    encoder = encoder_of(rows, randomness(2).integers(0, 4, 12), schedule)
    norm = schedule[ENCODER].sensitivity.norm
    vectors = encoder.update(each=True)
    longer = vectors * (norm / np.linalg.norm(vectors, axis=1))[:, None]
    assert max(squares(schedule, longer)) > square(norm)
    assert max(squares(schedule, vectors)) > square(schedule[ENCODER].limit(encoder.width))


def test_long_gradients_get_the_limit_and_short_ones_stay() -> None:
    drawn = values(schedule_of())
    free, clipped = (
        encoder_of(features("dense"), drawn, schedule_of(protect=protect))
        for protect in ("none", "noise")
    )
    weights = 3 * randomness(3).normal(size=free.weights.shape)
    free.weights = clipped.weights = weights
    before, after = free.update(each=True), clipped.update(each=True)
    limit = schedule_of()[ENCODER].limit(free.width)
    lengths = np.linalg.norm(before, axis=1)
    long = lengths > limit
    assert long.any()
    assert (lengths[~long] > 0).any()
    assert_array_equal(after[~long], before[~long])
    assert_allclose(after[long], before[long] * (limit / lengths[long])[:, None], rtol=1e-9)


def test_labels_too_weak_for_the_fixed_point_are_refused() -> None:
    schedule = schedule_of(classes=1000, label_epsilon=1e-4, mechanism="krr", clip=0.05)
    with pytest.raises(UsageError, match=r"`label_epsilon=0.0001` for 1,000 classes"):
        schedule[ENCODER].limit(1000 * 10**6)


# Sums.


def divisions(devices: int) -> Iterator[list[np.ndarray]]:
    """Ways to spread devices over shards; an empty shard is among them."""
    everyone = np.arange(devices)
    yield [everyone]
    yield [everyone[:0], everyone[: devices // 3], everyone[devices // 3 :]]
    yield [everyone[start::7] for start in range(7)]
    yield [everyone[device : device + 1] for device in everyone]


@pytest.mark.parametrize("form", ["krr", "digits"])
@pytest.mark.parametrize(("kind", "signed"), [("sparse", False), ("dense", True)])
def test_any_division_into_shards_gives_the_same_bits(kind: str, signed: bool, form: str) -> None:
    """Counts, then three steps: the fused sum is that of each device's rounded vector."""
    devices = 40 if kind == "sparse" else 300  # dense rows are added in blocks
    schedule = schedule_of(signed=signed, **FORMS[form])
    all_rows = features(kind, signed=signed, devices=devices)
    drawn, rounded = values(schedule, devices), rounding(schedule)
    whole = encoder_of(all_rows, drawn, schedule)
    several = [
        [(some, encoder_of(all_rows[some], drawn[some], schedule)) for some in shards]
        for shards in divisions(devices)
        if len(shards) < 50  # a shard for each of 300 devices takes long
    ]
    for step in range(4):
        vectors = whole.counts(each=True) if step == 0 else whole.update(each=True)
        expected = rounded(vectors).sum(axis=0)
        everyone = whole.logits()
        for shards in several:
            sums = [
                encoder.counts(each=False) if step == 0 else encoder.update(each=False)
                for _, encoder in shards
            ]
            assert_array_equal(np.sum(sums, axis=0), expected)
            for some, encoder in shards:
                assert_array_equal(encoder.logits(), everyone[some])
        for encoder in [whole, *(encoder for shards in several for _, encoder in shards)]:
            if step == 0:
                encoder.learn_counts(expected)
            else:
                encoder.learn(expected, step - 1)
    assert np.abs(whole.weights).max() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_products_do_not_depend_on_other_rows(kind: str) -> None:
    rows = features(kind, devices=500, width=37)
    table = randomness(2).normal(size=(37, 6))
    whole = row_products(rows, table)
    dense = rows.toarray() if kind == "sparse" else rows
    assert_allclose(whole, dense.astype(np.float64) @ table, rtol=1e-12, atol=1e-12)
    for some in (slice(0, 1), slice(17, 18), slice(3, 260), slice(0, 0)):
        assert_array_equal(row_products(rows[some], table), whole[some])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hosted", [0, 4])
def test_a_shard_without_training_devices_adds_zeros(kind: str, hosted: int) -> None:
    schedule = schedule_of()
    encoder = encoder_of(features(kind)[:hosted], np.full(hosted, NO_LABEL), schedule)
    assert_array_equal(encoder.counts(each=False), np.zeros(WIDTH))
    assert_array_equal(encoder.counts(each=True), np.zeros((hosted, WIDTH)))
    encoder.learn_counts(np.ones(WIDTH))
    assert_array_equal(encoder.update(each=False), np.zeros(encoder.width))
    assert_array_equal(encoder.update(each=True), np.zeros((hosted, encoder.width)))
    assert encoder.logits().shape == (hosted, 4)


def test_nobody_trains() -> None:
    """The number of training devices is 0: steps divide by nothing that is 0."""
    schedule = schedule_of(training=0)
    encoder = encoder_of(features("dense"), np.full(DEVICES, NO_LABEL), schedule)
    encoder.learn(np.ones(encoder.width), 0)
    assert np.isfinite(encoder.weights).all()
    assert math.isfinite(encoder.mean_loss(np.ones(encoder.width)))


def test_rows_have_norm_one_or_are_zero() -> None:
    for kind in KINDS:
        rows = unit_rows(features(kind))
        norms = np.linalg.norm(rows.toarray() if kind == "sparse" else rows, axis=1)
        assert norms[3] == 0
        assert_allclose(np.delete(norms, 3), 1, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_whose_squares_do_not_fit_have_norm_one_too(kind: str) -> None:
    """And the other rows have the same bits as without them."""
    sizes = np.array([1.0, 1e-42, 1e-25, 1e19, 1e37, 1.0], np.float32)
    rows = randomness(1).uniform(0.5, 1, (6, 9)).astype(np.float32)
    scaled = rows * sizes[:, None]
    both = unit_rows(csr_array(scaled) if kind == "sparse" else scaled)
    ordinary = unit_rows(csr_array(rows) if kind == "sparse" else rows)
    if kind == "sparse":
        both, ordinary = both.toarray(), ordinary.toarray()
    assert_allclose(np.linalg.norm(both.astype(np.float64), axis=1), 1, rtol=1e-6)
    assert_array_equal(both[[0, 5]], ordinary[[0, 5]])
    assert_allclose(both[2:5], ordinary[2:5], rtol=1e-5)  # numbers near 1e-42 have few digits


@pytest.mark.parametrize("kind", KINDS)
def test_negative_numbers_become_zero_where_rows_are_not_signed(kind: str) -> None:
    rows = features(kind, signed=True)
    dense = rows.toarray() if kind == "sparse" else rows
    expected = unit_rows(np.maximum(dense, 0))
    made = FeatureRows(rows, np.ones(DEVICES, np.bool_), nonnegative=True).all
    assert_allclose(made.toarray() if kind == "sparse" else made, expected, rtol=1e-6)


# Counts, weights of features, steps.


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_sizes_of_features(kind: str, signed: bool) -> None:
    schedule = schedule_of(signed=signed)
    drawn = values(schedule)
    encoder = encoder_of(features(kind, signed=signed), drawn, schedule)
    x = np.abs(plain_rows(kind, schedule, np.ones(WIDTH))[:, :-1])
    x[drawn == NO_LABEL] = 0
    assert_allclose(encoder.counts(each=True), x, rtol=1e-6, atol=1e-9)
    assert_allclose(encoder.counts(each=False), x.sum(axis=0), rtol=1e-6)


def test_rare_features_count_more_but_not_those_lost_in_noise() -> None:
    total = np.array([-50.0, 0.0, 0.5, 20.0, 400.0])
    rows = np.ones((3, 5), np.float32)
    for protect in ("noise", "none"):
        schedule = schedule_of(protect=protect)
        encoder = encoder_of(rows, [0, 1, 2], schedule)
        encoder.learn_counts(total)
        floor = 1.0 if protect == "none" else RARE * present(schedule[COUNTS].noise()).total
        expected = [max(count, floor) ** -DAMPING for count in total]
        assert_allclose(encoder.feature_weights, expected, rtol=1e-12)
        weighted = encoder.rows[0] / np.array(expected)
        assert_allclose(weighted, weighted[0] * np.ones(5), rtol=1e-5)
        assert np.linalg.norm(encoder.rows[0]) == pytest.approx(1, rel=1e-6)
    assert RARE * present(schedule_of()[COUNTS].noise()).total > 1


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"signed": True},
        {"label_epsilon": 1.0, "participation": "labelled"},
        {"feature_epsilon": 1.0, "training": 37, "participation": "labelled"},
        {"training": 10**6, "devices": 2 * 10**6},
        {"protect": "none"},
        {"encoder_epochs": 3},
    ],
)
def test_steps_follow_from_public_numbers(settings: dict[str, Any]) -> None:
    """Gradient descent with momentum, written out; the rate is a function of the schedule."""
    schedule = schedule_of(**settings)
    encoder = encoder_of(features("dense"), values(schedule), schedule)
    change = 2.0 if settings.get("signed") else math.sqrt(2)
    longest = min(LONGEST, RATE * schedule.whole_mu * schedule.training / change)
    length = longest * schedule.strength
    epochs = schedule.strict.encoder_epochs
    falling = [1 - step / epochs for step in range(epochs)]
    weights = np.zeros_like(encoder.weights)
    velocity = np.zeros_like(encoder.weights)
    for step in range(epochs):
        total = randomness(step).normal(size=encoder.width)
        encoder.learn(total, step)
        velocity = MOMENTUM * velocity + total[:-1].reshape(weights.shape) / schedule.training
        weights = weights - length * falling[step] / sum(falling) * (1 - MOMENTUM) * velocity
        loss = total[-1] / LOSS_SCALE / schedule.strength / schedule.training
        assert encoder.mean_loss(total) == pytest.approx(loss, rel=1e-12)
    assert_allclose(encoder.weights, weights, rtol=1e-10, atol=1e-15)
    # A gradient that stays the same leads as far as the length says, less what is still to come.
    assert sum(falling) == pytest.approx(schedule.total_falling)


def test_only_the_largest_federations_reach_the_longest_step() -> None:
    assert RATE * schedule_of().whole_mu * 500 < LONGEST
    large = schedule_of(training=10**6, devices=2 * 10**6)
    assert RATE * large.whole_mu * 10**6 / math.sqrt(2) > LONGEST


def test_a_state_goes_on_where_it_was() -> None:
    schedule = schedule_of()
    drawn = values(schedule)
    one, other = (encoder_of(features("sparse"), drawn, schedule) for _ in range(2))
    one.learn_counts(one.counts(each=False))
    for step in range(5):
        if step == 2:
            other.load_state_dict({name: array.copy() for name, array in one.state_dict().items()})
        for encoder in (one, other)[: 1 + (step >= 2)]:
            encoder.learn(encoder.update(each=False), step)
    assert_array_equal(other.weights, one.weights)
    assert_array_equal(other.logits(), one.logits())
    before = one.weights.copy()
    other.weights += 1  # a loaded state shares no memory
    assert_array_equal(one.weights, before)


def test_it_learns_what_features_tell() -> None:
    """Without noise but with randomized labels: classes that words determine are recovered."""
    rng = randomness(3)
    schedule = schedule_of(protect="none", devices=3000, training=2000, classes=4)
    truth = rng.integers(0, 4, 3000)
    words = rng.random((3000, 24)) < np.where(np.arange(24) % 4 == truth[:, None], 0.4, 0.1)
    wrong = rng.random(3000) > schedule.strength + (1 - schedule.strength) / 4
    drawn = np.where(wrong, (truth + rng.integers(1, 4, 3000)) % 4, truth)
    drawn[2000:] = NO_LABEL
    encoder = encoder_of(csr_array(words.astype(np.float32)), drawn, schedule)
    encoder.learn_counts(encoder.counts(each=False))
    for step in range(16):
        encoder.learn(encoder.update(each=False), step)
    right = encoder.logits().argmax(axis=1) == truth
    best = np.stack([words[:, label::4].sum(axis=1) for label in range(4)], axis=1)
    bayes = (best.argmax(axis=1) == truth)[2000:].mean()
    assert right[2000:].mean() > bayes - 0.05 > 0.6
