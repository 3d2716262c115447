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
    {"epsilon": 1.0, "label_epsilon": 3.0},
    {"epsilon": 2.0, "label_epsilon": math.inf},
    DIGITS,
    {**DIGITS, "epsilon": 1.0, "label_epsilon": 4.0},
    {**DIGITS, "label_epsilon": math.inf},
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
    for values, form in (
        (made.values, schedule.label_form),
        (made.randomized_labels, schedule.randomized_form),
    ):
        assert_array_equal(values[~takes_part], NO_LABEL)
        assert (values[takes_part] >= 0).all()
        assert (values < form.alphabet).all()
    strict = schedule.strict
    level = strict.epsilon if math.isinf(strict.sums_epsilon) else strict.sums_epsilon
    assert_array_equal(made.paid, np.where(takes_part, level, 0.0))


@pytest.mark.parametrize("settings", LEVELS)
def test_values_and_randomized_labels_follow_their_tables(settings: dict[str, Any]) -> None:
    """Both levels are randomized response of their own ε, five standard errors wide."""
    schedule = schedule_of(**settings)
    made, labels, takes_part = drawn(schedule)
    strict = schedule.strict
    for values, form, epsilon in (
        (made.values, schedule.label_form, strict.sums_epsilon),
        (made.randomized_labels, schedule.randomized_form, strict.epsilon),
    ):
        agreed = form.agrees(labels[takes_part], values[takes_part])
        truthful = form.other(epsilon) / 2**32 + form.strength(epsilon)
        width = 5 * math.sqrt(truthful * (1 - truthful) / takes_part.sum())
        assert abs(agreed.mean() - truthful) <= width + 1e-12
    assert_array_equal(
        made.likelihood,
        schedule.label_form.table(strict.sums_epsilon) * schedule.label_form.places,
    )


def test_one_level_is_one_draw() -> None:
    """The randomized label is the value that sums use, so both together have one ε."""
    for settings in ({}, DIGITS, {"epsilon": 2.0, "label_epsilon": 2.0}):
        made, _, _ = drawn(schedule_of(**settings))
        assert_array_equal(made.values, made.randomized_labels)


def test_with_two_levels_the_randomized_label_is_a_degradation() -> None:
    """Given the value of the sums, the randomized label tells nothing more of the label."""
    schedule = schedule_of(epsilon=1.0, label_epsilon=3.0, classes=2)
    made, labels, takes_part = drawn(schedule)
    right = (made.values == labels)[takes_part]
    same = (made.values == made.randomized_labels)[takes_part]
    kept = [float(same[right == agreed].mean()) for agreed in (True, False)]
    form = schedule.randomized_form
    expected = 0.5 + 0.5 * form.strength(1.0) / form.strength(3.0)
    for share, many in zip(kept, (right.sum(), (~right).sum()), strict=True):
        assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / many)


def test_at_infinity_sums_use_the_label_itself() -> None:
    for settings in LEVELS:
        if math.isinf(settings.get("label_epsilon", 0.0)):
            schedule = schedule_of(**settings)
            made, labels, takes_part = drawn(schedule)
            assert schedule.label_form.places == 1
            assert_array_equal(made.values[takes_part], labels[takes_part])
            assert (made.randomized_labels[takes_part] != labels[takes_part]).any()


@pytest.mark.parametrize("settings", [{}, DIGITS])
def test_any_division_into_shards_draws_the_same(settings: dict[str, Any]) -> None:
    schedule = schedule_of(**settings)
    whole, labels, takes_part = drawn(schedule)
    for shard in shards_of(7):
        here = shard.devices
        part = draw_labels(shard, labels[here], schedule, None, takes_part[here])
        assert_array_equal(part.values, whole.values[here])
        assert_array_equal(part.randomized_labels, whole.randomized_labels[here])


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
    likelihood = torch.from_numpy(form.table(schedule.strict.sums_epsilon) * form.places)
    chances = torch.softmax(z, dim=1) * likelihood[:, values[rows]].T
    expected = -torch.log(chances.sum(dim=1))
    (gradient,) = torch.autograd.grad(expected.sum(), z)
    assert_allclose(loss, expected.detach().numpy(), rtol=1e-12)
    assert_allclose(slopes, gradient.numpy(), rtol=1e-7, atol=1e-12)
    assert_allclose(slopes.sum(axis=1), 0, atol=1e-12)


def test_the_correction_makes_true_probabilities_optimal() -> None:
    """In expectation over the noise, the loss is least where probabilities are the true ones."""
    schedule = schedule_of(epsilon=1.0)
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
