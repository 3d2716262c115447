"""Likeness of surroundings, by hand: in loops over devices, hops and draws."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from lumos.graph import Graph
from lumos.model.settings import ModelSettings
from lumos.strict import similarity as module
from lumos.strict.pair_scorer import PairScorer
from lumos.strict.similarity import ReceivedByHop, similarity

SIZE, HOPS, MANY, DEVICES = 3, 2, 4, 7
GRAPH = Graph.from_edges(
    [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (3, 4), (4, 5)], devices=DEVICES
)  # 5 has one neighbour, 6 has none
OWNER = np.repeat(np.arange(DEVICES), GRAPH.degrees)


def world(seed: int = 0) -> tuple[ReceivedByHop, np.ndarray, list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(DEVICES, SIZE)).astype(np.float32)
    messages = [rng.integers(0, SIZE, len(OWNER)).astype(np.uint8) for _ in range(HOPS)]
    frequencies = rng.dirichlet(np.ones(SIZE), HOPS)
    return ReceivedByHop.of(own, messages, OWNER), frequencies, messages, own


def by_hand(
    messages: list[np.ndarray],
    own: Any,
    frequencies: Any,
    asker: int,
    answers: Any,
    without: int | None,
) -> list[float]:
    """[(hops + 1)²] own with every hop of the teller, then every hop with every hop.

    Args:
        without: the slot of the answerer, whose own messages do not count.
    """
    draws = [[int(answers[0])]]
    for hop in range(HOPS):
        draws.append([int(s) for s in answers[1 + hop * MANY : 1 + (hop + 1) * MANY]])
    mine = [slot for slot in range(len(OWNER)) if OWNER[slot] == asker and slot != without]
    computed = [sum(float(own[asker, s]) for s in draw) / len(draw) for draw in draws]
    for hop in range(HOPS):
        for draw in draws:
            excess = 0.0
            for symbol in draw:
                count = sum(int(messages[hop][slot]) == symbol for slot in mine)
                excess += count - len(mine) * frequencies[hop, symbol]
            computed.append(excess / len(draw) / math.sqrt(len(mine) + 1))
    return [math.sqrt(SIZE) * number for number in computed]


@pytest.mark.parametrize("chunk", [2, 8192])
def test_likeness_is_what_it_says(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a device without neighbours, and for askers in any order."""
    monkeypatch.setattr(module, "CHUNK", chunk)
    received, frequencies, messages, own = world()
    rng = np.random.default_rng(1)
    rows = np.array([0, 0, 1, 3, 4, 5, 6, 6, 2, 0])
    answers = rng.integers(0, SIZE, (len(rows), 1 + HOPS * MANY)).astype(np.uint8)
    computed = similarity(received, frequencies, rows, answers)
    for number, asker in enumerate(rows):
        expected = by_hand(messages, own, frequencies, int(asker), answers[number], None)
        assert_allclose(computed[number], expected, rtol=1e-5, atol=1e-6)
    alone = computed[rows == 6]
    assert alone[:, : HOPS + 1].all()  # its own features
    assert not alone[:, HOPS + 1 :].any()  # it received nothing


def test_messages_of_the_answerer_do_not_count() -> None:
    received, frequencies, messages, own = world()
    rng = np.random.default_rng(2)
    slots = np.arange(len(OWNER))
    answers = rng.integers(0, SIZE, (len(slots), 1 + HOPS * MANY)).astype(np.uint8)
    excluded = np.stack([hop[slots] for hop in messages], axis=1)
    computed = similarity(received, frequencies, OWNER[slots], answers, excluded)
    for slot in slots:
        expected = by_hand(messages, own, frequencies, int(OWNER[slot]), answers[slot], int(slot))
        assert_allclose(computed[slot], expected, rtol=1e-5, atol=1e-6)
    only = int(np.flatnonzero(OWNER == 5)[0])
    assert not computed[only, HOPS + 1 :].any()  # nobody else is there
    # The twin counts it: an edge would be recognised by itself.
    assert not np.allclose(computed, similarity(received, frequencies, OWNER[slots], answers))


def test_no_pairs() -> None:
    received, frequencies, _, _ = world()
    none = np.empty((0, 1 + HOPS * MANY), np.uint8)
    assert similarity(received, frequencies, np.empty(0, np.int64), none).shape == (
        0,
        (HOPS + 1) ** 2,
    )


def test_received_counts_every_symbol() -> None:
    received, _, messages, _ = world()
    assert (received.size, received.hops) == (SIZE, HOPS)
    assert_array_equal(received.degree, GRAPH.degrees)
    for hop in range(HOPS):
        expected = np.zeros((DEVICES, SIZE))
        for slot, device in enumerate(OWNER):
            expected[device, messages[hop][slot]] += 1
        assert_array_equal(received.counts_at(hop + 1), expected)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_parts_are_joined_in_the_order_of_devices(shards: int) -> None:
    received, _, messages, own = world()
    parts, devices = [], []
    for shard in range(shards):
        mine = np.arange(shard, DEVICES, shards)
        here = np.isin(OWNER, mine)
        owner = np.searchsorted(mine, OWNER[here])
        parts.append(ReceivedByHop.of(own[mine], [hop[here] for hop in messages], owner))
        devices.append(mine)
    joined = ReceivedByHop.joined(parts, np.argsort(np.concatenate(devices)))
    assert_array_equal(joined.own, received.own)
    assert_array_equal(joined.degree, received.degree)
    assert_array_equal(joined.counts.toarray(), received.counts.toarray())


@pytest.mark.parametrize("neighbours", [True, False])
def test_other_inputs_of_a_pair(neighbours: bool) -> None:
    """Shares at both ends and the prior; for neighbours, without each other."""
    received, frequencies, messages, _ = world()
    scorer = PairScorer(
        settings=ModelSettings(), devices=DEVICES, frequencies=[frequencies],
        trust=np.empty(0), backbone=np.empty(0),
    )  # fmt: skip
    rng = np.random.default_rng(3)
    entries = rng.integers(0, SIZE, DEVICES)
    slots = np.arange(len(OWNER)) if neighbours else None
    rows = OWNER if neighbours else np.arange(DEVICES)
    answers = rng.integers(0, SIZE, (len(rows), 1 + HOPS * MANY)).astype(np.uint8)
    excluded = [np.stack([hop[slots] for hop in messages], axis=1)] if neighbours else None
    pairs = scorer.pairs([received], entries, rows, answers, excluded)
    for number, asker in enumerate(rows):
        mine = [
            int(messages[0][slot])
            for slot in range(len(OWNER))
            if OWNER[slot] == asker and not (neighbours and slot == number)
        ]
        own_frequencies = [mine.count(symbol) / max(len(mine), 1) for symbol in range(SIZE)]
        theirs = [
            list(answers[number, 1 : 1 + MANY]).count(symbol) / MANY for symbol in range(SIZE)
        ]
        assert_allclose(pairs.frequencies[number], own_frequencies)
        assert_allclose(pairs.their_frequencies[number], theirs)
        assert pairs.prior[number] == pytest.approx(math.log((len(mine) + 1) / DEVICES))
        assert pairs.own[number] == entries[asker]
        assert pairs.theirs[number] == answers[number, 0]
    assert_array_equal(pairs.rows, rows)
