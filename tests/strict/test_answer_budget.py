"""Budgets of answers: never exceeded, whoever asks whom how often."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from tests.runs.running import listening
from tests.strict.answering import levels_by_hand, result_of
from tests.strict.linking import on_shards

from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange import Endpoint, Program
from lumos.graph import Graph
from lumos.strict.link.answers import NO_LIMIT, AnswerBudget, _first, consents, halves
from lumos.strict.link.prediction import answer
from lumos.strict.messages import CONSENT
from lumos.strict.settings import StrictSettings
from lumos.training.trainer import AskedPairs
from lumos.twoparty.score import UNANSWERED


def ask(
    result: Any, pairs: Any, budget: AnswerBudget, *, both_may_ask: bool = False, **how: Any
) -> np.ndarray:
    asked = AskedPairs(pairs=np.asarray(pairs, np.int64).reshape(-1, 2), **how)
    levels = answer(result, asked, budget, both_may_ask=both_may_ask).levels
    assert_array_equal(levels[:, 0], levels[:, 1])  # exact answers: both ends learn the same
    return levels[:, 0]


@pytest.mark.parametrize("answers", range(3, 30))
def test_halves_are_the_budget_without_calibration(answers: int) -> None:
    asking, answering = halves(answers)
    assert asking + answering == answers - 2
    assert 0 <= answering - asking <= 1
    assert halves(0) == (NO_LIMIT, NO_LIMIT)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(3, 9),
    st.sampled_from(["anybody", "flood", "few", "again"]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_no_pattern_of_questions_exceeds_a_budget(
    seed: int, answers: int, pattern: str, both: bool
) -> None:
    """Several calls; both ends count, and every answer is the level of the pair."""
    rng, devices = np.random.default_rng(seed), 14
    result = result_of(devices, score_queries=answers)
    budget = AnswerBudget.unused(devices)
    budget.calibrated[:] = rng.integers(0, 3, devices)
    asking, answering = halves(answers)
    for _ in range(3):
        one = rng.integers(0, devices, 60)
        two = {
            "anybody": rng.integers(0, devices, 60),
            "flood": np.zeros(60, np.int64),
            "few": rng.integers(0, 3, 60),
            "again": (one + 1) % devices,
        }[pattern]
        pairs = np.stack([one, two], axis=1)[one != two]
        before = budget.copy()
        levels = ask(result, pairs, budget, both_may_ask=both)
        answered = levels != UNANSWERED
        assert_array_equal(levels[answered], levels_by_hand(result, pairs)[answered])
        new = np.unique(np.sort(pairs[answered], axis=1), axis=0)
        counted = np.bincount(new.ravel(), minlength=devices)
        assert_array_equal(budget.given() - before.given(), counted)
        assert (budget.asked.sum() - before.asked.sum()) == len(new)
        assert (budget.asked <= asking).all()
        assert (budget.answered <= answering).all()
        assert (budget.given() <= answers).all()


def test_non_neighbours_cannot_stop_a_device_from_asking() -> None:
    devices = 60
    result = result_of(devices, score_queries=16)
    budget = AnswerBudget.unused(devices)
    flood = [(asker, 0) for asker in range(1, devices)]
    for _ in range(3):
        ask(result, flood, budget)
    asking, answering = halves(16)
    assert budget.answered[0] == answering
    assert budget.asked[0] == 0
    mine = ask(result, [(0, peer) for peer in range(1, devices)], budget)
    assert (mine != UNANSWERED).sum() == asking


def test_askers_pay_for_what_they_learn() -> None:
    """m colluding devices ask at most m times their half, whomever they ask."""
    devices, collude = 40, 5
    result = result_of(devices, score_queries=10)
    budget = AnswerBudget.unused(devices)
    pairs = [(asker, peer) for asker in range(collude) for peer in range(collude, devices)]
    levels = ask(result, pairs, budget)
    assert (levels != UNANSWERED).sum() == collude * halves(10)[0]


def test_who_is_answered_is_drawn_at_random() -> None:
    """Not by the order of the questions, nor by ids: each of 40 askers as often."""
    devices, counts = 41, np.zeros(41)
    for seed in range(150):
        result = result_of(devices, seed, score_queries=10)
        pairs = np.array([(asker, 0) for asker in range(1, devices)])
        levels = ask(result, pairs, AnswerBudget.unused(devices))
        counts[pairs[levels != UNANSWERED, 0]] += 1
    assert counts.sum() == 150 * 4
    assert np.abs(counts[1:] - 15).max() < 5 * np.sqrt(15)


def test_without_a_limit_everything_is_answered() -> None:
    result = result_of(30, score_queries=0)
    pairs = np.array([(one, two) for one in range(30) for two in range(one)])
    levels = ask(result, pairs, AnswerBudget.unused(30))
    assert_array_equal(levels, levels_by_hand(result, pairs))


def test_a_pair_that_is_there_twice_is_asked_once() -> None:
    result = result_of(10, score_queries=4)
    budget = AnswerBudget.unused(10)
    levels = ask(result, [(1, 2), (2, 1), (1, 2), (3, 4)], budget)
    assert len(set(levels[:3].tolist())) == 1
    assert budget.asked.sum() == budget.answered.sum() == 2
    assert budget.asked[1] == 1, "the first to be named asks"


def test_the_second_wave_asks_the_other_way_round() -> None:
    """Device 0 may ask once and is asked by all: those whom it cannot ask, ask it."""
    result = result_of(6, score_queries=4)  # one question, one answer
    pairs = [(0, peer) for peer in range(1, 6)]
    alone, both = AnswerBudget.unused(6), AnswerBudget.unused(6)
    assert (ask(result, pairs, alone) != UNANSWERED).sum() == 1
    assert (ask(result, pairs, both, both_may_ask=True) != UNANSWERED).sum() == 2
    assert (both.asked[0], both.answered[0]) == (1, 1)


def test_too_much_calibration_is_taken_from_both_halves() -> None:
    strict = StrictSettings(score_queries=16)
    budget = AnswerBudget.unused(6)
    budget.calibrated[:] = [0, 2, 3, 4, 6, 40]
    asking, answering = budget.left(strict)
    assert_array_equal(asking, [7, 7, 6, 5, 4, 0])
    assert_array_equal(answering, [7, 7, 6, 6, 4, 0])
    assert (asking + answering + np.maximum(budget.calibrated, 2) <= 16)[:5].all()


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_too_much_calibration_reveals_no_more_bits(bits: int) -> None:
    """A query of calibration reveals three bits, whatever others reveal."""
    strict = StrictSettings(score_queries=16, query_bits=bits)
    budget = AnswerBudget.unused(7)
    budget.calibrated[:] = np.arange(7)
    left = np.sum(budget.left(strict), axis=0)
    assert (3 * np.maximum(budget.calibrated, 2) + bits * left <= 6 + 14 * bits).all()
    assert (left[3:] + 1 > (6 + 14 * bits - 3 * budget.calibrated[3:]) // bits).all()


def test_randomness_of_new_questions_are_new() -> None:
    """The same questions with the same budgets repeat; with others, others are answered."""
    result = result_of(40, score_queries=6)
    pairs = np.array([(asker, 0) for asker in range(1, 40)])
    first = ask(result, pairs, AnswerBudget.unused(40))
    assert_array_equal(ask(result, pairs, AnswerBudget.unused(40)), first)
    used = AnswerBudget.unused(40)
    used.asked[5] = 1
    assert (ask(result, pairs, used) != first).any()


def table_of(devices: int, seed: int) -> np.ndarray:
    """[questions, 2] random questions, each once."""
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, devices, (150, 2)), axis=0)
    chosen: np.ndarray = pairs[pairs[:, 0] < pairs[:, 1]]
    flipped = rng.random(len(chosen)) < 0.5
    chosen[flipped] = chosen[flipped][:, ::-1]
    return chosen


@pytest.mark.parametrize("seed", range(3))
def test_shards_change_no_consent(seed: int, ledger_differences: Any) -> None:
    devices = 21
    graph = Graph.from_edges(np.empty((0, 2), np.int64), devices=devices)
    table = table_of(devices, seed)
    left = np.random.default_rng(seed).integers(0, 5, (2, devices))

    def device(shard: Shard, endpoint: Endpoint) -> Program[Any]:
        mine = table[np.isin(table[:, 0], shard.devices)]
        mine = mine[np.lexsort((mine[:, 1], shard.local(mine[:, 0])))]
        hosted = left[:, shard.devices]
        found = yield from consents(
            shard, shard.local(mine[:, 0]), mine[:, 1], (hosted[0], hosted[1]), 0
        )
        return mine, found

    expected, ledgers = None, []
    for shards in (1, 2, 7, devices):
        parts, ledger = on_shards(graph, device, shards)
        ledgers.append(ledger)
        answered, answering = set(), set()
        for shard, (mine, (flags, rows, askers)) in parts:
            answered |= set(map(tuple, mine[flags].tolist()))
            ids = shard.ids_of(rows)
            answering |= set(zip(askers.tolist(), ids.tolist(), strict=True))
        assert answered == answering, "both ends know"
        expected = expected or answered
        assert answered == expected
    assert all(ledger_differences(ledgers[0], ledger) == [] for ledger in ledgers[1:])
    # And by hand: nobody beyond its number; whoever refused had answered as many as it may.
    asked = np.bincount([one for one, _ in answered], minlength=devices)
    answers = np.bincount([two for _, two in answered], minlength=devices)
    assert (asked <= left[0]).all()
    assert (answers <= left[1]).all()


def test_questions_and_consents_are_one_bit_of_control() -> None:
    result = result_of(20, score_queries=4)
    pairs = np.array([(asker, 0) for asker in range(1, 20)])
    with listening() as wire:
        answers = answer(result, AskedPairs(pairs=pairs), AnswerBudget.unused(20))
    assert [m.body for m in wire.all_of("strict/consent")].count(b"\1") == 1
    assert len(wire.all_of("strict/question")) == 19
    doors = {name: line.door for name, line in answers.ledger.topics.items()}
    assert doors["strict/question"] == doors["strict/consent"] == "control"
    assert doors["score/ideal"] == "compare"
    assert answers.ledger.scores == 1


def test_a_reply_that_is_missing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = type(CONSENT).send

    def silent(topic: Any, sender: Any, receiver: Any, body: Any, *rest: Any, **more: Any) -> Any:
        if topic is CONSENT:
            sender, receiver, body = sender[1:], receiver[1:], body[1:]
        return honest(topic, sender, receiver, body, *rest, **more)

    monkeypatch.setattr(type(CONSENT), "send", silent)
    with pytest.raises(ProtocolError, match="got no reply"):
        ask(result_of(5), [(0, 1), (2, 3)], AnswerBudget.unused(5))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_first_by_chance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.integers(0, 5, 30))
    chance, most = rng.random(30), rng.integers(0, 9, 5)
    taken = _first(rows, chance, most)
    for row in range(5):
        mine = np.flatnonzero(rows == row)
        best = mine[np.argsort(chance[mine])][: most[row]]
        assert_array_equal(np.flatnonzero(taken & (rows == row)), np.sort(best))


def test_budgets_survive_their_file_and_are_joined_in_order() -> None:
    rng = np.random.default_rng(0)
    whole = AnswerBudget(**{n: rng.integers(0, 9, 6) for n in ("asked", "answered", "calibrated")})
    again = AnswerBudget.of(whole.arrays())
    assert again.digest() == whole.digest()
    copy = whole.copy()
    copy.asked[0] += 1
    assert copy.digest() != whole.digest()
