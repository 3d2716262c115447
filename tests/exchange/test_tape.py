"""What a tape has: every message that was delivered, whoever hosts its ends, and nothing else."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import lumos
from lumos.errors import UsageError
from lumos.exchange import Tape, recording


@cache
def recorded(**settings: Any) -> tuple[lumos.Run, Tape]:
    """A small run, and what passed in it; nobody changes them."""
    with recording() as tape:
        run = lumos.train("demo:60", transport="recording", floor=False, **settings)
    return run, tape


def test_a_recorded_run_is_the_same_run() -> None:
    run, _ = recorded()
    plain = lumos.train("demo:60", floor=False)
    assert all(np.array_equal(run.model.weights[n], w) for n, w in plain.model.weights.items())
    assert run.ledger.totals() == plain.ledger.totals()


@pytest.mark.parametrize("shards", [2, 7, pytest.param(60, marks=pytest.mark.long)])
def test_messages_are_the_same_for_any_number_of_shards(shards: int) -> None:
    _, one = recorded()
    _, many = recorded(shards=shards)
    for topic in ("strict/symbol", "strict/opinion"):
        for single, several in zip(one.messages(topic), many.messages(topic), strict=True):
            assert np.array_equal(single.sender, several.sender)
            assert np.array_equal(single.receiver, several.receiver)
            assert np.array_equal(single.body, several.body)


def test_every_device_tells_every_neighbour() -> None:
    run, tape = recorded()
    graph = lumos.load("demo:60")
    (first, _) = tape.messages("strict/opinion")
    owner = np.repeat(np.arange(graph.devices), graph.degrees)
    assert np.array_equal(first.receiver, owner)
    assert np.array_equal(first.sender, graph.neighbours)
    (traffic,) = (t for t in tape.traffic if t.topic.name == "strict/opinion")
    assert np.array_equal(traffic.sent[:-1], 2 * graph.degrees)
    assert len(traffic.pairs) == 2 * graph.edges
    assert traffic.sizes == {1}
    assert run.ledger.topics["strict/opinion"].messages == traffic.received.sum()


NARROW: dict[str, Any] = {"random_marks": 4}
"""So that secure runs are short."""


@pytest.mark.parametrize("settings", [{"task": "classify"}, {"task": "link", **NARROW}])
def test_counts_are_those_of_the_ledger_where_everything_is_real(settings: dict[str, Any]) -> None:
    run, tape = recorded(**settings, aggregate="secure", protect="none")
    sent, received = np.zeros((2, 60), np.int64)
    for traffic in tape.traffic:
        assert not traffic.clear
        sent += traffic.bytes_sent[:60]
        received += traffic.bytes_received[:60]
    assert np.array_equal(sent, run.ledger.bytes_sent)
    assert np.array_equal(received, run.ledger.bytes_received)


def test_what_an_ideal_backend_sends_is_marked() -> None:
    _, tape = recorded()
    assert {t.topic.name for t in tape.traffic if t.clear} == {
        "aggregate/ideal",
        "aggregate/clear-sum/ideal",
    }


def test_only_what_is_wanted_is_kept_and_all_is_counted() -> None:
    with recording(lambda topic, batch: None) as tape:
        lumos.train("demo:60", transport="recording", floor=False)
    assert tape.passed == []
    assert sum(int(t.sent.sum()) for t in tape.traffic) > 0


def test_without_a_tape_there_is_nothing_to_record_on() -> None:
    with pytest.raises(UsageError, match="needs a tape"):
        lumos.train("demo:60", transport="recording")


def test_no_message_is_shown() -> None:
    _, tape = recorded()
    assert repr(tape) == f"Tape(rounds={len(tape.passed)})"
