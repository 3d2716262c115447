"""Answers: randomized response against its closed form, batches, and the asker's score."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.strict.answering import levels_by_hand, result_of
from tests.strict.linking import on_shards

from lumos.device.shard import Shard, cut
from lumos.exchange import Endpoint, Program
from lumos.graph import Graph
from lumos.strict.link import prediction as link_prediction
from lumos.strict.link.answers import AnswerBudget, scores, shifts_for
from lumos.strict.link.prediction import LinkResult, alone, answer, evaluated
from lumos.training.trainer import AskedPairs
from lumos.twoparty.score import UNANSWERED
from lumos.twoparty.workers import ComparedPairs


def lone(devices: int) -> Shard:
    return cut(Graph.from_edges(np.empty((0, 2), np.int64), devices=devices), 1, seed=0)[0]


def all_pairs(shard: Shard) -> ComparedPairs:
    devices = len(shard)
    one, two = np.divmod(np.arange(devices**2), devices)
    other = one != two
    return ComparedPairs.of_ids(shard, one[other], two[other])


@pytest.mark.parametrize("levels", [2, 4, 8])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_shifts_have_the_frequencies_of_randomized_response(levels: int, epsilon: float) -> None:
    """No shift with e^ε / (e^ε + k - 1), every other one with 1 / (e^ε + k - 1): ratio e^ε."""
    shard = lone(200)
    pairs = all_pairs(shard)
    shifts = shifts_for(shard, pairs, levels, epsilon, 0)
    assert shifts is not None
    counts = np.bincount(shifts, minlength=levels)
    assert len(counts) == levels
    whole = math.exp(epsilon) + levels - 1
    expected = np.array([math.exp(epsilon), *[1.0] * (levels - 1)]) / whole
    error = np.sqrt(expected * (1 - expected) / len(shifts))
    assert (np.abs(counts / len(shifts) - expected) < 5 * error).all()


def test_shifts_of_two_ends_and_of_two_steps_are_independent() -> None:
    shard = lone(120)
    pairs = all_pairs(shard)
    first, second = (shifts_for(shard, pairs, 4, 0.5, step) for step in (0, 1))
    assert first is not None
    assert second is not None
    ends = np.zeros((120, 120), np.int64)
    ends[pairs.rows, pairs.peers] = first
    above = np.triu_indices(120, 1)
    for one, two in ((ends[above], ends.T[above]), (first, second)):
        assert abs(np.corrcoef(one, two)[0, 1]) < 5 / math.sqrt(len(one))


def test_without_epsilon_answers_are_exact() -> None:
    shard = lone(5)
    assert shifts_for(shard, all_pairs(shard), 4, float("inf"), 0) is None


@pytest.mark.parametrize("levels", [2, 8])
def test_extremes_of_epsilon(levels: int) -> None:
    shard = lone(60)
    pairs = all_pairs(shard)
    hardly = shifts_for(shard, pairs, levels, 1e-9, 0)
    assert hardly is not None
    assert (np.bincount(hardly, minlength=levels) > 0.7 * len(hardly) / levels).all()
    sure = shifts_for(shard, pairs, levels, 40.0, 0)
    assert sure is not None
    assert not sure.any()


def test_randomized_answers_have_the_closed_forms_error() -> None:
    devices, epsilon = 120, 1.0
    result = result_of(devices, score_queries=0, query_epsilon=epsilon)
    pairs = np.array([(one, two) for one in range(devices) for two in range(one)])
    levels = answer(result, AskedPairs(pairs=pairs), AnswerBudget.unused(devices)).levels
    right = levels == levels_by_hand(result, pairs)[:, None]
    expected, error = math.e / (math.e + 3), 5 * math.sqrt(0.25 / len(pairs))
    assert right.mean(axis=0) == pytest.approx([expected, expected], abs=error)
    # The two ends learn levels with shifts that were drawn apart.
    assert right.all(axis=1).mean() == pytest.approx(expected**2, abs=error)


def test_each_end_learns_the_same_whoever_is_named_first() -> None:
    result = result_of(40, score_queries=0, query_epsilon=1.0)
    pairs = np.array([(one, two) for one in range(40) for two in range(one)])
    twice = np.concatenate([pairs, pairs[:, ::-1]])
    levels = answer(result, AskedPairs(pairs=twice), AnswerBudget.unused(40)).levels
    assert_array_equal(levels[: len(pairs)], levels[len(pairs) :, ::-1])
    assert (levels[:, 0] != levels[:, 1]).any()


@pytest.mark.parametrize("at_once", [1, 7, 4096])
@pytest.mark.parametrize("epsilon", [float("inf"), 2.0])
def test_batches_change_no_level(
    at_once: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact answers; randomized ones have new randomness in every batch."""
    monkeypatch.setattr(link_prediction, "AT_ONCE", at_once)
    result = result_of(25, score_queries=0, query_epsilon=epsilon)
    pairs = np.array([(one, two) for one in range(25) for two in range(one)])
    seen: list[tuple[int, int]] = []
    asked = AskedPairs(pairs=pairs, progress=lambda done, total: seen.append((done, total)))
    levels = answer(result, asked, AnswerBudget.unused(25)).levels
    right = np.tile(levels_by_hand(result, pairs)[:, None], 2)
    if math.isinf(epsilon):
        assert_array_equal(levels, right)
    else:
        assert 0.4 < (levels == right).mean() < 1
    assert seen[-1] == (len(pairs), len(pairs))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) == -(-len(pairs) // at_once)


@pytest.mark.parametrize("epsilon", [float("inf"), 1.5])
def test_real_cryptography_gives_the_same_levels(epsilon: float) -> None:
    result = result_of(10, score_queries=8, query_epsilon=epsilon)
    pairs = np.array([(one, two) for one in range(10) for two in range(one)])
    found, ledgers = [], []
    for secure in (False, True):
        budget = AnswerBudget.unused(10)
        asked = AskedPairs(pairs=pairs, secure=secure, workers=1)
        answers = answer(result, asked, budget, both_may_ask=True)
        found.append((answers.levels.tobytes(), budget.digest()))
        ledgers.append(answers.ledger)
    assert found[0] == found[1]
    ideal, secure_ = ledgers
    assert ideal.scores == secure_.scores
    assert_array_equal(ideal.bytes_sent, secure_.bytes_sent)
    assert_array_equal(ideal.messages_sent, secure_.messages_sent)
    assert_allclose(ideal.device_comparison_bits, secure_.device_comparison_bits)
    assert "score" in secure_.topics
    assert "score/ideal" not in secure_.topics


def learnt_by(result: LinkResult, pairs: np.ndarray, **how: Any) -> np.ndarray:
    """[pairs, 2] levels of devices that gave no answer before."""
    devices = len(result.degree)
    return answer(result, AskedPairs(pairs=pairs), AnswerBudget.unused(devices), **how).levels


def test_randomness_of_answers_are_those_of_one_run_only() -> None:
    """Other vectors or another ε share no shift, although seed and questions are the same."""
    pairs = np.array([(one, two) for one in range(80) for two in range(one)])
    settings = {"score_queries": 0, "query_bits": 3}
    one = result_of(80, query_epsilon=0.1, **settings)
    shifts = {}
    for name, result in {
        "the same": one,
        "again": one,
        "another epsilon": result_of(80, query_epsilon=0.11, **settings),
        "other vectors": replace(one, vectors=np.roll(one.vectors, 1, axis=0)),
    }.items():
        exact = levels_by_hand(result, pairs)[:, None]
        shifts[name] = (learnt_by(result, pairs) - exact) % 8
    assert_array_equal(shifts["the same"], shifts["again"])
    for name in ("another epsilon", "other vectors"):
        same = (shifts[name] == shifts["the same"]).mean()
        assert same == pytest.approx(1 / 8, abs=0.02), name


def test_randomness_of_the_operating_system_are_never_the_same() -> None:
    result = result_of(60, score_queries=0, query_epsilon=0.5)
    pairs = np.array([(one, two) for one in range(60) for two in range(one)])
    assert (learnt_by(result, pairs, fresh=True) != learnt_by(result, pairs, fresh=True)).any()
    assert_array_equal(learnt_by(result, pairs), learnt_by(result, pairs))


def test_scores_are_evidence_and_the_prior_of_the_asker() -> None:
    evidence = np.array([-1.0, 0.0, 2.5])
    levels, degree = np.array([0, 2, UNANSWERED]), np.array([0, 3, 9])
    found = scores(levels, evidence, degree, 100)
    assert_allclose(found, [-1 + math.log(0.01), 2.5 + math.log(0.04), math.log(0.1)])


def test_the_observer_judges_at_both_ends_and_keeps_nothing() -> None:
    result = result_of(20, score_queries=6)
    pairs = np.array([(one, two) for one in range(20) for two in range(one)])
    before = result.budget.digest()
    one, two = evaluated(result, pairs), evaluated(result, pairs)
    assert one.shape == (2, len(pairs))
    assert_array_equal(one, two)
    assert result.budget.digest() == before
    own = alone(result, pairs)
    assert_allclose(own, np.log((result.degree[pairs.T] + 1) / 20))
    answered = one[0] != own[0]
    assert 0 < answered.sum() < len(pairs)
    assert_allclose((one - own)[0], (one - own)[1])  # one level, known to both


def test_programs_of_answers_use_no_neighbour() -> None:
    """The devices of a prediction are non-neighbours to the program, edge or not."""

    def device(shard: Shard, endpoint: Endpoint) -> Program[int]:
        yield from ()
        return len(shard.neighbours)

    shard = link_prediction._lone_devices(7, 0, "name", fresh=False)
    assert len(shard.neighbours) == 0
    assert [found for _, found in on_shards(Graph.from_edges(np.array([[0, 1]])), device)[0]] == [2]
