"""Which pairs a device trains on: slots drawn without replacement, and the rank of a pair."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chisquare

from lumos.device.shard import Shard, cut
from lumos.graph import Graph
from lumos.strict.pair_exchange import rank, sample_slots

SURE = 1e-6


def stars(leaves: int, count: int, seed: int = 0) -> Shard:
    """`count` stars in one shard, with centres 0, `leaves` + 1, …"""
    size = leaves + 1
    edges = [(size * s, size * s + leaf) for s in range(count) for leaf in range(1, size)]
    return cut(Graph.from_edges(np.array(edges), devices=size * count), 1, seed)[0]


@pytest.mark.parametrize("many", [1, 3, 4, 9])
def test_at_most_so_many_slots_of_each_device(many: int) -> None:
    shard = stars(5, 20)
    slots = sample_slots(shard, many)
    assert_array_equal(slots, np.unique(slots))  # in order, none twice
    kept = np.bincount(shard.owner[slots], minlength=len(shard))
    assert_array_equal(kept, np.minimum(shard.degree, many))
    assert_array_equal(slots, sample_slots(shard, many))  # the same coins, the same slots


def test_slots_are_drawn_uniformly() -> None:
    shard = stars(5, 2000)
    slots = sample_slots(shard, 2)
    centre = shard.degree[shard.owner[slots]] == 5
    place = slots[centre] - shard.offsets[:-1][shard.owner[slots[centre]]]
    pairs = place.reshape(-1, 2)
    counts = np.bincount(5 * pairs[:, 0] + pairs[:, 1], minlength=25)
    drawn = counts[counts > 0]
    assert len(drawn) == 10  # every pair of 5 slots
    assert chisquare(drawn).pvalue > SURE


def test_rank_counts_earlier_pairs_of_the_same_asker() -> None:
    rows = np.array([0, 0, 0, 2, 5, 5])
    assert_array_equal(rank(rows, 7), [0, 1, 2, 0, 0, 1])
    assert rank(np.empty(0, np.int64), 3).shape == (0,)
