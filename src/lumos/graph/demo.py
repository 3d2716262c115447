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
    """Generate the demo graph with `devices` devices; see the module for the model.

    Words have their own randomness: with and without features the edges are the same.
    """
    if not 2 <= devices <= LARGEST:
        raise UsageError(f"demo needs 2 to {LARGEST:,} devices; got {devices:,}")
    # Devices stand in the order of their communities while edges are drawn, so that a community is
    # an interval; `number` then hides that order.
    bounds = np.rint(np.cumsum((0.0, *SHARES)) * devices).astype(np.int64)
    community = np.repeat(np.arange(len(SHARES)), np.diff(bounds))
    number = np.argsort(_uniform(seed, 0, devices), kind="stable")
    labels = np.empty(devices, dtype=np.int64)
    labels[number] = community
    pairs = [number[some] for some in _pairs(seed, bounds, community)]
    lists = neighbour_lists(np.concatenate(pairs), devices)
    words = None
    if features:
        words = words_for(labels, np.random.Generator(np.random.PCG64(seed + 1)))
    return Graph(
        offsets=freeze(lists.offsets, np.int64, own=True),
        neighbours=freeze(lists.neighbours, np.int64, own=True),
        ids=np.arange(devices, dtype=np.int64),
        features=words,
        labels=labels,
        classes=COMMUNITIES,
        name="demo" if devices == DEVICES else f"demo:{devices}",
        notes=() if features else (NOT_ASKED,),
    )


def _pairs(seed: int, bounds: Ints, community: Ints) -> Iterator[Ints]:
    """Yield [draws, 2] in slices: places of devices, each end in proportion to its weight.

    After n doubles for the numbers of devices, the stream has n for their weights, and three times
    as many as there are draws.
    """
    n = len(community)
    draws = MEAN_DEGREE * n // 2
    weight = (1.0 - _uniform(seed, n, n)) ** (-1.0 / (EXPONENT - 1.0))
    np.minimum(weight, max(2.0, n**0.5), out=weight)
    reach = np.concatenate([[0.0], np.cumsum(weight)])
    # In ascending order, for the search is ten times as fast; the other end is independent.
    position = _uniform(seed, 2 * n, draws)
    position.sort()
    for start in range(0, draws, SLICE):
        count = min(SLICE, draws - start)
        first = _device_at(position[start : start + count] * reach[-1], reach)
        group = community[first]
        same = _uniform(seed, 2 * n + draws + start, count) < SAME_COMMUNITY
        low = np.where(same, reach[bounds[group]], 0.0)
        high = np.where(same, reach[bounds[group + 1]], reach[-1])
        place = low + _uniform(seed, 2 * n + 2 * draws + start, count) * (high - low)
        yield np.stack([first, _device_at(place, reach)], axis=1)


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

    Also for structures that come without features. With more than six communities the vocabulary
    grows to 100 words for each; every device needs a label.
    """
    from scipy.sparse import csr_array

    devices = len(labels)
    vocabulary = max(VOCABULARY, 100 * (int(labels.max(initial=0)) + 1))
    span = MAX_WORDS - MIN_WORDS + 1
    count = MIN_WORDS + (randomness.random(devices) * span).astype(np.int64)
    holder = np.repeat(np.arange(devices, dtype=np.int64), count)
    of_community = randomness.random(len(holder)) < OWN_WORD
    start = np.where(of_community, labels[holder] * OWN_WORDS, 0)
    # The square of a uniform number has a density that falls as the inverse square root.
    rank = randomness.random(len(holder)) ** 2
    word = start + (rank * np.where(of_community, OWN_WORDS, vocabulary)).astype(np.int64)
    held = distinct(holder * vocabulary + word)
    holder, word = np.divmod(held, vocabulary)
    offsets = np.zeros(devices + 1, dtype=np.int64)
    np.cumsum(np.bincount(holder, minlength=devices), out=offsets[1:])
    ones = np.ones(len(held), dtype=np.float32)
    return csr_array((ones, word.astype(np.int32), offsets), shape=(devices, vocabulary))
