"""Answers: samples of the symbols that a device received, of one length whatever its degree.

**What of a device's embedding leaves.** Nothing that is computed from it. Scoring a pair needs
data of both ends in one place; here it is a sample of *released* symbols: the device's own, and for
each hop `answer` of those it received, drawn without replacement and once per run. Every asker gets
the same sample; a neighbour's answer excludes the neighbour's own messages.

**Why its form does not show the degree.** Every answer has the same length. Each pool holds at
least `PADS` made-up symbols, and enough of them that it is larger by one than the answer; a device
with few neighbours answers mostly with made-up symbols. Its symbols then look more random, which
remains a hint at its degree: `benchmarks/strict_link_leak.py` measures it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.strict.relay import PADS
from lumos.typing import Bytes, Doubles, Ints


class Sample(NamedTuple):
    """A sample of each hosted device's pool of one hop: one entry more than an answer has."""

    slots: Ints
    """[hosted, many + 1] slot that the symbol was received over; -1 for a made-up one."""
    values: Bytes
    """[hosted, many + 1] the symbols."""

    def for_strangers(self) -> Bytes:
        """[hosted, many] the draws that every asker gets."""
        return self.values[:, :-1]

    def for_neighbours(self, owner: Ints) -> Bytes:
        """[slots, many] the draws that each neighbour gets, without its own messages."""
        theirs = self.slots[owner] == np.arange(len(owner))[:, None]
        theirs[:, -1] |= ~theirs.any(axis=1)  # the same length for all
        many = self.values.shape[1] - 1
        kept: Bytes = self.values[owner][~theirs].reshape(len(owner), many)
        return kept


class Answers(NamedTuple):
    """The answers of all hosted devices: for each kind the own symbol, then draws hop by hop."""

    for_strangers: Bytes
    """[hosted, kinds · (1 + hops · many)] what every asker gets."""
    for_neighbours: Bytes
    """[slots, kinds · (1 + hops · many)] what each neighbour gets."""


def draw_answers(
    shard: Shard, released: Bytes, received: list[Bytes], frequencies: list[Doubles], many: int
) -> Answers:
    """Draw all answers. The same coins give the same answers.

    Args:
        released: [hosted, kinds] the devices' own symbols.
        received: for each hop [slots, kinds] the messages.
        frequencies: for each kind [hops, size], see `sample`.
        many: draws of each hop.
    """
    for_strangers, for_neighbours = [], []
    for kind, by_hop in enumerate(frequencies):
        own = released[:, kind : kind + 1]
        for_strangers.append(own)
        for_neighbours.append(own[shard.owner])
        for hop, frequency in enumerate(by_hop):
            symbols = received[hop][:, kind]
            drawn = sample(shard, symbols, frequency, many, f"answer/{kind}", hop)
            for_strangers.append(drawn.for_strangers())
            for_neighbours.append(drawn.for_neighbours(shard.owner))
    return Answers(np.concatenate(for_strangers, axis=1), np.concatenate(for_neighbours, axis=1))


def check_answers(answers: Bytes, sizes: Sequence[int]) -> None:
    """Check answers that were received.

    Args:
        answers: [pairs, kinds · (1 + hops · many)].
        sizes: number of symbols of each kind.

    Raises:
        ProtocolError: a symbol is out of range.
    """
    for part, size in zip(np.split(answers, len(sizes), axis=1), sizes, strict=True):
        if (part >= size).any():
            raise ProtocolError("an answer names a symbol that does not exist")


def sample(
    shard: Shard, symbols: Bytes, frequency: Doubles, many: int, purpose: str, hop: int
) -> Sample:
    """Draw without replacement from received and made-up symbols. O(slots log slots).

    Args:
        symbols: [slots] received over each slot in this hop.
        frequency: [size] of each symbol in this hop: made-up symbols are drawn from it.
        many: draws in an answer.
        purpose: names the coins, with the hop.
    """
    hosted = len(shard)
    spare = np.maximum(PADS, many + 1 - shard.degree)
    chance = shard.coins.uniform_each(spare, f"{purpose}/made up", hop)
    made = np.searchsorted(np.cumsum(frequency)[:-1], chance, side="right")
    chance = np.concatenate(
        [
            shard.coins.uniform_each(shard.degree, f"{purpose}/heard", hop),
            shard.coins.uniform_each(spare, f"{purpose}/spare", hop),
        ]
    )
    owner = np.concatenate([shard.owner, np.repeat(np.arange(hosted), spare)])
    slots = np.concatenate([np.arange(len(symbols)), np.full(len(made), -1)])
    values = np.concatenate([symbols, made.astype(np.uint8)])
    order = np.lexsort((chance, owner))
    pool = shard.degree + spare
    first = order[(np.cumsum(pool) - pool)[:, None] + np.arange(many + 1)]
    return Sample(slots[first], values[first])
