"""The order of the ring: a permutation and its inverse, uniform, small where little is asked."""

import tracemalloc
from itertools import combinations, permutations

import numpy as np
import pytest
from scipy import stats

from lumos.secagg.mask_graph import TABLE, KeyedPermutation, MaskGraph, RingOrder, sorted_order

SEED = bytes(range(32))


def seed_of(number: int) -> bytes:
    return number.to_bytes(32, "little")


@pytest.mark.parametrize("totals", [range(1, 101), range(101, 201), (1000, 4097, 65_537, 100_003)])
def test_a_bijection_and_its_inverse(totals: range) -> None:
    for total in totals:
        network = KeyedPermutation(total, SEED)
        everyone = np.arange(total)
        ids = network.forward(everyone)
        assert np.array_equal(np.sort(ids), everyone)
        assert np.array_equal(network.backward(ids), everyone)


def test_rounds_are_what_the_description_says() -> None:
    """One value, recomputed with plain numbers from the network's tables."""
    total = 4097
    network = KeyedPermutation(total, SEED)
    left_size, right_size = 65, 64
    value = 1234
    while True:
        left, right = divmod(value, right_size)
        for number, table in enumerate(network._tables):
            if number % 2 == 0:
                left = (left + int(table[right])) % left_size
            else:
                right = (right + int(table[left])) % right_size
        value = left * right_size + right
        if value < total:
            break
    assert network.forward(np.array([1234])).tolist() == [value]


def test_every_order_of_four_is_as_frequent() -> None:
    """All 24 permutations, odd ones too: halves of bits alone would give the even ones."""
    counts = dict.fromkeys(permutations(range(4)), 0)
    runs = 4800
    for number in range(runs):
        counts[tuple(KeyedPermutation(4, seed_of(number)).forward(np.arange(4)).tolist())] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_images_and_neighbours_are_uniform() -> None:
    """Of a larger network, over many seeds: where an id stands, and who stands beside it."""
    total, runs, cells = 5000, 4000, 20
    places, steps = [], []
    for number in range(runs):
        order = RingOrder(total, seed_of(number))
        place = order.place_of(np.array([17]))
        places.append(int(place[0]))
        steps.append(int((order.id_at((place + 1) % total)[0] - 17) % total))
    assert 0 not in steps
    for values in (places, steps):
        counts = np.bincount(np.array(values) * cells // total, minlength=cells)
        assert stats.chisquare(counts).pvalue > 1e-4


def test_the_whole_order_and_single_places_agree() -> None:
    for total in (TABLE - 1, TABLE, TABLE + 1, 20_000):
        few, whole = RingOrder(total, SEED), RingOrder(total, SEED)
        some = np.arange(0, total, 97)
        assert np.array_equal(few.id_at(some), whole.ids[some])
        assert np.array_equal(few.place_of(some), whole.places[some])
        assert np.array_equal(whole.id_at(some), whole.ids[some])  # from the table
        assert np.array_equal(whole.place_of(some), whole.places[some])
    assert np.array_equal(RingOrder(TABLE, SEED).ids, sorted_order(TABLE, SEED))


def test_slots_mirror_on_a_large_ring() -> None:
    total, k = 50_000, 90
    graph = MaskGraph(total, k, SEED)
    devices = np.array([0, 1, 31_415, total - 1])
    neighbours = graph.of(devices)
    assert all(len(set(row.tolist())) == k for row in neighbours)
    for slot in range(k):
        assert (graph.slots(devices, neighbours[:, slot]) == slot).all()
        assert (graph.slots(neighbours[:, slot], devices) == k - 1 - slot).all()


def test_one_device_of_a_million_needs_little_memory() -> None:
    tracemalloc.start()
    try:
        graph = MaskGraph(1_000_000, 108, SEED)
        neighbours = graph.of(np.array([123_456]))
        graph.slots(np.repeat(123_456, 108), neighbours[0])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000  # one table of the order has 8,000,000 bytes


def is_odd(order: np.ndarray) -> bool:
    """A permutation is odd if its length less the number of its cycles is."""
    seen, cycles = np.zeros(len(order), np.bool_), 0
    for start in range(len(order)):
        cycles += not seen[start]
        while not seen[start]:
            seen[start] = True
            start = order[start]
    return (len(order) - cycles) % 2 == 1


def test_only_even_orders_where_both_halves_are_odd_and_still_uniform_sets() -> None:
    """The whole order is told from a uniform one; the places of two colluders of nine are not."""
    assert not any(
        is_odd(KeyedPermutation(65 * 65, seed_of(number)).forward(np.arange(65 * 65)))
        for number in range(3)
    )
    sets = dict.fromkeys(combinations(range(9), 2), 0)
    for number in range(3600):
        order = KeyedPermutation(9, seed_of(number)).forward(np.arange(9))
        assert number > 100 or not is_odd(order)
        first, second = sorted(np.flatnonzero(order < 2).tolist())
        sets[first, second] += 1
    assert stats.chisquare(list(sets.values())).pvalue > 1e-4
