"""How alike two devices' surroundings are: what one has heard, compared with what another tells.

Device u has heard many symbols at each hop, device v tells a few of each. For every pair of hops
(a, b) their likeness is how much more often u has heard what v tells than a stranger would have:

    mean over v's draws s of hop b:  (times u heard s at hop a  -  degree · P_a(s)) / √(degree + 1)

with P_a(s) the share of s among everything that is heard at hop a, and all of it times the root of
the number of symbols, so that chance has about the same spread for every kind of symbol. Hop 0 is
the device itself. These few numbers are all that is learnt from, so noise in sums can hardly hurt.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, vstack

from lumos.typing import Bytes, Doubles, Floats, Ints

CHUNK = 8192
"""Pairs at a time: their counts are dense, hops · symbols numbers for each device."""


@dataclass(frozen=True, eq=False)
class ReceivedByHop:
    """What devices have heard of one kind of symbol, at home.

    Args:
        own: [devices, size] hop 0: what the device is itself, of mean 0.
        counts: [devices, hops · size] how often each symbol came, hop by hop.
        degree: [devices].
    """

    own: Floats
    counts: csr_array
    degree: Doubles

    @staticmethod
    def of(own: Floats, said: list[Bytes], owner: Ints) -> "ReceivedByHop":
        """From what came over each slot, hop by hop."""
        devices, size = own.shape
        columns = np.concatenate(
            [symbols.astype(np.int64) + hop * size for hop, symbols in enumerate(said)]
        )
        rows = np.tile(owner, len(said))
        counts = csr_array(
            (np.ones(len(rows), np.float32), (rows, columns)), (devices, len(said) * size)
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
        """[devices, size] how often each symbol came at a hop."""
        here = self.counts[:, (hop - 1) * self.size : hop * self.size]
        return np.asarray(here.toarray(), np.float64)


def likeness(
    heard: ReceivedByHop, usual: Doubles, rows: Ints, told: Bytes, left_out: Bytes | None = None
) -> Doubles:
    """[pairs, (hops + 1)²] how alike the asker's and the teller's surroundings are.

    Args:
        usual: [hops, size] share of each symbol among all that is heard at a hop.
        rows: [pairs] position of the asker.
        told: [pairs, 1 + hops · many] the teller's own symbol, then its draws hop by hop.
        left_out: [pairs, hops] what came from the teller itself, which does not count.
    """
    found = [
        _likeness(
            heard,
            usual,
            rows[start : start + CHUNK],
            told[start : start + CHUNK].astype(np.int64),
            None if left_out is None else left_out[start : start + CHUNK],
        )
        for start in range(0, len(rows), CHUNK)
    ]
    return np.concatenate(found) if found else np.empty((0, (heard.hops + 1) ** 2))


def _likeness(
    heard: ReceivedByHop, usual: Doubles, rows: Ints, told: Ints, left_out: Bytes | None
) -> Doubles:
    hops, size = heard.hops, heard.size
    known, place = np.unique(rows, return_inverse=True)
    counts = heard.counts[known].toarray().reshape(len(known), hops, size)
    degree = heard.degree[rows][:, None] - (left_out is not None)
    many = (told.shape[1] - 1) // hops
    draws = [told[:, :1]] + [told[:, 1 + b * many : 1 + (b + 1) * many] for b in range(hops)]
    columns = [heard.own[rows[:, None], draw].mean(axis=1) for draw in draws]
    for a in range(hops):
        for draw in draws:
            times = counts[place[:, None], a, draw].astype(np.float64)
            if left_out is not None:
                times -= draw == left_out[:, a : a + 1]
            more = (times - degree * usual[a, draw]).mean(axis=1)
            columns.append(more / np.sqrt(degree[:, 0] + 1))
    found: Doubles = np.stack(columns, axis=1) * np.sqrt(size)
    return found
