"""ε by receiver: against a dictionary of pairs, however releases are spread over neighbours."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lumos.device import COORDINATOR, Shard, cut
from lumos.exchange.counts import Spending
from lumos.graph import Graph

DEVICES = 12
Release = tuple[np.ndarray, np.ndarray, np.ndarray, bool]


def shard_of(seed: int, shards: int = 1) -> Shard:
    edges = np.random.default_rng(seed).integers(0, DEVICES - 1, (30, 2))  # the last is alone
    return cut(Graph.from_edges(edges, devices=DEVICES), shards, seed=0)[0]


def expected(hosted: int, releases: list[Release]) -> tuple[list[float], list[float]]:
    pairs: dict[bool, dict[tuple[int, int], float]] = {False: {}, True: {}}
    for rows, receivers, epsilon, common in releases:
        of_kind = pairs[common]
        for row, receiver, spent in zip(rows, receivers, epsilon, strict=True):
            of_kind[row, receiver] = of_kind.get((row, receiver), 0.0) + spent
    largest, together = [], []
    for row in range(hosted):
        met = sorted({pair[1] for kind in pairs.values() for pair in kind if pair[0] == row})
        apart, alike = ([pairs[kind].get((row, one), 0.0) for one in met] for kind in (False, True))
        both = [one + other for one, other in zip(apart, alike, strict=True)]
        largest.append(max(both, default=0.0))
        together.append(sum(apart) + max(alike, default=0.0))
    return largest, together


def to_everybody(shard: Shard, epsilon: float, common: bool) -> Release:
    many = len(shard.owner)
    return shard.owner, shard.neighbours, np.broadcast_to(np.float64(epsilon), many), common


def to_some(shard: Shard, rng: np.random.Generator, common: bool) -> Release:
    slots = rng.permutation(len(shard.owner))[: rng.integers(1, 9)]
    return shard.owner[slots], shard.neighbours[slots], rng.random(len(slots)), common


def of_some_senders(shard: Shard, rng: np.random.Generator, common: bool) -> Release:
    slots = np.flatnonzero(np.isin(shard.owner, rng.integers(0, len(shard), 4)))
    by_sender = rng.random(len(shard))
    return shard.owner[slots], shard.neighbours[slots], by_sender[shard.owner[slots]], common


def to_non_neighbours(shard: Shard, rng: np.random.Generator, common: bool) -> Release:
    rows = rng.integers(0, len(shard), 6)
    return rows, rng.integers(COORDINATOR, DEVICES, 6), rng.random(6), common


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_totals_are_those_of_a_dictionary(seed: int, shards: int) -> None:
    rng = np.random.default_rng(seed)
    shard = shard_of(seed, shards)
    releases: list[Release] = []
    spending = Spending(shard)
    kinds = [to_some, of_some_senders, of_some_senders, to_non_neighbours]
    for _ in range(6):
        common = bool(rng.integers(0, 2)) if seed % 3 else True
        choice = rng.integers(0, 5 if seed % 2 else 3)
        made = (
            to_everybody(shard, float(rng.random()), common)
            if choice == 0
            else kinds[choice - 1](shard, rng, common)
        )
        releases.append(made)
        spending.add(*made[:3], common=made[3])
        largest, together = spending.totals()
        wanted = expected(len(shard), releases)
        assert_array_equal(largest, wanted[0])
        np.testing.assert_allclose(together, wanted[1], rtol=1e-12)


def test_a_release_to_everybody_counts_once_where_it_is_common() -> None:
    shard = shard_of(0)
    for common in (False, True):
        spending = Spending(shard)
        spending.add(*to_everybody(shard, 0.5, common)[:3], common=common)
        spending.add(*to_everybody(shard, 0.25, common)[:3], common=common)
        largest, together = spending.totals()
        assert_array_equal(largest, np.where(shard.degree > 0, 0.75, 0))
        times = np.minimum(shard.degree, 1) if common else shard.degree
        assert_array_equal(together, 0.75 * times)


def test_the_sender_may_reuse_its_arrays() -> None:
    shard = shard_of(1)
    rows, receivers, epsilon = np.array([0, 1]), np.array([5, 6]), np.array([1.0, 2.0])
    spending = Spending(shard)
    spending.add(rows, receivers, epsilon, common=False)
    for array in (rows, receivers, epsilon):
        array[:] = 3
    assert_array_equal(spending.totals()[0][:2], [1.0, 2.0])


def test_the_coordinator_spends_on_anybody() -> None:
    spending = Spending(None)
    spending.add(np.zeros(3, np.int64), np.array([4, 4, 2]), np.array([1.0, 2.0, 4.0]), common=True)
    assert [part.tolist() for part in spending.totals()] == [[4.0], [4.0]]


def test_what_non_neighbours_got_in_many_releases() -> None:
    shard, rng = shard_of(2), np.random.default_rng(2)
    spending, releases = Spending(shard), []
    for _ in range(1000):
        releases.append(to_non_neighbours(shard, rng, common=False))
        spending.add(*releases[-1][:3], common=False)
    assert_array_equal(spending.totals()[0], expected(len(shard), releases)[0])
