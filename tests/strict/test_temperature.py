"""The temperature: confidence is matched with the accuracy that the model selection found."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lumos.strict.classify.evidence import Selection, choose_scale, confidence_vectors
from lumos.strict.classify.stages import TEMPERED

DEVICES, CLASSES = 20_000, 4


def world(wrong: float) -> tuple[np.ndarray, float]:
    """Logits that are `wrong` times too large, and how often their best class is right."""
    randomness = np.random.default_rng(0)
    logits = 2 * randomness.standard_normal((DEVICES, CLASSES))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (chances.cumsum(axis=1) > randomness.random((DEVICES, 1))).argmax(axis=1)
    return wrong * logits, float((logits.argmax(axis=1) == labels).mean())


def selected(accuracy: float, error: float) -> Selection:
    return Selection(1, (accuracy, error), (accuracy, error))


def test_confidence_is_the_largest_probability() -> None:
    logits = np.random.default_rng(1).standard_normal((30, 5)) * 3
    rows = np.arange(0, 30, 2)
    vectors = confidence_vectors(logits, TEMPERED, rows)
    for column, scale in enumerate(TEMPERED):
        chances = np.exp(scale * logits)
        chances /= chances.sum(axis=1, keepdims=True)
        assert_allclose(vectors[:, column], chances[rows].max(axis=1), rtol=1e-12)


@pytest.mark.parametrize("scale", TEMPERED)
def test_the_right_temperature_is_found(scale: float) -> None:
    """Logits that are too large by 1/scale are multiplied by scale, under noise too."""
    logits, accuracy = world(1 / scale)
    total = confidence_vectors(logits, TEMPERED, np.arange(DEVICES)).sum(axis=0)
    noisy = total + 25 * np.random.default_rng(2).standard_normal(len(total))
    assert choose_scale(noisy, TEMPERED, selected(accuracy, 0.004), DEVICES, 25.0) == scale


def test_one_stays_where_the_selection_cannot_tell() -> None:
    logits, accuracy = world(1.4)
    total = confidence_vectors(logits, TEMPERED, np.arange(DEVICES)).sum(axis=0)
    assert choose_scale(total, TEMPERED, selected(accuracy, 0.2), DEVICES, 0.0) == 1.0
    assert choose_scale(total, TEMPERED, selected(accuracy, 0.001), DEVICES, 0.0) == 2**-0.5


def test_an_accuracy_that_nobody_knows_changes_nothing() -> None:
    assert choose_scale(np.zeros(len(TEMPERED)), TEMPERED, Selection.empty(), 0, 1.0) == 1.0
