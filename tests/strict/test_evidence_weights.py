"""Evidence weights: gradients against autograd and finite differences; planted weights are
recovered."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from tests.strict.classifying import DIGITS, labels_of, rounding, schedule_of

from lumos.strict.classify.encoder import LOSS_LIMIT, LOSS_SCALE
from lumos.strict.classify.evidence import EVIDENCE_WEIGHTS_RATE, EvidenceWeights
from lumos.strict.classify.stages import ClassifySchedule
from lumos.training.trainer import Adam

FORMS: list[dict[str, Any]] = [{}, DIGITS]
DEVICES = 40


def randomness(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def inputs(schedule: ClassifySchedule, kinds: int, devices: int = DEVICES) -> list[np.ndarray]:
    """Own logits, and evidence of each kind of message, less its mean."""
    rng = randomness(1)
    own, *evidence = rng.normal(0, 1.5, (1 + kinds, devices, schedule.classes))
    return [own, *(part - part.mean(axis=1, keepdims=True) for part in evidence)]


def evidence_weights_of(
    schedule: ClassifySchedule, kinds: int
) -> tuple[EvidenceWeights, list[np.ndarray], np.ndarray]:
    own, *evidence = inputs(schedule, kinds)
    start = np.concatenate([np.ones(1 + kinds), np.zeros(schedule.classes)])
    return (
        EvidenceWeights(own, evidence),
        [own, *evidence],
        start + 0.5 * randomness(2).normal(size=len(start)),
    )


@pytest.mark.parametrize("settings", FORMS)
@pytest.mark.parametrize("kinds", [1, 3, 4])
def test_gradients_are_autograds(settings: dict[str, Any], kinds: int) -> None:
    schedule = schedule_of(**settings)
    evidence_weights, parts, weights = evidence_weights_of(schedule, kinds)
    values = randomness(3).integers(0, schedule.label_form.alphabet, DEVICES)
    rows = np.arange(0, DEVICES, 3)
    updates = evidence_weights.update(weights, labels_of(schedule, values), rows, math.inf)
    vectors = dict(zip(rows.tolist(), updates, strict=True))
    likelihood = torch.from_numpy(
        schedule.label_form.table(schedule.strict.label_epsilon) * schedule.label_form.places
    )
    w = torch.tensor(weights, requires_grad=True)
    for device in range(DEVICES):
        logits = w[1 + kinds :]
        for number, part in enumerate(parts):
            row = part[device] - part[device].mean()
            logits = logits + w[number] * torch.from_numpy(row)
        assert_allclose(
            evidence_weights.logits(weights)[device], logits.detach().numpy(), rtol=1e-10
        )
        if device not in rows:
            continue
        loss = -torch.log(torch.softmax(logits, dim=0) @ likelihood[:, values[device]])
        (gradient,) = torch.autograd.grad(loss, w)
        assert_allclose(vectors[device][:-1], gradient.numpy(), rtol=1e-8, atol=1e-12)
        scaled = LOSS_SCALE * min(float(loss.detach()), LOSS_LIMIT)
        assert vectors[device][-1] == pytest.approx(scaled)


@pytest.mark.parametrize("settings", FORMS)
def test_gradients_are_finite_differences(settings: dict[str, Any]) -> None:
    schedule = schedule_of(**settings)
    evidence_weights, _, weights = evidence_weights_of(schedule, 2)
    values = randomness(3).integers(0, schedule.label_form.alphabet, DEVICES)
    labels, rows = labels_of(schedule, values), np.arange(DEVICES)
    table = schedule.label_form.table(schedule.strict.label_epsilon)

    def loss(at: np.ndarray) -> np.ndarray:
        chances = np.exp(evidence_weights.logits(at))
        chances /= chances.sum(axis=1, keepdims=True)
        observed: np.ndarray = -np.log((chances * table[:, values].T).sum(axis=1))
        return observed

    gradients = evidence_weights.update(weights, labels, rows, math.inf)[:, :-1]
    for direction in randomness(4).normal(size=(5, len(weights))):
        step = 1e-5 * direction
        slope = (loss(weights + step) - loss(weights - step)) / 2e-5
        assert_allclose(gradients @ direction, slope, rtol=1e-5, atol=1e-7)


def test_updates_are_clipped() -> None:
    schedule = schedule_of()
    evidence_weights, _, weights = evidence_weights_of(schedule, 3)
    labels = labels_of(schedule, randomness(3).integers(0, 4, DEVICES))
    rows = np.arange(DEVICES)
    free = evidence_weights.update(weights, labels, rows, math.inf)
    clipped = evidence_weights.update(weights, labels, rows, 0.3)
    factors = np.minimum(1, 0.3 / np.linalg.norm(free, axis=1))
    assert (factors < 1).any()
    assert (factors == 1).any()
    assert_allclose(clipped, free * factors[:, None], rtol=1e-12)


def test_any_division_into_shards_gives_the_same_bits() -> None:
    schedule = schedule_of()
    own, *evidence = inputs(schedule, 3)
    weights = np.concatenate([np.ones(4), np.zeros(4)])
    values = randomness(3).integers(0, 4, DEVICES)
    whole = EvidenceWeights(own, evidence).update(
        weights, labels_of(schedule, values), np.arange(40), 0.3
    )
    for parts in (1, 7, DEVICES):
        sums = []
        for some in np.array_split(np.arange(DEVICES), parts):
            part = EvidenceWeights(own[some], [each[some] for each in evidence])
            labels = labels_of(schedule, values[some])
            vectors = part.update(weights, labels, np.arange(len(some)), 0.3)
            assert_array_equal(vectors, whole[some])
            sums.append(rounding(schedule)(vectors).sum(axis=0))
        assert_array_equal(np.sum(sums, axis=0), rounding(schedule)(whole).sum(axis=0))


@pytest.mark.parametrize("settings", FORMS)
def test_planted_weights_are_recovered_without_noise(settings: dict[str, Any]) -> None:
    """Labels drawn by known weights, then randomized: the corrected loss finds the weights."""
    schedule = schedule_of(**settings)
    rng, devices, form = randomness(5), 8_000, schedule.label_form
    own, *evidence = inputs(schedule, 2, devices)
    bias = np.linspace(-0.5, 0.5, schedule.classes)
    planted = np.concatenate([[0.6, 1.3, 0.0], bias])
    evidence_weights = EvidenceWeights(own, evidence)
    chances = np.exp(evidence_weights.logits(planted))
    chances /= chances.sum(axis=1, keepdims=True)
    table = form.table(schedule.strict.label_epsilon)
    mixed = (chances @ table).cumsum(axis=1)
    values = np.minimum((rng.random((devices, 1)) > mixed).sum(axis=1), form.alphabet - 1)
    labels, rows = labels_of(schedule, values), np.arange(devices)
    start = np.concatenate([np.ones(3), np.zeros(schedule.classes)])
    adam = Adam(start, EVIDENCE_WEIGHTS_RATE)
    for _ in range(60):
        adam.step(
            evidence_weights.update(adam.weights, labels, rows, math.inf).sum(axis=0)[:-1] / devices
        )
    found = adam.weights.copy()
    found[3:] -= found[3:].mean()  # a bias that all classes have means nothing
    assert_allclose(found[:3], planted[:3], atol=0.15)
    assert np.corrcoef(found[3:], bias)[0, 1] > 0.9


def test_the_start_has_a_weight_for_each_input_and_a_bias_for_each_class() -> None:
    for kinds in range(4):
        given: dict[str, Any] = {"classes": 6, "propagated_labels": kinds}
        start = schedule_of(**given).start_weights()
        assert start.tolist() == [1.0, 1.0, *(0.7, 0.5, 0.4)[:kinds], *[0.0] * 6]
    few = schedule_of(classes=6, propagated_labels=2, participation="all").start_weights()
    assert few.tolist() == [1.0, 1.0, 0.7, 1.0, 0.5, *[0.0] * 6]  # predictions before the last


def test_noise_alone_hardly_moves_the_weights() -> None:
    """Adam makes steps of one size whatever the gradient is; beside known noise it must not."""
    schedule = schedule_of(training=50, validation=50)
    spread = schedule["evidence_weights"].spread() / schedule.validation
    start = schedule.start_weights()
    moved = []
    for epsilon in (1e-8, schedule.weights_noise):
        adam, rng = Adam(start, EVIDENCE_WEIGHTS_RATE, epsilon=epsilon), randomness(6)
        for _ in range(schedule["evidence_weights"].num_sums):
            adam.step(spread * rng.standard_normal(len(start)))
        moved.append(float(np.sqrt(((adam.weights - start) ** 2).mean())))
    assert moved[0] > 0.2  # the broken variant
    assert moved[1] < 0.1


def test_nobody_validates() -> None:
    schedule = schedule_of()
    evidence_weights, _, weights = evidence_weights_of(schedule, 1)
    labels = labels_of(schedule, np.full(DEVICES, -1))
    vectors = evidence_weights.update(weights, labels, np.empty(0, np.int64), 0.3)
    assert vectors.shape == (0, len(weights) + 1)
