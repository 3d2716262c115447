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
from lumos.strict.similarity import ReceivedByHop, likeness

SIZE, HOPS, MANY, DEVICES = 3, 2, 4, 7
GRAPH = Graph.from_edges(
    [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (3, 4), (4, 5)], devices=DEVICES
)  # 5 has one neighbour, 6 has none
OWNER = np.repeat(np.arange(DEVICES), GRAPH.degrees)


def world(seed: int = 0) -> tuple[ReceivedByHop, np.ndarray, list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(DEVICES, SIZE)).astype(np.float32)
    said = [rng.integers(0, SIZE, len(OWNER)).astype(np.uint8) for _ in range(HOPS)]
    usual = rng.dirichlet(np.ones(SIZE), HOPS)
    return ReceivedByHop.of(own, said, OWNER), usual, said, own


def by_hand(
    said: list[np.ndarray], own: Any, usual: Any, asker: int, told: Any, without: int | None
) -> list[float]:
    """[(hops + 1)²] own with every hop of the teller, then every hop with every hop.

    Args:
        without: the slot over which the teller's own messages came.
    """
    draws = [[int(told[0])]]
    for hop in range(HOPS):
        draws.append([int(s) for s in told[1 + hop * MANY : 1 + (hop + 1) * MANY]])
    mine = [slot for slot in range(len(OWNER)) if OWNER[slot] == asker and slot != without]
    found = [sum(float(own[asker, s]) for s in draw) / len(draw) for draw in draws]
    for hop in range(HOPS):
        for draw in draws:
            more = 0.0
            for symbol in draw:
                times = sum(int(said[hop][slot]) == symbol for slot in mine)
                more += times - len(mine) * usual[hop, symbol]
            found.append(more / len(draw) / math.sqrt(len(mine) + 1))
    return [math.sqrt(SIZE) * number for number in found]


@pytest.mark.parametrize("chunk", [2, 8192])
def test_likeness_is_what_it_says(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a device without neighbours, and for askers in any order."""
    monkeypatch.setattr(module, "CHUNK", chunk)
    heard, usual, said, own = world()
    rng = np.random.default_rng(1)
    rows = np.array([0, 0, 1, 3, 4, 5, 6, 6, 2, 0])
    told = rng.integers(0, SIZE, (len(rows), 1 + HOPS * MANY)).astype(np.uint8)
    found = likeness(heard, usual, rows, told)
    for number, asker in enumerate(rows):
        expected = by_hand(said, own, usual, int(asker), told[number], None)
        assert_allclose(found[number], expected, rtol=1e-5, atol=1e-6)
    alone = found[rows == 6]
    assert alone[:, : HOPS + 1].all()  # its own features
    assert not alone[:, HOPS + 1 :].any()  # it heard nothing


def test_what_the_teller_said_itself_does_not_count() -> None:
    heard, usual, said, own = world()
    rng = np.random.default_rng(2)
    slots = np.arange(len(OWNER))
    told = rng.integers(0, SIZE, (len(slots), 1 + HOPS * MANY)).astype(np.uint8)
    left_out = np.stack([hop[slots] for hop in said], axis=1)
    found = likeness(heard, usual, OWNER[slots], told, left_out)
    for slot in slots:
        expected = by_hand(said, own, usual, int(OWNER[slot]), told[slot], int(slot))
        assert_allclose(found[slot], expected, rtol=1e-5, atol=1e-6)
    only = int(np.flatnonzero(OWNER == 5)[0])
    assert not found[only, HOPS + 1 :].any()  # nobody else is there
    # The twin counts it: an edge would be recognised by itself.
    assert not np.allclose(found, likeness(heard, usual, OWNER[slots], told))


def test_no_pairs() -> None:
    heard, usual, _, _ = world()
    none = np.empty((0, 1 + HOPS * MANY), np.uint8)
    assert likeness(heard, usual, np.empty(0, np.int64), none).shape == (0, (HOPS + 1) ** 2)


def test_heard_counts_every_symbol() -> None:
    heard, _, said, _ = world()
    assert (heard.size, heard.hops) == (SIZE, HOPS)
    assert_array_equal(heard.degree, GRAPH.degrees)
    for hop in range(HOPS):
        expected = np.zeros((DEVICES, SIZE))
        for slot, device in enumerate(OWNER):
            expected[device, said[hop][slot]] += 1
        assert_array_equal(heard.counts_at(hop + 1), expected)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_parts_are_joined_in_the_order_of_devices(shards: int) -> None:
    heard, _, said, own = world()
    parts, devices = [], []
    for shard in range(shards):
        mine = np.arange(shard, DEVICES, shards)
        here = np.isin(OWNER, mine)
        owner = np.searchsorted(mine, OWNER[here])
        parts.append(ReceivedByHop.of(own[mine], [hop[here] for hop in said], owner))
        devices.append(mine)
    joined = ReceivedByHop.joined(parts, np.argsort(np.concatenate(devices)))
    assert_array_equal(joined.own, heard.own)
    assert_array_equal(joined.degree, heard.degree)
    assert_array_equal(joined.counts.toarray(), heard.counts.toarray())


@pytest.mark.parametrize("neighbours", [True, False])
def test_what_else_an_asker_knows_of_a_pair(neighbours: bool) -> None:
    """Shares at both ends and the prior; for neighbours, without each other."""
    heard, usual, said, _ = world()
    scorer = PairScorer(
        settings=ModelSettings(), devices=DEVICES, usual=[usual],
        trust=np.empty(0), backbone=np.empty(0),
    )  # fmt: skip
    rng = np.random.default_rng(3)
    entries = rng.integers(0, SIZE, DEVICES)
    slots = np.arange(len(OWNER)) if neighbours else None
    rows = OWNER if neighbours else np.arange(DEVICES)
    told = rng.integers(0, SIZE, (len(rows), 1 + HOPS * MANY)).astype(np.uint8)
    left_out = [np.stack([hop[slots] for hop in said], axis=1)] if neighbours else None
    pairs = scorer.pairs([heard], entries, rows, told, left_out)
    for number, asker in enumerate(rows):
        mine = [
            int(said[0][slot])
            for slot in range(len(OWNER))
            if OWNER[slot] == asker and not (neighbours and slot == number)
        ]
        share = [mine.count(symbol) / max(len(mine), 1) for symbol in range(SIZE)]
        theirs = [list(told[number, 1 : 1 + MANY]).count(symbol) / MANY for symbol in range(SIZE)]
        assert_allclose(pairs.shares[number], share)
        assert_allclose(pairs.their_shares[number], theirs)
        assert pairs.prior[number] == pytest.approx(math.log((len(mine) + 1) / DEVICES))
        assert pairs.own[number] == entries[asker]
        assert pairs.theirs[number] == told[number, 0]
    assert_array_equal(pairs.rows, rows)
