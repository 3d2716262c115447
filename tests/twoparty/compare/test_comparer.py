"""Comparisons in rounds: right answers, two backends that agree, and budgets."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos.crypto.groups import GROUPS
from lumos.device import Shard, cut
from lumos.errors import BudgetExceeded, ProtocolError
from lumos.exchange import Endpoint, LedgerReport, Program
from lumos.exchange.transports.loopback import Loopback
from lumos.graph import Graph, demo_graph
from lumos.twoparty.comparer import (
    IDEAL_TOPICS,
    LENGTHS,
    Comparer,
    IdealComparer,
    SecureComparer,
    agree_on_length,
    at_least,
    count_objections,
)
from lumos.twoparty.workers import ComparedPairs, InProcess

Differences = Callable[[LedgerReport, LedgerReport], list[str]]
Together = list[tuple[int, int]]
"""Pairs of ids that compare, each once."""


loopback = partial(Loopback, ideal=IDEAL_TOPICS)


def idle_program(_: Endpoint) -> Program[None]:
    yield from ()


def pairs_of(shard: Shard, together: Together) -> ComparedPairs:
    """The comparisons of a list of pairs, from the view of a shard."""
    hosted = set(shard.devices.tolist())
    views = sorted(
        view for one, two in together for view in ((one, two), (two, one)) if view[0] in hosted
    )
    table = np.array(views, np.int64).reshape(-1, 2)
    return ComparedPairs.of_ids(shard, table[:, 0], table[:, 1])


def comparer_of(name: str, shard: Shard, endpoint: Endpoint, **settings: Any) -> Comparer:
    if name == "ideal":
        return IdealComparer(shard, endpoint, **settings)
    return SecureComparer(shard, endpoint, InProcess(), **settings)


def edgeless(devices: int) -> Graph:
    return Graph.from_edges(np.empty((0, 2), np.int64), devices=devices)


@pytest.mark.parametrize("backend", ["ideal", "secure"])
@pytest.mark.parametrize("asker_is_first", [True, False])
def test_at_least_for_all_small_values(backend: str, asker_is_first: bool) -> None:
    """Right up to 2^bits - 2: the asker's value plus one has to fit."""
    bits, top = 4, 14
    # Devices 2k and 2k + 1 hold the k-th pair of values.
    values = list(itertools.product(range(top + 1), repeat=2))
    if backend == "secure":
        values = [(a, b) for a, b in values if abs(a - b) <= 1]
    held = np.array(values).ravel()
    together = [(2 * k, 2 * k + 1) for k in range(len(values))]

    def device(shard: Shard, endpoint: Endpoint) -> Program[dict[int, bool]]:
        pairs = pairs_of(shard, together)
        asker = pairs.first == asker_is_first
        own = held[shard.devices[pairs.rows]]
        comparer = comparer_of(backend, shard, endpoint)
        answers = yield from at_least(comparer, pairs, own, asker, bits)
        return dict(zip(shard.devices[pairs.rows].tolist(), answers.tolist(), strict=True))

    pieces = cut(edgeless(len(held)), 2, seed=0)
    (even, odd), _ = loopback(pieces).run(device, idle_program)
    for k, (first, second) in enumerate(values):
        right = first >= second if asker_is_first else second >= first
        assert even[2 * k] == odd[2 * k + 1] == right, (first, second)


def conversation(
    rounds: list[tuple[str, int, Together, np.ndarray]], backend: str, group: str = "ed25519"
) -> Callable[[Shard, Endpoint], Program[list[dict[tuple[int, int], int]]]]:
    """One comparison batch after the other, in the same sessions."""

    def device(shard: Shard, endpoint: Endpoint) -> Program[list[dict[tuple[int, int], int]]]:
        comparer = comparer_of(backend, shard, endpoint, group=GROUPS[group])
        learned = []
        for kind, bits, together, values in rounds:
            pairs = pairs_of(shard, together)
            own = values[shard.devices[pairs.rows]]
            ask = comparer.less if kind == "less" else comparer.three_way
            answers = yield from ask(pairs, own, bits)
            views = zip(shard.devices[pairs.rows].tolist(), pairs.peers.tolist(), strict=True)
            learned.append(dict(zip(views, answers.astype(int).tolist(), strict=True)))
        return learned

    return device


def expected(kind: str, bits: int, values: np.ndarray, me: int, peer: int) -> int:
    mine, theirs = (min(int(values[device]), 2**bits - 1) for device in (me, peer))
    if kind == "less":
        return int(mine < theirs) if me < peer else int(theirs < mine)
    return (mine > theirs) - (mine < theirs)


def random_rounds(devices: int, seed: int) -> list[tuple[str, int, Together, np.ndarray]]:
    """Neighbours and non-neighbours, sessions old and new; values that tie, and some too large."""
    random = np.random.default_rng(seed)
    everyone = list(itertools.combinations(range(devices), 2))
    rounds = []
    for kind, bits in [("less", 4), ("three_way", 4), ("less", 8), ("three_way", 8), ("less", 16)]:
        chosen = random.choice(len(everyone), random.integers(5, 25), replace=False)
        values = random.integers(0, 2**bits * 5 // 4, devices)
        values[random.random(devices) < 0.4] = 3
        rounds.append((kind, bits, [everyone[index] for index in sorted(chosen)], values))
    return rounds


@pytest.mark.parametrize("group", GROUPS.names())
@pytest.mark.parametrize("seed", range(3))
def test_ideal_and_secure_agree_on_answers_and_on_every_count(
    seed: int, group: str, ledger_differences: Differences
) -> None:
    devices = 9
    graph = demo_graph(devices, features=False)
    rounds = random_rounds(devices, seed)
    reports = {}
    for backend, shards in [("ideal", 1), ("ideal", 4), ("secure", 1), ("secure", 4)]:
        transport = loopback(cut(graph, shards, seed=0))
        results, _ = transport.run(conversation(rounds, backend, group), idle_program)
        for number, (kind, bits, together, values) in enumerate(rounds):
            learned = {view: sign for result in results for view, sign in result[number].items()}
            assert set(learned) == {
                view for one, two in together for view in ((one, two), (two, one))
            }
            for (me, peer), answer in learned.items():
                assert answer == expected(kind, bits, values, me, peer), (backend, kind, me, peer)
        reports[backend, shards] = transport.ledger()
    ideal, secure = reports["ideal", 1], reports["secure", 1]
    assert ledger_differences(ideal, reports["ideal", 4]) == []
    assert ledger_differences(secure, reports["secure", 4]) == []
    assert ledger_differences(ideal, secure) == ["topics"]
    assert ideal.group == secure.group == group
    booked, sent = ideal.topics["compare/ideal"], secure.topics["compare"]
    assert (booked.messages, booked.bytes) == (sent.messages, sent.bytes)
    near = {frozenset(edge) for edge in graph.edge_list().tolist()}
    asked = [frozenset(pair) for _, _, together, _ in rounds for pair in together]
    assert near & set(asked), "some are neighbours"
    assert set(asked) - near, "and some are non-neighbours"
    assert len(asked) > len(set(asked)), "and some compare again in an open session"


@pytest.mark.parametrize("backend", ["ideal", "secure"])
def test_groups_differ_in_the_bytes_of_points_and_in_nothing_else(
    backend: str, ledger_differences: Differences
) -> None:
    """By hand: three sessions, and digits of 4 bits: 1 for ℓ = 4, 2 for ℓ = 8."""
    values = np.arange(4)
    rounds = [("less", 4, [(0, 1), (0, 3)], values), ("three_way", 8, [(0, 1), (2, 3)], values)]
    reports = {}
    for group in GROUPS:
        transport = loopback(cut(edgeless(4), 2, seed=0))
        transport.run(conversation(rounds, backend, group), idle_program)
        reports[group] = transport.ledger()
    ours, theirs = reports["secp256k1"], reports["ed25519"]
    changed = ["bytes", "group", "topics", "bytes_sent", "bytes_received"]
    assert ledger_differences(ours, theirs) == changed
    assert ours.bytes - theirs.bytes == 3 + 2 * 1 + 2 * 2


@pytest.mark.parametrize("backend", ["ideal", "secure"])
def test_nothing_compared_is_of_no_group(backend: str) -> None:
    transport = loopback(cut(edgeless(4), 2, seed=0))
    transport.run(conversation([("less", 4, [], np.arange(4))], backend), idle_program)
    assert transport.ledger().group == transport.ledger().totals()["group"] == "none"


def test_both_ends_count_the_same_bits() -> None:
    """By hand: one bit for `less`, log2 3 for `three_way`, to neighbours and to others alike."""
    graph = Graph.from_edges(np.array([[0, 1]]), devices=4)
    values = np.array([1, 2, 3, 4])
    rounds = [
        ("less", 4, [(0, 1), (0, 3)], values),
        ("three_way", 4, [(0, 1), (2, 3)], values),
        ("less", 4, [(0, 1)], values),
    ]
    three = math.log2(3)
    for backend, shards in itertools.product(["ideal", "secure"], [1, 4]):
        transport = loopback(cut(graph, shards, seed=0))
        transport.run(conversation(rounds, backend), idle_program)
        ledger = transport.ledger()
        assert np.allclose(ledger.device_comparison_bits, [3 + three, 2 + three, three, 1 + three])
        assert ledger.comparisons == 5
        assert ledger.comparison_bits == pytest.approx(3 + 2 * three)
        assert ledger.bits_per_pair_largest == pytest.approx(2 + three)
        assert ledger.bits_per_pair_mean == pytest.approx((3 + 2 * three) / 3)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 33), min_size=1, max_size=5),
    st.lists(st.sampled_from([-1, 0]), min_size=5, max_size=5),
    st.integers(1, 3),
)
def test_the_length_is_the_smallest_to_which_nobody_objects(
    powers: list[int], offsets: list[int], shards: int
) -> None:
    largest = np.array([2**power + offsets[row] for row, power in enumerate(powers)])
    total = len(largest)
    fits = [bits for bits in range(4, 33, 4) if largest.max() < 2**bits]
    right = fits[0] if fits else 32

    def device(shard: Shard, _: Endpoint) -> Program[int]:
        return agree_on_length(shard, largest[shard.devices])

    transport = loopback(cut(edgeless(total), min(shards, total), seed=0))
    agreed, _ = transport.run(device, lambda _: count_objections(np.arange(total)))
    assert set(agreed) == {right}
    assert tuple(range(4, 33, 4)) == LENGTHS


@pytest.mark.parametrize("backend", ["ideal", "secure"])
def test_values_saturate(backend: str) -> None:
    values = np.array([15, 16, 999, 14])
    rounds = [("three_way", 4, [(0, 1), (1, 2), (0, 3), (2, 3)], values)]
    transport = loopback(cut(edgeless(4), 2, seed=0))
    results, _ = transport.run(conversation(rounds, backend), idle_program)
    learned = results[0][0] | results[1][0]
    assert [learned[view] for view in [(0, 1), (1, 2), (0, 3), (2, 3), (3, 2)]] == [0, 0, 1, 1, -1]


@pytest.mark.parametrize("backend", ["ideal", "secure"])
@pytest.mark.parametrize("non_neighbours", [True, False])
def test_a_budget_stops_the_run_before_anything_is_sent(backend: str, non_neighbours: bool) -> None:
    edges = np.empty((0, 2), np.int64) if non_neighbours else np.array([[3, 7], [0, 1]])
    shard = cut(Graph.from_edges(edges, devices=8), 1, seed=0)[0]
    endpoint = Endpoint(shard, ideal=IDEAL_TOPICS)
    comparer = comparer_of(backend, shard, endpoint, budget=1.0)
    transport = loopback([shard])
    values = np.array([5, 6])
    pairs = pairs_of(shard, [(3, 7)])
    results, _ = transport.run(lambda *_: comparer.less(pairs, values, 4), idle_program)
    assert results[0].tolist() == [True, True]
    before = endpoint.ledger.answers.pair_bits(pairs.rows, pairs.slots, pairs.peers).tolist()
    assert before == [1.0, 1.0]
    # Another pair may still compare, this one may not: the whole batch stays at home.
    both = pairs_of(shard, [(0, 1), (3, 7)])
    program = comparer.less(both, np.array([5, 5, 5, 5]), 4)
    with pytest.raises(BudgetExceeded, match="Raise `comparison_budget`") as caught:
        next(program)
    # No value is told, nor who compares with whom.
    assert not set("357") & set(str(caught.value))
    after = endpoint.ledger.answers.pair_bits(both.rows, both.slots, both.peers).tolist()
    assert after == [0.0, 0.0, 1.0, 1.0]
    other = pairs_of(shard, [(0, 1)])
    results, _ = loopback([shard]).run(lambda *_: comparer.less(other, values, 4), idle_program)
    assert results[0].tolist() == [True, True]


def test_a_three_way_answer_needs_more_than_one_bit() -> None:
    shard = cut(edgeless(2), 1, seed=0)[0]
    pairs = pairs_of(shard, [(0, 1)])
    for budget, allowed in [(1.5, False), (math.log2(3), True)]:
        comparer = IdealComparer(shard, Endpoint(shard, ideal=IDEAL_TOPICS), budget)
        program = comparer.three_way(pairs, np.array([1, 2]), 4)
        if allowed:
            next(program)
        else:
            with pytest.raises(BudgetExceeded):
                next(program)


def test_who_compares_with_whom_is_not_shown() -> None:
    shard = cut(edgeless(5000), 1, seed=0)[0]
    assert "4001" not in repr(pairs_of(shard, [(3, 4001)]))


@pytest.mark.parametrize("backend", ["ideal", "secure"])
@pytest.mark.parametrize("deaf", [(0, 1), (2, 5), (4, 5)])
def test_a_peer_that_does_not_answer(backend: str, deaf: tuple[int, int]) -> None:
    """One end believes that they compare, the other does not: the secure one gets no answer."""
    together = [(0, 1), (0, 2), (2, 5), (3, 5), (4, 5)]

    def device(shard: Shard, endpoint: Endpoint) -> Program[Any]:
        hears = [pair for pair in together if pair != deaf or deaf[0] not in shard.devices]
        pairs = pairs_of(shard, hears)
        return comparer_of(backend, shard, endpoint).less(pairs, pairs.rows, 4)

    pieces = cut(edgeless(6), 6, seed=0)
    right, _ = loopback(pieces).run(
        lambda shard, endpoint: comparer_of(backend, shard, endpoint).less(
            pairs_of(shard, together), pairs_of(shard, together).rows, 4
        ),
        idle_program,
    )
    if backend == "ideal":
        with pytest.raises(ProtocolError):
            loopback(pieces).run(device, idle_program)
        return
    got, _ = loopback(pieces).run(device, idle_program)
    for number, (mine, honest) in enumerate(zip(got, right, strict=True)):
        peers = [other for pair in together if number in pair for other in pair if other != number]
        for place, peer in enumerate(sorted(peers)):
            if number == deaf[0] and peer == deaf[1]:
                honest = np.delete(honest, place)
            elif {number, peer} == set(deaf):
                assert not mine[place]
                mine = np.delete(mine, place)
                honest = np.delete(honest, place)
        assert mine.tolist() == honest.tolist()
