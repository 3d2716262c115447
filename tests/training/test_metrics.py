"""Adam against torch's, scores against brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from lumos.paper.trainer import Weights
from lumos.paper.updates import SumLayout
from lumos.training.config import Config
from lumos.training.metrics import (
    accuracy,
    auc,
    average_precision,
    balanced_accuracy,
    calibration_error,
    confusion,
    device_scores,
    hits_at,
    link_auc,
    link_scores,
    macro_f1,
    pair_scores,
    per_class,
)
from lumos.training.split import EdgeSplit, Role
from lumos.training.trainer import Adam


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_adam_is_torchs(decay: float) -> None:
    rng = np.random.default_rng(0)
    start = rng.normal(size=40)
    mine = Adam(start, 0.05, decay)
    weights = torch.nn.Parameter(torch.from_numpy(start.copy()))
    theirs = torch.optim.Adam([weights], lr=0.05, weight_decay=decay)
    for step in range(60):
        gradient = rng.normal(size=40) * 10.0 ** rng.integers(-6, 4, 40) * (step % 7 != 0)
        mine.step(gradient)
        weights.grad = torch.from_numpy(gradient)
        theirs.step()
        assert_allclose(mine.weights, weights.detach().numpy(), rtol=1e-10, atol=1e-12)
    assert mine.steps == 60


def test_adam_leaves_the_weights_it_was_given() -> None:
    start = np.ones(3)
    adam = Adam(start, 0.1)
    before = adam.weights
    adam.step(np.ones(3))
    assert start.tolist() == [1, 1, 1]
    assert adam.weights is not before


scores = st.lists(st.integers(-4, 4), min_size=1, max_size=25)


@settings(deadline=None)
@given(scores, scores)
def test_auc_counts_pairs_and_half_of_ties(positive: list[int], negative: list[int]) -> None:
    pairs = [(one > other) + (one == other) / 2 for one in positive for other in negative]
    found = auc(np.array(positive, float), np.array(negative, float))
    assert found == pytest.approx(np.mean(pairs), abs=1e-12)


def test_auc_of_embeddings_is_that_of_their_products() -> None:
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(20, 4)).astype(np.float32)
    edges, non_neighbours = rng.integers(0, 20, (9, 2)), rng.integers(0, 20, (13, 2))
    up, down = (
        [float(np.dot(embeddings[u].astype(float), embeddings[v])) for u, v in pairs]
        for pairs in (edges, non_neighbours)
    )
    brute = np.mean([(one > other) + (one == other) / 2 for one in up for other in down])
    assert link_auc(embeddings, edges, non_neighbours) == pytest.approx(brute)


def test_accuracy_looks_at_one_role_only() -> None:
    logits = np.array([[1.0, 0], [0, 1], [1, 0], [0, 1]], np.float32)
    roles = np.array([Role.TEST, Role.TEST, Role.TRAIN, Role.NOBODY])
    labels = np.array([0, 0, 1, -1])
    assert accuracy(logits, labels, roles, Role.TEST) == 0.5
    assert accuracy(logits, labels, roles, Role.TRAIN) == 0.0


WIDE = Config.of(profile="paper", literal=True)
"""Settings with which gradients and statistics stand in a sum as they are."""


def test_the_best_weights_are_those_that_the_score_is_of() -> None:
    """Scores 1, 3, 2 of the weights before each step: the second epoch's starting weights win."""
    start = np.zeros(2)
    weights = Weights(Adam(start, 0.1), start, SumLayout(WIDE, 4, [len(start)]))
    before = []
    for epoch, score in enumerate((1.0, 3.0, 2.0), start=1):
        before.append(weights.optimizer.weights)
        total = np.array([1.0, -1.0, 6.0, 3.0, score * 4, 4.0])
        record = weights.learn(total, epoch, select=True)
        assert record == (epoch, 2.0, score)
    assert weights.best is before[1]
    assert (weights.best_epoch, weights.best_score) == (2, 3.0)


@pytest.mark.parametrize("select", [True, False])
def test_without_a_score_or_selection_the_last_weights_stand(select: bool) -> None:
    start = np.zeros(1)
    weights = Weights(Adam(start, 0.1), start, SumLayout(WIDE, 4, [len(start)]))
    for epoch in (1, 2):
        scored = 0.0 if select else 5.0
        weights.learn(np.array([1.0, 1.0, 1.0, scored, scored]), epoch, select=select)
    assert weights.best is weights.optimizer.weights
    assert weights.best_epoch == 2


def test_macro_f1_counts_every_class_alike() -> None:
    labels = np.array([0, 0, 0, 0, 1, 2])
    predicted = np.array([0, 0, 0, 1, 1, 0])
    # Class 0: 3 hits of 4 predicted and 4 true; class 1: 1 of 2 and 1; class 2: none.
    assert macro_f1(predicted, labels) == pytest.approx((6 / 8 + 2 / 3 + 0) / 3)
    assert macro_f1(labels, labels) == 1.0
    assert macro_f1(np.array([3]), np.array([1])) == 0.0  # one class predicted only, one true only


def test_macro_f1_against_precision_and_recall() -> None:
    randomness = np.random.default_rng(0)
    labels, predicted = randomness.integers(0, 5, (2, 400))
    scores = []
    for c in range(5):
        hits = ((labels == c) & (predicted == c)).sum()
        precision, recall = hits / (predicted == c).sum(), hits / (labels == c).sum()
        scores.append(2 * precision * recall / (precision + recall))
    assert macro_f1(predicted, labels) == pytest.approx(np.mean(scores))


def test_calibration_error_of_known_probabilities() -> None:
    """Two devices in three are right where all say 90 %: the error is 0.9 - 2/3."""
    logits = np.log(np.array([[0.9, 0.1]] * 3, np.float32))
    assert calibration_error(logits, np.array([0, 0, 1])) == pytest.approx(0.9 - 2 / 3, abs=1e-6)
    sure = np.array([[50.0, 0.0]] * 4, np.float32)
    assert calibration_error(sure, np.zeros(4, np.int64)) == pytest.approx(0.0, abs=1e-9)
    assert calibration_error(sure, np.ones(4, np.int64)) == pytest.approx(1.0, abs=1e-9)


def test_calibrated_logits_have_a_small_error() -> None:
    randomness = np.random.default_rng(1)
    logits = 2 * randomness.standard_normal((20_000, 4)).astype(np.float32)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (chances.cumsum(axis=1) > randomness.random((20_000, 1))).argmax(axis=1)
    assert calibration_error(logits, labels) < 0.02
    assert calibration_error(4 * logits, labels) > 0.1


labelled = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


@settings(deadline=None)
@given(labelled)
def test_class_scores_against_counting_by_hand(pairs: list[tuple[int, int]]) -> None:
    """scikit-learn's formulas written out, `zero_division=0`; classes without a device are 0."""
    labels, predicted = (np.array(side) for side in zip(*pairs, strict=True))
    table = confusion(predicted, labels, 5)
    for true in range(5):
        for given_class in range(5):
            assert table[true, given_class] == pairs.count((true, given_class))
    rows = per_class(table, ["a", "b", "c", "d", "nobody's"])
    recalls = {}
    for c, row in enumerate(rows):
        right = sum(true == c == said for true, said in pairs)
        have, given_it = (sum(pair[side] == c for pair in pairs) for side in (0, 1))
        precision = right / given_it if given_it else 0.0
        recall = right / have if have else 0.0
        both = precision + recall
        f1 = 2 * precision * recall / both if both else 0.0
        assert row == {
            "class": ["a", "b", "c", "d", "nobody's"][c],
            "devices": have,
            "precision": pytest.approx(precision),
            "recall": pytest.approx(recall),
            "f1": pytest.approx(f1),
        }
        if have:
            recalls[c] = recall
    assert balanced_accuracy(predicted, labels) == pytest.approx(np.mean([*recalls.values()]))


def test_balanced_accuracy_counts_rare_classes_as_much() -> None:
    labels = np.array([0] * 98 + [1, 1])
    assert balanced_accuracy(np.zeros(100, np.int64), labels) == 0.5
    assert balanced_accuracy(np.full(100, 7), labels) == 0.0  # a class that nobody has
    assert balanced_accuracy(labels, labels) == 1.0


@settings(deadline=None)
@given(scores, scores)
def test_average_precision_is_the_sum_of_steps(positive: list[int], negative: list[int]) -> None:
    """Σ (R_n - R_{n-1}) P_n over thresholds from the highest score down, as scikit-learn has it."""
    total, before = 0.0, 0.0
    for threshold in sorted({*positive, *negative}, reverse=True):
        right = sum(score >= threshold for score in positive)
        wrong = sum(score >= threshold for score in negative)
        recall = right / len(positive)
        total += (recall - before) * right / (right + wrong)
        before = recall
    found = average_precision(np.array(positive, float), np.array(negative, float))
    assert found == pytest.approx(total, abs=1e-12)


@settings(deadline=None)
@given(scores, scores, st.integers(1, 12))
def test_hits_are_above_the_kth_best_negative(
    positive: list[int], negative: list[int], most: int
) -> None:
    found = hits_at(most, np.array(positive, float), np.array(negative, float))
    if len(negative) < most:
        assert found == 1.0
        return
    best = sorted(negative, reverse=True)[most - 1]
    assert found == pytest.approx(sum(score > best for score in positive) / len(positive))


def test_hits_of_ties_and_of_few_negatives() -> None:
    assert hits_at(10, np.zeros(4), np.zeros(30)) == 0.0  # a constant score finds nothing
    assert hits_at(3, np.array([5.0, 4, 3, 2]), np.array([6.0, 5, 4, 1])) == 0.25  # 5 > 4 only
    assert hits_at(10, np.array([-9.0]), np.zeros(9)) == 1.0  # OGB: fewer than K negatives


def test_scores_at_both_ends_are_pooled_and_hits_averaged() -> None:
    up, down = np.array([[3.0, 1.0], [0.0, 9.0]]), np.array([[2.0] * 10, [4.0] * 10])
    found = link_scores(up, down)
    assert found["auc"] == auc(up.ravel(), down.ravel())
    assert found["average_precision"] == average_precision(up.ravel(), down.ravel())
    # First ends: 3 beats the tenth best, 2. Second ends: 9 beats 4.
    assert found["hits_at_10"] == 0.5
    assert found["hits_at_50"] == found["hits_at_100"] == 1.0
    assert link_scores(up[0], down[0])["hits_at_10"] == 0.5


def test_all_scores_of_a_run_by_name() -> None:
    logits = np.array([[3.0, 0], [0, 1], [2, 0], [0, 1], [5, 0]], np.float32)
    labels = np.array([0, 1, 1, 1, -1])
    roles = np.array([Role.TEST, Role.VALIDATION, Role.TEST, Role.TRAIN, Role.NOBODY])
    found = device_scores(logits, labels, roles, ("cat", "dog"))
    assert found["test_accuracy"] == 0.5
    assert found["val_accuracy"] == found["val_balanced_accuracy"] == found["val_macro_f1"] == 1.0
    assert found["test_confusion"] == [[1, 0], [1, 0]]
    assert found["test_per_class"] == [
        {"class": "cat", "devices": 1, "precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3)},
        {"class": "dog", "devices": 1, "precision": 0.0, "recall": 0.0, "f1": 0.0},
    ]
    names = ("accuracy", "macro_f1", "balanced_accuracy", "calibration_error")
    floats = {f"{part}_{name}" for part in ("test", "val") for name in names}
    assert found.keys() == floats | {"test_per_class", "test_confusion"}


def test_edges_and_non_neighbours_are_scored_together_once() -> None:
    pairs = np.arange(16).reshape(8, 2)
    asked = []

    def score(some: np.ndarray) -> np.ndarray:
        asked.append(some.tolist())
        return some[:, 0].astype(float)

    split = EdgeSplit(
        training=None,  # type: ignore[arg-type]
        test=pairs[4:6],
        test_non_neighbours=pairs[:2],
        validation=pairs[2:4],
        validation_non_neighbours=pairs[6:],
    )
    found = pair_scores(score, split)
    assert asked == [
        [*pairs[4:6].tolist(), *pairs[:2].tolist()],
        [*pairs[2:4].tolist(), *pairs[6:].tolist()],
    ]
    assert (found["test_auc"], found["val_auc"]) == (1.0, 0.0)
