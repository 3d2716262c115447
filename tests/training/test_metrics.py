"""Adam against torch's, scores against brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from lumos.paper.trainer import Weights
from lumos.training.adam import Adam
from lumos.training.metrics import accuracy, auc, calibration_error, link_auc, macro_f1
from lumos.training.split import Role


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
    edges, strangers = rng.integers(0, 20, (9, 2)), rng.integers(0, 20, (13, 2))
    up, down = (
        [float(np.dot(embeddings[u].astype(float), embeddings[v])) for u, v in pairs]
        for pairs in (edges, strangers)
    )
    brute = np.mean([(one > other) + (one == other) / 2 for one in up for other in down])
    assert link_auc(embeddings, edges, strangers) == pytest.approx(brute)


def test_accuracy_looks_at_one_role_only() -> None:
    logits = np.array([[1.0, 0], [0, 1], [1, 0], [0, 1]], np.float32)
    roles = np.array([Role.TEST, Role.TEST, Role.TRAIN, Role.NOBODY])
    labels = np.array([0, 0, 1, -1])
    assert accuracy(logits, labels, roles, Role.TEST) == 0.5
    assert accuracy(logits, labels, roles, Role.TRAIN) == 0.0


def test_the_best_weights_are_those_that_the_score_is_of() -> None:
    """Scores 1, 3, 2 of the weights before each step: the second epoch's starting weights win."""
    start = np.zeros(2)
    weights = Weights(Adam(start, 0.1), start)
    before = []
    for epoch, score in enumerate((1.0, 3.0, 2.0), start=1):
        before.append(weights.adam.weights)
        total = np.array([1.0, -1.0, 6.0, 3.0, score * 4, 4.0])
        record = weights.learn(total, epoch, select=True)
        assert record == (epoch, 2.0, score)
    assert weights.best is before[1]
    assert (weights.best_epoch, weights.best_score) == (2, 3.0)


@pytest.mark.parametrize("select", [True, False])
def test_without_a_score_or_selection_the_last_weights_stand(select: bool) -> None:
    start = np.zeros(1)
    weights = Weights(Adam(start, 0.1), start)
    for epoch in (1, 2):
        scored = 0.0 if select else 5.0
        weights.learn(np.array([1.0, 1.0, 1.0, scored, scored]), epoch, select=select)
    assert weights.best is weights.adam.weights
    assert weights.best_epoch == 2


def test_macro_f1_counts_every_class_alike() -> None:
    labels = np.array([0, 0, 0, 0, 1, 2])
    predicted = np.array([0, 0, 0, 1, 1, 0])
    # Class 0: 3 hits of 4 predicted and 4 true; class 1: 1 of 2 and 1; class 2: none.
    assert macro_f1(predicted, labels) == pytest.approx((6 / 8 + 2 / 3 + 0) / 3)
    assert macro_f1(labels, labels) == 1.0
    assert macro_f1(np.array([3]), np.array([1])) == 0.0  # one class predicted only, one true only


def test_macro_f1_against_precision_and_recall() -> None:
    coins = np.random.default_rng(0)
    labels, predicted = coins.integers(0, 5, (2, 400))
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
    coins = np.random.default_rng(1)
    logits = 2 * coins.standard_normal((20_000, 4)).astype(np.float32)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (chances.cumsum(axis=1) > coins.random((20_000, 1))).argmax(axis=1)
    assert calibration_error(logits, labels) < 0.02
    assert calibration_error(4 * logits, labels) > 0.1
