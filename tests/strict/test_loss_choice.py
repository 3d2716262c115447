"""Scales chosen by losses: the one at which probabilities are those of the labels."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.strict.classifying import DIGITS, labels_of, schedule_of

from lumos.strict.classify.evidence import loss_vectors
from lumos.strict.classify.stages import SCALES, TEMPERED, ClassifySchedule

DEVICES = 6000


def randomness(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def softmax(logits: np.ndarray) -> np.ndarray:
    chances: np.ndarray = np.exp(logits - logits.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True)


def drawn(rng: np.random.Generator, chances: np.ndarray) -> np.ndarray:
    """One value for each row of probabilities."""
    which: np.ndarray = (rng.random((len(chances), 1)) > chances.cumsum(axis=1)).sum(axis=1)
    return np.minimum(which, chances.shape[1] - 1)


def world(schedule: ClassifySchedule) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose probabilities are true, and labels drawn by them and then randomized."""
    rng = randomness(1)
    logits = rng.normal(0, 1.5, (DEVICES, schedule.classes))
    classes = drawn(rng, softmax(logits))
    table = schedule.label_form.table(schedule.strict.label_epsilon)
    return logits, drawn(rng, table[classes])


@pytest.mark.parametrize("settings", [{}, {"label_epsilon": 1.5}, DIGITS])
@pytest.mark.parametrize("wrong", [1 / 4, 1.0, 2.0, 16.0])
def test_the_calibrated_scale_has_the_least_loss(settings: dict[str, Any], wrong: float) -> None:
    schedule = schedule_of(**settings)
    logits, values = world(schedule)
    labels = labels_of(schedule, values)
    vectors = loss_vectors(wrong * logits, SCALES, labels, np.arange(DEVICES), math.inf)
    chosen = SCALES[int(np.argmin(vectors.sum(axis=0)))]
    assert chosen == min(SCALES, key=lambda scale: abs(math.log2(scale * wrong)))
    # Clipping shortens losses of confident errors most, so it favours larger scales: by one step
    # where labels are randomized, by two where true labels meet logits that are far too large.
    clipped = loss_vectors(wrong * logits, SCALES, labels, np.arange(DEVICES), 3.0)
    kept = SCALES[int(np.argmin(clipped.sum(axis=0)))]
    exact = math.isinf(schedule.strict.label_epsilon)
    assert chosen <= kept <= (4 if exact else 2) * chosen


@pytest.mark.parametrize("settings", [{}, DIGITS])
def test_losses_are_those_of_the_randomized_label_above_no_knowledge(
    settings: dict[str, Any],
) -> None:
    schedule = schedule_of(**settings)
    logits, values = world(schedule)
    logits, values = logits[:40], values[:40]
    rows = np.arange(0, 40, 3)
    vectors = loss_vectors(logits, SCALES, labels_of(schedule, values), rows, math.inf)
    table = schedule.label_form.table(schedule.strict.label_epsilon)
    for device, vector in zip(rows.tolist(), vectors, strict=True):
        observed = table[:, values[device]]
        expected = [
            math.log(observed.mean())
            - math.log(softmax(scale * logits[device : device + 1])[0] @ observed)
            for scale in SCALES
        ]
        assert_allclose(vector, expected, rtol=1e-9, atol=1e-12)


def test_nobody_validates() -> None:
    schedule = schedule_of()
    empty = np.empty(0, np.int64)
    vectors = loss_vectors(np.ones((3, 4)), SCALES, labels_of(schedule, [-1] * 3), empty, 3.0)
    assert vectors.shape == (0, len(SCALES))


def test_scales_are_public_and_one_is_among_them() -> None:
    assert 1.0 in SCALES
    assert TEMPERED[0] == 1.0  # where nothing is clearly better
