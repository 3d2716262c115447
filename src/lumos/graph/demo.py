"""The embedded demo graph: made by a documented generator, needs no file and no network.

The model is a degree-corrected block model, drawn by weighted endpoint sampling.

- *Communities.* n devices fall into 6 communities of unequal size (the largest about twice the
  smallest). The label of a device is its community.
- *Degrees.* Device i has the weight w_i = (1 - r_i)^(-1 / (γ - 1)), r_i uniform, that is a power
  law with exponent γ = 2.7, cut off at √n times the smallest so that no device knows everybody.
- *Edges.* About 5 n edges are drawn. One end is device i with probability w_i / Σ w. The other is
  drawn in the same way, with probability 0.6 from the community of the first end, otherwise from
  all devices. Repeated draws and self-loops fall away (and are not counted: they are no fault of
  a source).
- *Words.* Each community has 60 words of its own in a vocabulary of 600. A device holds 3 to 12
  words; each is, with probability 0.4, a word of its community, otherwise one of the whole
  vocabulary. Within either set, low-numbered words are more common (the density falls as the
  square root).

So a device's own words give its community away only in part, and its neighbours' words add to it.
Everything is vectorised: a million devices take seconds. Only uniform doubles are drawn, because
their stream is what NumPy keeps stable between releases. The seed is a constant of this module and
not the run seed: `demo` is the same graph in every run.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lumos.errors import UsageError
from lumos.graph.arrays import distinct, freeze, neighbour_lists
from lumos.graph.graph import Graph
from lumos.graph.io import NOT_ASKED
from lumos.typing import Doubles, Ints

if TYPE_CHECKING:
    from scipy.sparse import csr_array

DEVICES = 2000
SEED = 20230401

LARGEST = 50_000_000
SLICE = 1 << 20
"""So many draws are made at a time."""
MEAN_DEGREE = 10
EXPONENT = 2.7
SAME_COMMUNITY = 0.60
COMMUNITIES = ("art", "food", "music", "science", "sport", "travel")
SHARES = (0.12, 0.13, 0.15, 0.17, 0.20, 0.23)
VOCABULARY = 600
OWN_WORDS = 60
OWN_WORD = 0.40
MIN_WORDS, MAX_WORDS = 3, 12


def demo_graph(devices: int = DEVICES, *, features: bool = True, seed: int = SEED) -> Graph:
    """Generate the demo graph with `devices` devices; see the module for the model."""
    drawn = DemoDraws(devices, seed)
    lists = neighbour_lists(np.concatenate([*drawn.pairs()]), devices)
    labels = drawn.labels
    return Graph(
        offsets=freeze(lists.offsets, np.int64, own=True),
        neighbours=freeze(lists.neighbours, np.int64, own=True),
        ids=np.arange(devices, dtype=np.int64),
        features=drawn.words(0, devices) if features else None,
        labels=labels,
        classes=COMMUNITIES,
        name=demo_name(devices),
        notes=() if features else (NOT_ASKED,),
    )


def demo_name(devices: int) -> str:
    """Return the name of the demo graph of this size."""
    return "demo" if devices == DEVICES else f"demo:{devices}"


class DemoDraws:
    """The random choices behind a demo graph, of which any slice can be drawn on its own.

    The generator draws one double after the other and can jump to any of them. Edges take, in this
    order, n doubles for the numbers of devices, n for their weights, and three times as many as
    there are draws of edges. Words have their own randomness: with and without features the edges
    are the same.
    """

    def __init__(self, devices: int, seed: int = SEED) -> None:
        if not 2 <= devices <= LARGEST:
            raise UsageError(f"demo needs 2 to {LARGEST:,} devices; got {devices:,}")
        self.devices = devices
        self.draws = MEAN_DEGREE * devices // 2
        """Draws of edges; repeated ones and self-loops fall away."""
        self._seed = seed
        # Devices stand in the order of their communities while edges are drawn, so that a community
        # is an interval; `number` then hides that order.
        self._bounds = np.rint(np.cumsum((0.0, *SHARES)) * devices).astype(np.int64)
        self._community = np.repeat(np.arange(len(SHARES)), np.diff(self._bounds))
        self._number = np.argsort(_uniform(seed, 0, devices), kind="stable")
        self.labels = np.empty(devices, dtype=np.int64)
        """[devices] the community of each."""
        self.labels[self._number] = self._community

    def pairs(self) -> Iterator[Ints]:
        """[draws, 2] in slices: pairs of devices, each end in proportion to its weight."""
        n, draws, bounds = self.devices, self.draws, self._bounds
        weight = (1.0 - _uniform(self._seed, n, n)) ** (-1.0 / (EXPONENT - 1.0))
        np.minimum(weight, max(2.0, n**0.5), out=weight)
        reach = np.concatenate([[0.0], np.cumsum(weight)])
        # In ascending order, for the search is ten times as fast; the other end is independent.
        position = _uniform(self._seed, 2 * n, draws)
        position.sort()
        for start in range(0, draws, SLICE):
            count = min(SLICE, draws - start)
            first = _device_at(position[start : start + count] * reach[-1], reach)
            group = self._community[first]
            same = _uniform(self._seed, 2 * n + draws + start, count) < SAME_COMMUNITY
            low = np.where(same, reach[bounds[group]], 0.0)
            high = np.where(same, reach[bounds[group + 1]], reach[-1])
            place = low + _uniform(self._seed, 2 * n + 2 * draws + start, count) * (high - low)
            yield self._number[np.stack([first, _device_at(place, reach)], axis=1)]

    def words(self, low: int, high: int) -> "csr_array[np.float32, tuple[int, int]]":
        """[high - low, words] of the devices low … high - 1."""
        seed, total = self._seed + 1, int(self._words_before[-1])
        before = self._words_up_to(low)
        count = np.concatenate([np.empty(0, np.int64), *self._word_counts(low, high)])
        held = int(count.sum())
        own = _uniform(seed, self.devices + before, held)
        rank = _uniform(seed, self.devices + total + before, held)
        return _held_words(self.labels[low:high], count, own, rank, VOCABULARY)

    @cached_property
    def _words_before(self) -> Ints:
        """[slices + 1] words that the devices of all slices before draw."""
        sums = [int(count.sum()) for count in self._word_counts(0, self.devices)]
        return np.cumsum([0, *sums])

    def _words_up_to(self, device: int) -> int:
        """Words that all devices before this one draw."""
        inside = self._word_counts(device // SLICE * SLICE, device)
        return int(self._words_before[device // SLICE]) + sum(int(c.sum()) for c in inside)

    def _word_counts(self, low: int, high: int) -> Iterator[Ints]:
        """[high - low] in slices: how many words each device draws."""
        for start in range(low, high, SLICE):
            yield _word_count(_uniform(self._seed + 1, start, min(SLICE, high - start)))


def _uniform(seed: int, start: int, count: int) -> Doubles:
    """[count] doubles of the stream of a seed, from the place `start` on."""
    stream = np.random.PCG64(seed)
    stream.advance(start)
    return np.random.Generator(stream).random(count)


def _device_at(position: Doubles, reach: Doubles) -> Ints:
    """[positions]: the device i with reach[i] <= position < reach[i + 1]."""
    index = np.searchsorted(reach, position, side="right") - 1
    return np.minimum(index, len(reach) - 2)


def words_for(
    labels: Ints, randomness: np.random.Generator
) -> "csr_array[np.float32, tuple[int, int]]":
    """[devices, words]: 1 where a device holds a word, as the module says.

    For structures that come without features. With more than six communities the vocabulary grows
    to 100 words for each; every device needs a label.
    """
    vocabulary = max(VOCABULARY, 100 * (int(labels.max(initial=0)) + 1))
    count = _word_count(randomness.random(len(labels)))
    held = int(count.sum())
    own = randomness.random(held)
    return _held_words(labels, count, own, randomness.random(held), vocabulary)


def _word_count(chance: Doubles) -> Ints:
    span = MAX_WORDS - MIN_WORDS + 1
    return MIN_WORDS + (chance * span).astype(np.int64)


def _held_words(
    labels: Ints, count: Ints, own: Doubles, rank: Doubles, vocabulary: int
) -> "csr_array[np.float32, tuple[int, int]]":
    """[devices, words] from [devices] counts and, for each word, two uniform numbers."""
    from scipy.sparse import csr_array

    devices = len(labels)
    holder = np.repeat(np.arange(devices, dtype=np.int64), count)
    of_community = own < OWN_WORD
    start = np.where(of_community, labels[holder] * OWN_WORDS, 0)
    # The square of a uniform number has a density that falls as the inverse square root.
    word = start + (rank**2 * np.where(of_community, OWN_WORDS, vocabulary)).astype(np.int64)
    held = distinct(holder * vocabulary + word)
    holder, word = np.divmod(held, vocabulary)
    offsets = np.zeros(devices + 1, dtype=np.int64)
    np.cumsum(np.bincount(holder, minlength=devices), out=offsets[1:])
    ones = np.ones(len(held), dtype=np.float32)
    return csr_array((ones, word.astype(np.int32), offsets), shape=(devices, vocabulary))
