"""Scores in rounds: right levels, two backends that agree, and nothing kept."""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from lumos.crypto.groups import GROUPS
from lumos.device import Shard, cut
from lumos.errors import BadValue, ProtocolError, UsageError
from lumos.exchange import Endpoint, LedgerReport, Program
from lumos.exchange.endpoint import idle_program
from lumos.exchange.transports.loopback import Loopback
from lumos.graph import Graph, demo_graph
from lumos.twoparty.score import (
    IDEAL_TOPICS,
    UNANSWERED,
    IdealScorer,
    LevelSpec,
    Scorer,
    SecureScorer,
    make_scorer,
    messages,
)
from lumos.twoparty.workers import ComparedPairs, InProcess, WorkerProcesses

Differences = Callable[[LedgerReport, LedgerReport], list[str]]
Together = list[tuple[int, int]]
"""Pairs of ids that score, each once."""
Round = tuple[LevelSpec, Together, np.ndarray, dict[tuple[int, int], int]]
"""Spec, pairs, [devices, width] vectors, and by (own id, peer) what an end shifts; or no shifts."""

loopback = partial(Loopback, ideal=IDEAL_TOPICS)
nobody = lambda _: idle_program()  # noqa: E731

SPECS = [
    LevelSpec(width=2, bits=2, ring_bits=4, thresholds=(0,)),
    LevelSpec(width=3, bits=3, ring_bits=6, thresholds=(-4, 0, 5)),
    LevelSpec(width=2, bits=4, ring_bits=8, thresholds=(-20, -9, -1, 0, 3, 10, 30)),
    LevelSpec(width=2, bits=4, ring_bits=8, thresholds=(-5, 5)),
]


def pairs_of(shard: Shard, together: Together) -> ComparedPairs:
    """The pairs of a list, from the view of a shard."""
    hosted = set(shard.devices.tolist())
    views = sorted(
        view for one, two in together for view in ((one, two), (two, one)) if view[0] in hosted
    )
    table = np.array(views, np.int64).reshape(-1, 2)
    return ComparedPairs.of_ids(shard, table[:, 0], table[:, 1])


def scorer_of(name: str, shard: Shard, endpoint: Endpoint, group: str = "ed25519") -> Scorer:
    workers = None if name == "ideal" else InProcess()
    return make_scorer(shard, endpoint, workers, GROUPS[group])


def edgeless(devices: int) -> Graph:
    return Graph.from_edges(np.empty((0, 2), np.int64), devices=devices)


def conversation(
    rounds: list[Round], backend: str, group: str = "ed25519"
) -> Callable[[Shard, Endpoint], Program[list[dict[tuple[int, int], int]]]]:
    """One call after the other."""

    def device(shard: Shard, endpoint: Endpoint) -> Program[list[dict[tuple[int, int], int]]]:
        scorer = scorer_of(backend, shard, endpoint, group)
        learned = []
        for spec, together, vectors, shifted in rounds:
            pairs = pairs_of(shard, together)
            views = list(zip(shard.devices[pairs.rows].tolist(), pairs.peers.tolist(), strict=True))
            shifts = np.array([shifted[view] for view in views], np.int64) if shifted else None
            own = vectors[shard.devices].astype(np.int8)
            levels = yield from scorer.levels(pairs, own, spec, shifts)
            learned.append(dict(zip(views, levels.tolist(), strict=True)))
        return learned

    return device


def random_rounds(devices: int, seed: int, short_vector: Any) -> list[Round]:
    """Neighbours and non-neighbours, pairs that score again, one round without any pair."""
    randomness = np.random.default_rng(seed)
    everyone = list(itertools.combinations(range(devices), 2))
    rounds: list[Round] = []
    for number, spec in enumerate(SPECS):
        chosen = randomness.choice(len(everyone), 9, replace=False)
        together = [everyone[index] for index in sorted(chosen)]
        vectors = np.stack([short_vector(spec, randomness) for _ in range(devices)])
        ends = [end for pair in together for end in (pair, pair[::-1])] if number % 2 else []
        shifts = {end: int(randomness.integers(spec.levels)) for end in ends}
        rounds.append((spec, together, vectors, shifts))
    rounds.insert(2, (SPECS[0], [], np.zeros((devices, 2), np.int64), {}))
    return rounds


@pytest.mark.parametrize(("seed", "group"), [(0, "ed25519"), (1, "ed25519"), (0, "secp256k1")])
def test_ideal_and_secure_agree_on_levels_and_on_every_count(
    seed: int, group: str, ledger_differences: Differences, plain_level: Any, short_vector: Any
) -> None:
    devices = 9
    graph = demo_graph(devices, features=False)
    rounds = random_rounds(devices, seed, short_vector)
    reports = {}
    for backend, shards in itertools.product(["ideal", "secure"], [1, 2, 7, devices]):
        transport = loopback(cut(graph, shards, seed=0))
        results, _ = transport.run(conversation(rounds, backend, group), nobody)
        for number, (spec, together, vectors, shifts) in enumerate(rounds):
            learned = {view: level for result in results for view, level in result[number].items()}
            assert set(learned) == {
                view for one, two in together for view in ((one, two), (two, one))
            }
            for one, two in together:
                level = plain_level(spec, vectors[one], vectors[two])
                for me, peer in ((one, two), (two, one)):  # what the other end adds
                    assert learned[me, peer] == (level + shifts.get((peer, me), 0)) % spec.levels
        reports[backend, shards] = transport.ledger()
    ideal, secure = reports["ideal", 1], reports["secure", 1]
    for shards in (2, 7, devices):
        assert ledger_differences(ideal, reports["ideal", shards]) == []
        assert ledger_differences(secure, reports["secure", shards]) == []
    assert ledger_differences(ideal, secure) == ["topics"]
    booked, sent = ideal.topics["score/ideal"], secure.topics["score"]
    assert (booked.messages, booked.bytes) == (sent.messages, sent.bytes)
    assert ideal.group == secure.group == group
    # Nine sessions of each spec: the opening, a point per coordinate, one per digit of the share.
    points = 9 * sum(1 + spec.digits for spec in SPECS)
    bodies = 9 * sum(
        sum(message.length for message in messages([spec], first=True, point=0)) for spec in SPECS
    )
    assert sent.bytes == points * GROUPS[group].point_bytes + bodies
    assert secure.rounds == 6 * len(rounds)
    assert secure.scores == 9 * len(SPECS)
    assert secure.comparisons == 0
    near = {frozenset(edge) for edge in graph.edge_list().tolist()}
    asked = [frozenset(pair) for _, together, _, _ in rounds for pair in together]
    assert near & set(asked), "some are neighbours"
    assert set(asked) - near, "and some are non-neighbours"
    assert len(asked) > len(set(asked)), "and some score again"


def test_both_ends_count_the_same_bits() -> None:
    """By hand: log2 of the levels, to neighbours and non-neighbours alike."""
    graph = Graph.from_edges(np.array([[0, 1]]), devices=4)
    vectors = np.ones((4, 2), np.int64)
    rounds: list[Round] = [
        (SPECS[0], [(0, 1), (0, 3)], vectors, {}),
        (SPECS[2], [(0, 1), (2, 3)], vectors, {}),
        (SPECS[3], [(0, 1)], vectors, {}),
    ]
    three = math.log2(3)
    for backend, shards in itertools.product(["ideal", "secure"], [1, 4]):
        transport = loopback(cut(graph, shards, seed=0))
        transport.run(conversation(rounds, backend), nobody)
        ledger = transport.ledger()
        assert np.allclose(ledger.device_comparison_bits, [5 + three, 4 + three, 3, 4])
        assert (ledger.scores, ledger.comparisons) == (5, 0)
        assert ledger.comparison_bits == pytest.approx(8 + three)
        assert ledger.bits_per_pair_largest == pytest.approx(4 + three)
        assert ledger.revealed_by(3) == {0: 1.0, 2: 3.0}
        assert ledger.comparison_lengths == ()


@pytest.fixture
def workers() -> Iterator[WorkerProcesses]:
    pool = WorkerProcesses(2)
    yield pool
    pool.close()


def score_all(
    workers: Any, on_steps: Any = None
) -> Callable[[Shard, Endpoint], Program[list[int]]]:
    """All neighbours of a path score twice."""

    def device(shard: Shard, endpoint: Endpoint) -> Program[list[int]]:
        scorer = SecureScorer(shard, endpoint, workers, on_steps)
        pairs = ComparedPairs.of_slots(shard, np.arange(len(shard.neighbours)))
        vectors = np.stack([shard.devices % 7 - 3, shard.devices % 5 - 2], axis=1).astype(np.int8)
        levels = []
        for _ in range(2):
            levels += (yield from scorer.levels(pairs, vectors, SPECS[2])).tolist()
        return levels

    return device


def test_worker_processes_give_the_same_and_keep_nothing(
    workers: WorkerProcesses, must_end: None
) -> None:
    edges = np.stack([np.arange(8), np.arange(1, 9)], axis=1)
    shard = cut(Graph.from_edges(edges, devices=9), 1, seed=0)[0]
    here = InProcess()
    steps: list[int] = []
    (apart,), _ = Loopback([shard]).run(score_all(workers, steps.append), nobody)
    (alone,), _ = Loopback([shard]).run(score_all(here), nobody)
    assert apart == alone
    assert len(set(alone)) > 2
    # Opening, two points, two tables, the level, and the end; eight pairs, twice.
    assert sum(steps) == 7 * 8 * 2
    assert here._parties == {}


@pytest.mark.parametrize("backend", ["ideal", "secure"])
def test_a_vector_that_is_too_long_stays_at_home(backend: str) -> None:
    shard = cut(edgeless(2), 1, seed=0)[0]
    endpoint = Endpoint(shard, ideal=IDEAL_TOPICS)
    scorer = scorer_of(backend, shard, endpoint)
    pairs = pairs_of(shard, [(0, 1)])
    long = np.array([[1, 1], [-7, -7]], np.int8)
    tight = LevelSpec(width=2, bits=4, ring_bits=7, thresholds=(0,))
    with pytest.raises(BadValue, match="squared norm of a vector is above 63") as caught:
        next(scorer.levels(pairs, long, tight))
    assert "7" not in str(caught.value).replace("of 7 bits", "")
    with pytest.raises(BadValue, match="does not have the 3 coordinates"):
        next(scorer.levels(pairs, long, SPECS[1]))
    for shifts in (np.array([8, 0]), np.array([-1, 0]), np.array([1]), np.array([0.0, 0.0])):
        with pytest.raises(UsageError, match="shifts"):
            next(scorer.levels(pairs, long, SPECS[2], shifts))
    # Nothing was counted, since nothing would have been learned.
    assert endpoint.ledger.answers.totals() == {}
    assert endpoint.ledger.scores == 0


def test_the_ideal_backend_needs_permission() -> None:
    shard = cut(edgeless(2), 1, seed=0)[0]
    with pytest.raises(ProtocolError, match="'score/ideal' computes in the clear"):
        IdealScorer(shard, Endpoint(shard))


@pytest.mark.parametrize("backend", ["ideal", "secure"])
@pytest.mark.parametrize("deaf", [(0, 1), (2, 5)])
def test_a_peer_that_does_not_answer(backend: str, deaf: tuple[int, int]) -> None:
    """One end believes that they score, the other does not: the secure one learns no level."""
    together = [(0, 1), (0, 2), (2, 5), (3, 5), (4, 5)]

    def device(shard: Shard, endpoint: Endpoint) -> Program[Any]:
        hears = [pair for pair in together if pair != deaf or deaf[0] not in shard.devices]
        pairs = pairs_of(shard, hears)
        vectors = np.ones((len(shard), 2), np.int8)
        return scorer_of(backend, shard, endpoint).levels(pairs, vectors, SPECS[0])

    transport = loopback(cut(edgeless(6), 6, seed=0))
    if backend == "ideal":
        with pytest.raises(ProtocolError):
            transport.run(device, nobody)
        return
    learnt, _ = transport.run(device, nobody)
    unanswered = [number for number, levels in enumerate(learnt) if UNANSWERED in levels]
    assert unanswered == [deaf[1]]
    assert np.count_nonzero(learnt[deaf[1]] == UNANSWERED) == 1


def test_ideal_scores_are_fast(must_end: None) -> None:
    """A whole link task of fifty thousand pairs, non-neighbours all, in seconds."""
    devices, spec = 4000, LevelSpec(thresholds=(-20, 0, 20))
    randomness = np.random.default_rng(0)
    one = np.repeat(np.arange(devices), 13)
    two = (one + np.tile(np.arange(1, 14), devices)) % devices
    ends = np.concatenate([np.stack([one, two], axis=1), np.stack([two, one], axis=1)])
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
    vectors = randomness.integers(-4, 5, (devices, 24)).astype(np.int8)

    def device(shard: Shard, endpoint: Endpoint) -> Program[Any]:
        pairs = ComparedPairs.of_ids(shard, ends[:, 0], ends[:, 1])
        return IdealScorer(shard, endpoint).levels(pairs, vectors, spec)

    start = time.process_time()
    transport = loopback(cut(edgeless(devices), 1, seed=0))
    (levels,), _ = transport.run(device, nobody)
    assert transport.ledger().scores == 52_000
    assert time.process_time() - start < 5
    products = (vectors[ends[:, 0]].astype(int) * vectors[ends[:, 1]]).sum(axis=1)
    right = (products[:, None] >= np.array(spec.thresholds)).sum(axis=1)
    assert np.array_equal(levels, right)
