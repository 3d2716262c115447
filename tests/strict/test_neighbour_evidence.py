"""Evidence of messages: the Pólya likelihood multiplied out, and matrices that assume nothing."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.strict.classifying import DIGITS, labels_of, rounding, schedule_of

from lumos.ldp.labels import LabelForm
from lumos.strict.classify import evidence as neighbour_evidence
from lumos.strict.classify.evidence import (
    CONCENTRATION,
    LEAST,
    MessageCounts,
    SimpleMatrix,
    shrunk_matrix,
)
from lumos.strict.classify.labels import NO_LABEL

DEVICES = 30


def randomness(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def received(alphabet: int, seed: int = 0) -> tuple[MessageCounts, list[list[int]]]:
    """Messages of one value each: their counts, and the values by receiver; device 0 got none."""
    rng = randomness(seed)
    receiver = np.sort(rng.integers(1, DEVICES, 4 * DEVICES))
    values = rng.integers(0, alphabet, len(receiver))
    counts = MessageCounts(np.eye(alphabet)[values], receiver, DEVICES)
    by_device = [values[receiver == device].tolist() for device in range(DEVICES)]
    return counts, by_device


def urn(values: list[int], chances: np.ndarray) -> float:
    """log P of a sequence of draws from a Pólya urn: every draw makes its value more likely."""
    log, seen = 0.0, np.zeros(len(chances))
    for value in values:
        log += math.log(
            (CONCENTRATION * chances[value] + seen[value]) / (CONCENTRATION + seen.sum())
        )
        seen[value] += 1
    return log


def centred(rows: np.ndarray) -> np.ndarray:
    return rows - rows.mean(axis=1, keepdims=True)


# Counts.


def test_counts_are_those_of_each_receiver() -> None:
    counts, by_device = received(5)
    for device, values in enumerate(by_device):
        assert_array_equal(counts.counts[device], np.bincount(values, minlength=5))
        assert counts.received[device] == len(values)
        assert_allclose(
            counts.damped(np.array([device]))[0],
            np.bincount(values, minlength=5) / (len(values) + 3),
        )


def test_a_message_that_names_several_values_counts_as_a_share_of_each() -> None:
    support = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], np.float64)
    counts = MessageCounts(support, np.array([0, 0, 0, 2]), 3)
    assert_allclose(counts.counts, np.array([[1.5, 0.5, 0, 0], [0] * 4, [0.25] * 4]))
    assert counts.received.tolist() == [3, 0, 1]  # a message that names nothing was received too


def test_nobody_received_anything() -> None:
    counts = MessageCounts(np.empty((0, 4)), np.empty(0, np.int64), 3)
    form = schedule_of().label_form
    assert not counts.counts.any()
    assert not counts.matrix_vectors(labels_of(schedule_of(), [0, 1, NO_LABEL]), np.arange(2)).any()
    assert_array_equal(counts.evidence(np.arange(1.0, 17.0), form), np.zeros((3, 4)))
    assert MessageCounts(np.empty((0, 4)), np.empty(0, np.int64), 0).counts.shape == (0, 4)


@pytest.mark.parametrize("at_a_time", [1, 5, 1 << 16])
def test_messages_read_in_parts_count_the_same(
    at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbour_evidence, "_MESSAGES", at_a_time)
    rng = randomness(3)
    receiver = np.sort(rng.integers(1, DEVICES - 2, 4 * DEVICES))  # some receive nothing
    bodies = rng.integers(0, 2, (len(receiver), 5)).astype(np.uint8)
    read: list[int] = []

    def names(part: np.ndarray) -> np.ndarray:
        read.append(len(part))
        return part.astype(np.float64)

    counts = MessageCounts.of_messages(bodies, names, receiver, DEVICES)
    whole = MessageCounts(bodies.astype(np.float64), receiver, DEVICES)
    assert_array_equal(counts.counts, whole.counts)
    assert_array_equal(counts.received, whole.received)
    assert sum(read) == len(receiver)
    assert max(read) <= max(at_a_time, int(whole.received.max()))


# Vectors.


@pytest.mark.parametrize("settings", [{}, DIGITS])
def test_a_device_adds_its_counts_in_the_row_of_its_randomized_label(
    settings: dict[str, Any],
) -> None:
    schedule = schedule_of(**settings)
    form = schedule.label_form
    counts, _ = received(form.alphabet)
    rng = randomness(1)
    values = np.where(rng.random(DEVICES) < 0.7, rng.integers(0, form.alphabet, DEVICES), NO_LABEL)
    rows = np.flatnonzero(values != NO_LABEL)
    vectors = counts.matrix_vectors(labels_of(schedule, values), rows)
    assert len(vectors) == len(rows)
    for device, vector in zip(rows, vectors, strict=True):
        by_row = vector.reshape(form.alphabet, form.alphabet)
        assert_array_equal(by_row[values[device]], counts.damped(np.array([device]))[0])
        assert not np.delete(by_row, values[device], axis=0).any()
    total = counts.matrix_sum(labels_of(schedule, values), rows, rounding(schedule))
    assert_array_equal(total, rounding(schedule)(vectors).sum(axis=0))
    sums = [rounding(schedule)(part).sum(axis=0) for part in np.array_split(vectors, 7)]
    assert_array_equal(np.sum(sums, axis=0), rounding(schedule)(vectors).sum(axis=0))


# Evidence.


@pytest.mark.parametrize("alphabet", [2, 4, 7])
def test_evidence_is_a_likelihood_multiplied_out(alphabet: int) -> None:
    form = LabelForm(alphabet, 1, alphabet)
    counts, by_device = received(alphabet)
    total = randomness(2).uniform(LEAST, 30, (alphabet, alphabet))
    chances = total / total.sum(axis=1, keepdims=True)
    expected = np.array([[urn(values, row) for row in chances] for values in by_device])
    assert_allclose(counts.evidence(total.ravel(), form), centred(expected), atol=1e-10)
    assert not counts.evidence(total.ravel(), form)[0].any()  # it received nothing


def test_the_order_of_messages_does_not_matter_and_repetition_says_less() -> None:
    chances = np.array([0.7, 0.2, 0.1])
    assert urn([0, 1, 0], chances) == pytest.approx(urn([1, 0, 0], chances))
    form = LabelForm(3, 1, 3)
    total = 100 * np.array([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]])

    def for_first(many: int) -> float:
        counts = MessageCounts(np.eye(3)[[0] * many], np.zeros(many, np.int64), 1)
        evidence = counts.evidence(total.ravel(), form)[0]
        return float(evidence[0] - evidence[1])

    gains = np.diff([for_first(many) for many in range(12)])
    assert (gains > 0).all()
    assert (np.diff(gains) < 0).all()
    assert gains[0] == pytest.approx(math.log(7))  # one message: Bayes


@pytest.mark.parametrize("alphabet", [3, 6])
def test_shares_of_messages_interpolate(alphabet: int) -> None:
    """Half a message twice is one message."""
    form = LabelForm(alphabet, 1, alphabet)
    total = randomness(3).uniform(1, 9, alphabet**2)
    pair = np.zeros((2, alphabet))
    pair[:, :2] = 1
    halves = MessageCounts(pair, np.zeros(2, np.int64), 1)
    whole = MessageCounts(np.eye(alphabet)[[0, 1]], np.zeros(2, np.int64), 1)
    assert_allclose(halves.evidence(total, form), whole.evidence(total, form), atol=1e-12)


def test_the_evidence_of_a_class_is_that_of_its_digits() -> None:
    schedule = schedule_of(**DIGITS)
    form = schedule.label_form
    assert form.places == 2
    counts, by_device = received(form.alphabet)
    total = randomness(4).uniform(LEAST, 30, (form.alphabet, form.alphabet))
    chances = total / total.sum(axis=1, keepdims=True)
    expected = np.zeros((DEVICES, form.size))
    for label in range(form.size):
        first, second = label % form.base, form.base + label // form.base
        for value in (first, second):
            expected[:, label] += [urn(values, chances[value]) for values in by_device]
    assert_allclose(counts.evidence(total.ravel(), form), centred(expected), atol=1e-9)


def test_propagated_labels_may_have_another_alphabet_than_labels() -> None:
    form = LabelForm(4, 1, 4)
    counts, by_device = received(9)
    total = randomness(5).uniform(LEAST, 30, (4, 9))
    chances = total / total.sum(axis=1, keepdims=True)
    expected = np.array([[urn(values, row) for row in chances] for values in by_device])
    assert_allclose(counts.evidence(total.ravel(), form), centred(expected), atol=1e-10)


def test_noise_below_zero_is_no_probability() -> None:
    for seed in range(20):
        total = randomness(seed).normal(0, 100, (4, 4))
        assert (total < 0).any()
        matrix = shrunk_matrix(total, 100.0)
        assert np.isfinite(matrix).all()
        assert (matrix > 0).all()


# Matrices of few devices are shrunk.


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("devices", [10, 300, 100_000])
def test_a_matrix_keeps_what_noise_does_not_explain(shift: int, devices: int) -> None:
    """Of many devices the whole matrix, of few the diagonal alone, of nothing nothing."""
    chances = 0.1 + 0.6 * np.roll(np.eye(4), shift, axis=1)
    errors = []
    for seed in range(30):
        total = devices / 4 * chances + randomness(seed).normal(0, 2, (4, 4))
        matrix = shrunk_matrix(total, 2.0)
        rows = matrix / matrix.sum(axis=1, keepdims=True)
        raw = np.maximum(total, LEAST)
        raw /= raw.sum(axis=1, keepdims=True)
        errors.append([float(((each - chances) ** 2).sum()) for each in (rows, raw)])
    shrunk, floored = np.mean(errors, axis=0)
    assert shrunk < (1.1 if devices > 10 else 1.5) * floored
    if devices == 100_000:
        assert shrunk < 1e-4
    if devices == 10:
        flat = float(((0.25 - chances) ** 2).sum())
        assert shrunk < 1.5 * flat  # raw noise would say anything
    if devices == 300 and not shift:
        assert shrunk < 0.5 * floored  # one parameter is enough


def test_noise_alone_gives_little_evidence() -> None:
    counts, _ = received(4)
    shrunk, raw = [], []
    for seed in range(30):
        total = 3 + randomness(seed).normal(0, 2, (4, 4))
        form = LabelForm(4, 1, 4)
        shrunk.append(np.abs(counts.evidence(shrunk_matrix(total, 2.0), form)).mean())
        raw.append(np.abs(counts.evidence(np.maximum(total, LEAST), form)).mean())
    assert np.mean(shrunk) < 0.35 * np.mean(raw)


def test_homophily_of_messages_from_further_away_is_expected() -> None:
    """Where a sum of few devices tells nothing, h is what it was expected to be."""
    total = np.full((4, 4), 1.0) + 0.3 * np.eye(4)
    assert SimpleMatrix.of(total, 2.0).same == pytest.approx(0, abs=1e-9)
    assert SimpleMatrix.of(total, 2.0, 0.2).same == pytest.approx(0.2)
    many = 1e4 * (0.1 + 0.6 * np.eye(4))
    assert SimpleMatrix.of(many, 1.0, 0.2).same == pytest.approx(0.6, abs=0.01)


# Homophily is learnt, not assumed.


def neighbourhood(kind: str, devices: int, degree: int) -> tuple[np.ndarray, MessageCounts]:
    """Classes and what was received, where neighbours have the same class, the next, or any."""
    rng = randomness(7)
    classes = rng.integers(0, 4, devices)
    receiver = np.repeat(np.arange(devices), degree)
    shift = {"same": 0, "next": 1, "any": 0}[kind]
    sent = (classes[receiver] + shift) % 4
    stray = rng.random(len(sent)) < (1.0 if kind == "any" else 0.3)
    sent = np.where(stray, rng.integers(0, 4, len(sent)), sent)
    return classes, MessageCounts(np.eye(4)[sent], receiver, devices)


@pytest.mark.parametrize("kind", ["same", "next", "any"])
def test_matrices_learn_what_neighbours_are_like(kind: str) -> None:
    devices, degree = 4000, 5
    schedule = schedule_of(devices=devices)
    classes, counts = neighbourhood(kind, devices, degree)
    rng = randomness(8)
    kept = rng.random(devices) < schedule.strength
    drawn = np.where(kept, classes, rng.integers(0, 4, devices))
    labels = labels_of(schedule, drawn)
    total = counts.matrix_vectors(labels, np.arange(devices)).sum(axis=0)
    evidence = counts.evidence(total, schedule.label_form)
    right = float((evidence.argmax(axis=1) == classes).mean())
    table = total.reshape(4, 4) / total.reshape(4, 4).sum(axis=1, keepdims=True)
    if kind == "any":
        # Rows are flat up to the error of 5,000 messages each, and evidence says nothing.
        assert np.abs(table - 0.25).max() < 5 * math.sqrt(0.25 * 0.75 / (devices / 4 * degree))
        assert np.abs(evidence).max() < 0.5
        assert abs(right - 0.25) < 0.05
    else:
        assert (table.argmax(axis=1) == (np.arange(4) + (kind == "next")) % 4).all()
        assert right > 0.85


def test_flat_matrices_give_no_evidence_at_all() -> None:
    counts, _ = received(4)
    usual = np.tile([9.0, 3.0, 2.0, 7.0], 4)  # the same for every class, whatever it is
    assert_allclose(counts.evidence(usual, LabelForm(4, 1, 4)), 0, atol=1e-12)
