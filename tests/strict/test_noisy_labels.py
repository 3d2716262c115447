"""Labels of a run: drawn once for those who need one, and losses that know their noise."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from tests.strict.classifying import DIGITS, labels_of, schedule_of

from lumos.device import Shard, cut
from lumos.graph import Graph
from lumos.strict.classify.labels import NO_LABEL, NoisyLabels, draw_labels, forward_slopes
from lumos.strict.classify.stages import ClassifySchedule

DEVICES = 6000
LEVELS: list[dict[str, Any]] = [
    {},
    {"label_epsilon": 1.0},
    DIGITS,
    {**DIGITS, "label_epsilon": 4.0},
]


def shards_of(many: int) -> list[Shard]:
    return cut(Graph.from_edges(np.empty((0, 2), np.int64), devices=DEVICES), many, seed=5)


def people(schedule: ClassifySchedule) -> tuple[np.ndarray, np.ndarray]:
    """True labels, and who trains or validates; others have a label too, or none."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, schedule.classes, DEVICES)
    takes_part = rng.random(DEVICES) < 0.8
    return np.where(takes_part | (rng.random(DEVICES) < 0.5), labels, NO_LABEL), takes_part


def drawn(schedule: ClassifySchedule) -> tuple[NoisyLabels, np.ndarray, np.ndarray]:
    labels, takes_part = people(schedule)
    return draw_labels(shards_of(1)[0], labels, schedule, None, takes_part), labels, takes_part


@pytest.mark.parametrize("settings", LEVELS)
def test_only_those_who_train_or_validate_have_a_value(settings: dict[str, Any]) -> None:
    schedule = schedule_of(**settings)
    made, _, takes_part = drawn(schedule)
    assert_array_equal(made.values[~takes_part], NO_LABEL)
    assert (made.values[takes_part] >= 0).all()
    assert (made.values < schedule.label_form.alphabet).all()


@pytest.mark.parametrize("settings", LEVELS)
def test_randomized_labels_follow_their_table(settings: dict[str, Any]) -> None:
    """Randomized response of their ε, five standard errors wide."""
    schedule = schedule_of(**settings)
    made, labels, takes_part = drawn(schedule)
    form, epsilon = schedule.label_form, schedule.strict.label_epsilon
    agreed = form.agrees(labels[takes_part], made.values[takes_part])
    truthful = form.other(epsilon) / 2**32 + form.strength(epsilon)
    width = 5 * math.sqrt(truthful * (1 - truthful) / takes_part.sum())
    assert abs(agreed.mean() - truthful) <= width + 1e-12
    assert_array_equal(made.likelihood, form.table(epsilon) * form.places)


@pytest.mark.parametrize("settings", [{}, DIGITS])
def test_any_division_into_shards_draws_the_same(settings: dict[str, Any]) -> None:
    schedule = schedule_of(**settings)
    whole, labels, takes_part = drawn(schedule)
    for shard in shards_of(7):
        here = shard.devices
        part = draw_labels(shard, labels[here], schedule, None, takes_part[here])
        assert_array_equal(part.values, whole.values[here])


@pytest.mark.parametrize("settings", LEVELS)
def test_agreement_is_where_the_likelihood_is_the_larger(settings: dict[str, Any]) -> None:
    schedule = schedule_of(**settings)
    form = schedule.label_form
    labels = labels_of(schedule, np.arange(form.alphabet))
    rows = np.arange(form.alphabet)
    least = labels.likelihood.min()
    for label in range(schedule.classes):
        agreed = labels.agrees(np.full(form.alphabet, label), rows)
        assert_array_equal(agreed, labels.likelihood[label] > least)


@pytest.mark.parametrize("settings", LEVELS)
def test_slopes_are_autograds(settings: dict[str, Any]) -> None:
    schedule = schedule_of(**settings)
    rng, form = np.random.default_rng(2), schedule.label_form
    values = rng.integers(0, form.alphabet, 50)
    labels = labels_of(schedule, values)
    rows = np.arange(0, 50, 2)
    logits = rng.normal(0, 3, (len(rows), schedule.classes))
    slopes, loss = labels.slopes(logits, rows)
    z = torch.tensor(logits, requires_grad=True)
    likelihood = torch.from_numpy(form.table(schedule.strict.label_epsilon) * form.places)
    chances = torch.softmax(z, dim=1) * likelihood[:, values[rows]].T
    expected = -torch.log(chances.sum(dim=1))
    (gradient,) = torch.autograd.grad(expected.sum(), z)
    assert_allclose(loss, expected.detach().numpy(), rtol=1e-12)
    assert_allclose(slopes, gradient.numpy(), rtol=1e-7, atol=1e-12)
    assert_allclose(slopes.sum(axis=1), 0, atol=1e-12)


def test_the_correction_makes_true_probabilities_optimal() -> None:
    """In expectation over the noise, the loss is least where probabilities are the true ones."""
    schedule = schedule_of(label_epsilon=1.0)
    table = schedule.label_form.table(1.0)
    truth = np.array([0.5, 0.3, 0.15, 0.05])
    logits = np.log(truth)[None, :]
    slope = sum(
        (truth @ table[:, value]) * forward_slopes(logits, table[None, :, value])[0]
        for value in range(4)
    )
    assert_allclose(slope, 0, atol=1e-12)


def test_extreme_logits_stay_finite() -> None:
    logits = np.array([[0.0, 1e6, -1e6, 3.0], [1e300, -1e300, 0.0, 0.0]])
    for likelihood in (np.eye(4)[[2, 1]], np.full((2, 4), 0.25)):
        slopes, loss = forward_slopes(logits, likelihood)
        assert np.isfinite(slopes).all()
        assert np.isfinite(loss).all()
        assert np.abs(slopes).max() <= 1
