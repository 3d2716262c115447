"""Similarity of two devices' neighbourhoods: the symbols of one, against the answer of the other.

Device u has received many symbols at each hop, the answer of device v holds a few of each. For
every pair of hops (a, b) their similarity is how much more often u received v's symbols than a
stranger would have:

    mean over v's draws s of hop b:  (count of s at u's hop a  -  degree · P_a(s)) / √(degree + 1)

with P_a(s) the frequency of s in all messages of hop a, all of it times the root of the number of
symbols, so that chance has about the same spread for every kind of symbol. Hop 0 is the device
itself. The scores are learnt from these few numbers alone, so noise in sums does them little harm.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, vstack

from lumos.typing import Bytes, Doubles, Floats, Ints

CHUNK = 8192
"""Pairs at a time: their counts are dense, hops · symbols numbers for each device."""


@dataclass(frozen=True, eq=False)
class ReceivedByHop:
    """The symbols of one kind that devices have received. They stay on the device.

    Args:
        own: [devices, size] hop 0: the device itself, as a vector of mean 0.
        counts: [devices, hops · size] count of each symbol, hop by hop.
        degree: [devices].
    """

    own: Floats
    counts: csr_array
    degree: Doubles

    @staticmethod
    def of(own: Floats, received: list[Bytes], owner: Ints) -> "ReceivedByHop":
        """From the symbols received over each slot, hop by hop."""
        devices, size = own.shape
        columns = np.concatenate(
            [symbols.astype(np.int64) + hop * size for hop, symbols in enumerate(received)]
        )
        rows = np.tile(owner, len(received))
        counts = csr_array(
            (np.ones(len(rows), np.float32), (rows, columns)), (devices, len(received) * size)
        )
        counts.sum_duplicates()
        return ReceivedByHop(own, counts, np.bincount(owner, minlength=devices).astype(np.float64))

    @staticmethod
    def joined(parts: list["ReceivedByHop"], order: Ints) -> "ReceivedByHop":
        """Of several shards, put into the order of the devices."""
        return ReceivedByHop(
            np.concatenate([part.own for part in parts])[order],
            csr_array(vstack([part.counts for part in parts]).tocsr()[order]),
            np.concatenate([part.degree for part in parts])[order],
        )

    @property
    def size(self) -> int:
        """Number of symbols."""
        return int(self.own.shape[1])

    @property
    def hops(self) -> int:
        """How far symbols travelled."""
        return int(self.counts.shape[1]) // self.size

    def counts_at(self, hop: int) -> Doubles:
        """[devices, size] count of each symbol at a hop."""
        here = self.counts[:, (hop - 1) * self.size : hop * self.size]
        return np.asarray(here.toarray(), np.float64)


def similarity(
    received: ReceivedByHop,
    frequencies: Doubles,
    rows: Ints,
    answers: Bytes,
    excluded: Bytes | None = None,
) -> Doubles:
    """[pairs, (hops + 1)²] similarities of the asker's and the answerer's neighbourhoods.

    Args:
        frequencies: [hops, size] of each symbol in all messages of a hop.
        rows: [pairs] position of the asker.
        answers: [pairs, 1 + hops · many] the answerer's own symbol, then its draws hop by hop.
        excluded: [pairs, hops] the answerer's own messages to the asker, which do not count.
    """
    chunks = [
        _similarity(
            received,
            frequencies,
            rows[start : start + CHUNK],
            answers[start : start + CHUNK].astype(np.int64),
            None if excluded is None else excluded[start : start + CHUNK],
        )
        for start in range(0, len(rows), CHUNK)
    ]
    return np.concatenate(chunks) if chunks else np.empty((0, (received.hops + 1) ** 2))


def _similarity(
    received: ReceivedByHop, frequencies: Doubles, rows: Ints, answers: Ints, excluded: Bytes | None
) -> Doubles:
    hops, size = received.hops, received.size
    askers, place = np.unique(rows, return_inverse=True)
    counts = received.counts[askers].toarray().reshape(len(askers), hops, size)
    degree = received.degree[rows][:, None] - (excluded is not None)
    many = (answers.shape[1] - 1) // hops
    draws = [answers[:, :1]] + [answers[:, 1 + b * many : 1 + (b + 1) * many] for b in range(hops)]
    columns = [received.own[rows[:, None], draw].mean(axis=1) for draw in draws]
    for a in range(hops):
        for draw in draws:
            count = counts[place[:, None], a, draw].astype(np.float64)
            if excluded is not None:
                count -= draw == excluded[:, a : a + 1]
            excess = (count - degree * frequencies[a, draw]).mean(axis=1)
            columns.append(excess / np.sqrt(degree[:, 0] + 1))
    similarities: Doubles = np.stack(columns, axis=1) * np.sqrt(size)
    return similarities
