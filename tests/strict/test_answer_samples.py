"""Answers to whoever asks: the exact distribution, by counting all ordered draws.

A run has thousands of equal stars, each with coins of its own: as many independent draws. Power:
with 6,000 of them, one category whose share is off by 0.06 moves p below 1e-6 (broken twins below).
"""

from collections import Counter
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chisquare

from lumos.device.shard import Shard, cut
from lumos.graph import Graph
from lumos.strict import answer_samples as answers
from lumos.strict.answer_samples import Sample, sample
from lumos.strict.relay import PADS

STARS = 6000
SURE = 1e-6
"""Chance that a sound mechanism fails one test."""
MADE_UP = -1


def stars(leaves: int, many: int = STARS) -> Shard:
    """Star i has devices (leaves + 1) · i (its centre), and then its leaves."""
    centres = np.arange(many) * (leaves + 1)
    edges = [np.stack([centres, centres + leaf], 1) for leaf in range(1, leaves + 1)]
    pairs = np.concatenate([np.empty((0, 2), np.int64), *edges])
    return cut(Graph.from_edges(pairs, devices=many * (leaves + 1)), 1, 0)[0]


def drawn(
    shard: Shard, many: int, size: int = 5, purpose: str = "answer/0", hop: int = 0
) -> Sample:
    symbols = (np.arange(len(shard.owner)) % size).astype(np.uint8)
    return sample(shard, symbols, np.full(size, 1 / size), many, purpose, hop)


def with_slots(drawn_sample: Sample) -> Sample:
    """The sample with slots in place of values: whose symbol is told."""
    slots: Any = drawn_sample.slots
    return Sample(slots, slots)


def places(shard: Shard, drawn_sample: Sample, leaves: int) -> np.ndarray:
    """[stars, many + 1] which neighbour of the centre an entry came from, or MADE_UP."""
    centres = np.arange(0, len(shard), leaves + 1)
    slots = drawn_sample.slots[centres]
    return np.where(slots < 0, MADE_UP, slots - shard.offsets[centres][:, None])


def exact(leaves: int, many: int, of: int, pads: int | None = None) -> Counter[Any]:
    """How many ordered draws of `of` entries give each outcome, from the pool of the rules."""
    spare = max(PADS, many + 1 - leaves) if pads is None else pads
    pool = [*range(leaves), *[MADE_UP] * spare]
    return Counter(permutations(pool, of))


def chance(drawn_sample: np.ndarray, expected: Counter[Any]) -> float:
    """p-value of what was drawn."""
    seen = Counter(map(tuple, drawn_sample.tolist()))
    if seen.keys() - expected.keys():
        return 0.0
    if len(expected) == 1:
        return 1.0
    counts = np.array([seen[outcome] for outcome in expected])
    weights = np.array(list(expected.values()))
    return float(chisquare(counts, weights / weights.sum() * len(drawn_sample)).pvalue)


@pytest.mark.parametrize(
    ("leaves", "many"), [(0, 1), (1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (5, 1)]
)
def test_draws_are_without_replacement_from_all_that_was_received(leaves: int, many: int) -> None:
    shard = stars(leaves)
    drawn_sample = places(shard, drawn(shard, many), leaves)
    assert chance(drawn_sample, exact(leaves, many, many + 1)) > SURE
    assert (
        chance(drawn_sample[:, :many], exact(leaves, many, many)) > SURE
    )  # what strangers are sent


@pytest.mark.parametrize(("leaves", "many"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_a_neighbour_is_told_the_same_draw_without_itself(leaves: int, many: int) -> None:
    """As if it had not been in the pool: what is left of a draw without replacement is one."""
    shard = stars(leaves)
    drawn_sample = drawn(shard, many)
    names = with_slots(drawn_sample).for_neighbours(shard.owner)
    own = np.arange(len(shard.owner))
    assert names.shape == (len(own), many)
    assert not (names == own[:, None]).any()
    spare = max(PADS, many + 1 - leaves)
    for leaf in range(leaves):  # what this leaf of every star is sent by the centre
        centres = np.arange(0, len(shard), leaves + 1)
        sent = names[shard.offsets[centres] + leaf]
        sent = np.where(sent < 0, MADE_UP, sent - shard.offsets[centres][:, None])
        pool = [*(set(range(leaves)) - {leaf}), *[MADE_UP] * spare]
        assert chance(sent, Counter(permutations(pool, many))) > SURE


@pytest.mark.parametrize("size", [2, 8, 256])
def test_made_up_symbols_have_the_given_frequencies(size: int) -> None:
    shard = stars(1)
    frequency = np.arange(1.0, size + 1) / (size * (size + 1) / 2)
    symbols = np.zeros(len(shard.owner), np.uint8)
    drawn_sample = sample(shard, symbols, frequency, 3, "answer/0", 0)
    counts = np.bincount(drawn_sample.values[drawn_sample.slots < 0], minlength=size)
    assert chisquare(counts, counts.sum() * frequency).pvalue > SURE


@pytest.mark.parametrize("size", [2, 8, 256])
def test_made_up_ones_are_uniform_where_all_is(size: int) -> None:
    shard = stars(1)
    drawn_sample = drawn(shard, 3, size)
    made = drawn_sample.values[drawn_sample.slots < 0]
    counts = np.bincount(made, minlength=size)
    assert len(counts) == size
    assert chisquare(counts).pvalue > SURE
    # Those of one device have nothing to do with each other.
    one, other = drawn_sample.values[::2, 0], drawn_sample.values[::2, 1]
    both = (drawn_sample.slots[::2, :2] < 0).all(axis=1)
    if size == 2:
        assert chisquare(np.bincount(2 * one[both] + other[both], minlength=4)).pvalue > SURE


@pytest.mark.parametrize("many", [1, 8, 64])
def test_every_degree_tells_as_many(many: int) -> None:
    degrees = sorted({0, 1, max(many - 1, 1), many, many + 1, 3 * many + 5})
    edges, last = [], len(degrees)
    for centre, degree in enumerate(degrees):
        edges += [(centre, last + leaf) for leaf in range(degree)]
        last += degree
    shard = cut(Graph.from_edges(np.array(edges), devices=last), 1, 0)[0]
    symbols = np.arange(len(shard.owner)).astype(np.uint8)
    drawn_sample = sample(shard, symbols, np.full(256, 1 / 256), many, "answer/0", 1)
    assert drawn_sample.for_strangers().shape == (last, many)
    near = drawn_sample.for_neighbours(shard.owner)
    assert near.shape == (len(shard.owner), many)
    for device in range(last):
        slots = drawn_sample.slots[device]
        real = slots[slots >= 0]
        degree = int(shard.degree[device])
        assert len(set(real)) == len(real) <= degree  # each neighbour once at most
        assert set(shard.owner[real]) <= {device}
        assert_array_equal(drawn_sample.values[device][slots >= 0], symbols[real])
        assert (slots < 0).sum() >= (many + 1 - degree)  # the rest is made up
    # The only neighbour of a device gets only made-up symbols.
    names = with_slots(drawn_sample).for_neighbours(shard.owner)
    assert (names[shard.degree[shard.owner] == 1] < 0).all()
    assert not (names == np.arange(len(names))[:, None]).any()


def test_draws_are_made_once_and_apart() -> None:
    """The same again for the same hop and kind; nothing in common between two."""
    shard = stars(3, 2000)
    first = drawn(shard, 2)
    again = drawn(shard, 2)
    assert_array_equal(first.values, again.values)
    assert_array_equal(first.slots, again.slots)
    centres = np.arange(0, len(shard), 4)
    for other in (drawn(shard, 2, hop=1), drawn(shard, 2, purpose="answer/1")):
        same = (first.slots[centres, 0] == other.slots[centres, 0]).mean()
        expected = 3 / 25 + (2 / 5) ** 2  # each of three neighbours, or both made up
        assert same == pytest.approx(expected, abs=6 * 0.5 / np.sqrt(len(centres)))


class TestBrokenTwins:
    """What the tests above would say of pools that break a rule."""

    def test_a_pool_without_made_up_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(answers, "PADS", 0)
        shard = stars(3)
        drawn_sample = places(shard, drawn(shard, 2), 3)
        assert chance(drawn_sample, exact(3, 2, 3, pads=PADS)) < SURE

    def test_draws_with_replacement(self) -> None:
        rng = np.random.default_rng(0)
        drawn_sample = rng.integers(0, 5, (STARS, 2))
        drawn_sample = np.where(drawn_sample >= 3, MADE_UP, drawn_sample)
        assert chance(drawn_sample, exact(3, 1, 2)) < SURE

    def test_one_more_made_up_than_there_should_be(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(answers, "PADS", PADS + 1)
        shard = stars(5)
        drawn_sample = places(shard, drawn(shard, 1), 5)
        assert chance(drawn_sample, exact(5, 1, 2, pads=PADS)) < SURE

    def test_a_neighbour_who_gets_what_strangers_get(self) -> None:
        shard = stars(2)
        drawn_sample = drawn(shard, 1)
        sent = with_slots(drawn_sample).for_strangers()[shard.owner]
        assert (sent == np.arange(len(sent))[:, None]).any()
