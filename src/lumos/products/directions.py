"""The two halves of a product: one device has chosen words, the other has numbers.

A pair computes b_u ⊗ Z_v and b_v ⊗ Z_u, so each device holds one `Multiplier` (its numbers, the
partner's choices: S of `extension`) and one `Chooser` (its choices, the partner's numbers: R).
"""

import numpy as np

from lumos.aggregate.fixed_point import RingWords
from lumos.crypto import entropy
from lumos.crypto.ed25519 import POINT
from lumos.crypto.group import Group
from lumos.crypto.in_memory import InMemoryOnly
from lumos.products.extension import (
    BASE,
    SEED,
    column_bytes,
    masked_columns,
    pads,
    stretch,
    transposed,
)
from lumos.session.lookup import Lookup, Query, ReceiverKeys, SenderKeys
from lumos.typing import Bytes, Flags

_SEED_TABLE = Lookup(widths=(1,), outputs=8 * SEED)
_NAME = b"lumos.products"
POINTS = BASE * POINT
"""Bytes of the points of all base transfers."""


class Chooser(InMemoryOnly):
    """R: holds the choices, and offers both seeds of every base transfer.

    Args:
        chosen: [words] which words the device chose.
    """

    __slots__ = ("_chosen", "_keys", "_rows")

    def __init__(self, chosen: Flags, group: Group) -> None:
        self._chosen = chosen.copy()
        self._keys: SenderKeys | None = SenderKeys(group)
        self._rows: Bytes = np.empty((0, BASE // 8), np.uint8)

    @property
    def A(self) -> bytes:
        """The point that opens the base transfers."""
        return self._base().A

    def columns(self, sid: bytes, points: bytes) -> bytes:
        """The masked columns, in answer to the points of the base transfers."""
        keys = self._base()
        keys.bind(sid)
        seeds = b"".join(
            seed
            for number in range(BASE)
            for seed in keys.pads(_query(number), 0, points[POINT * number : POINT * (number + 1)])
        )
        both = np.frombuffer(seeds, np.uint8).reshape(BASE, 2, SEED)
        words = len(self._chosen)
        one, other = stretch(both[:, 0], words), stretch(both[:, 1], words)
        self._rows = transposed(one, words)
        self._keys = None  # base transfers are made once
        return masked_columns(one, other, self._chosen).tobytes()

    def share(self, correction: RingWords, label: bytes) -> RingWords:
        """[words, width] its share of the product, from the multiplier's correction."""
        own = pads(self._rows, label, correction.shape[1], correction.dtype)
        own += correction * self._chosen[:, None].astype(correction.dtype)
        return own

    def _base(self) -> SenderKeys:
        if self._keys is None:
            raise RuntimeError("base transfers are made once")
        return self._keys


class Multiplier(InMemoryOnly):
    """S: holds the numbers, and takes one seed of every base transfer, which s says."""

    __slots__ = ("_group", "_rows", "_s", "_seeds", "_words")

    def __init__(self, words: int, group: Group) -> None:
        self._group = group
        self._words = words
        self._s: Bytes = np.frombuffer(entropy.draw(BASE // 8), np.uint8)
        self._seeds = b""
        self._rows: Bytes = np.empty((0, BASE // 8), np.uint8)

    def points(self, sid: bytes, A: bytes) -> bytes:
        """The points of all base transfers, in answer to A."""
        keys = ReceiverKeys(A, sid, self._group)
        points, seeds = [], []
        for number, bit in enumerate(np.unpackbits(self._s, bitorder="little").tolist()):
            point, seed = keys.choose(_query(number), bit)
            points.append(point)
            seeds += seed
        self._seeds = b"".join(seeds)
        return b"".join(points)

    def extend(self, columns: bytes) -> None:
        """Turn the chooser's columns into one key for each word."""
        seeds = np.frombuffer(self._seeds, np.uint8).reshape(BASE, SEED)
        received = np.frombuffer(columns, np.uint8).reshape(BASE, column_bytes(self._words))
        chosen = np.unpackbits(self._s, bitorder="little")[:, None]
        self._rows = transposed(stretch(seeds, self._words) ^ received * chosen, self._words)
        self._seeds = b""

    def multiply(self, numbers: RingWords, label: bytes) -> tuple[RingWords, RingWords]:
        """[words, width] the correction for the chooser, and the own share of the product.

        Args:
            numbers: [width] in the ring.
            label: names this product; never twice.
        """
        zero = pads(self._rows, label, len(numbers), numbers.dtype)
        one = pads(self._rows ^ self._s, label, len(numbers), numbers.dtype)
        correction: RingWords = zero - one
        correction += numbers
        np.negative(zero, out=zero)
        return correction, zero


def _query(number: int) -> Query:
    return Query(_SEED_TABLE, _NAME, number)
