"""One score of a batch, as one of its two parties sees it."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lumos.crypto.in_memory import InMemoryOnly
from lumos.score.level_spec import LevelSpec, fitting_vectors, levels_of
from lumos.session.errors import BadValue
from lumos.session.lookup import Query
from lumos.typing import Bytes, Ints

VERSION = b"lumos.score.1"

# Positions of a batch's messages.
PRODUCT_POINTS, PRODUCT_TABLES, SHARE_POINTS, LEVEL_TABLES, ANSWERS = range(5)


@dataclass(frozen=True, slots=True, repr=False)  # private
class Shifted:
    """An input with a shift: the other end learns (level + shift) mod levels.

    Each end learns the level with the other's shift alone: S takes its own off what R tells it.
    """

    vector: npt.ArrayLike
    shift: int


class Score(InMemoryOnly):
    """One score of the current batch, as one party sees it.

    vector: this party's own. share: its share of the product, modulo 2^ring_bits.
    """

    __slots__ = ("coordinates", "kept", "level", "level_query", "share", "shift", "spec", "vector")

    def __init__(self, spec: LevelSpec, value: npt.ArrayLike | Shifted, idx: int) -> None:
        vector, shift = (value.vector, value.shift) if isinstance(value, Shifted) else (value, 0)
        if type(shift) is not int or not 0 <= shift < spec.levels:
            raise BadValue(f"a shift is not one of the {spec.levels} levels")
        self.spec = spec
        self.vector = fitting_vectors(vector, spec)
        if self.vector.ndim != 1:
            raise BadValue("a score takes one vector")
        self.shift = shift
        lookup = spec.coordinate_lookup
        self.coordinates = [Query(lookup, spec.code, idx + place) for place in range(spec.width)]
        self.level_query = Query(spec.level_lookup, spec.code, idx + spec.width)
        self.kept: list[list[bytes]] = []
        self.share = 0
        self.level = 0

    @property
    def digits(self) -> int:
        """Points that R sends."""
        return self.spec.digits

    def is_checked(self, position: int) -> bool:
        """Whether this part holds tables."""
        return position in (PRODUCT_TABLES, LEVEL_TABLES)

    def learn(self, level: int) -> None:
        """Take the level."""
        if level >= self.spec.levels:
            raise BadValue("a level is above the highest")
        self.level = level

    def told(self) -> int:
        """What R tells S: the level that it read, with its own shift."""
        return (self.level + self.shift) % self.spec.levels

    def result(self) -> int:
        """The level, with the other end's shift."""
        return self.level


def product_tables(spec: LevelSpec, vector: Ints, masks: Ints) -> Bytes:
    """[width, ring_bits, 2^bits] bits of (s_i·v + r_i) mod 2^ring_bits.

    Args:
        vector: [width] s.
        masks: [width] r.
    """
    # Digit d stands for v = d, or d - 2^bits where that is negative.
    digit = np.arange(1 << spec.bits)
    value = np.where(digit < 1 << (spec.bits - 1), digit, digit - (1 << spec.bits))
    entries = (vector[:, None] * value + masks[:, None]) & ((1 << spec.ring_bits) - 1)
    return _bits(entries, spec.ring_bits)


def level_table(spec: LevelSpec, share: int, shift: int) -> Bytes:
    """[outputs, 2^ring_bits] bits of the level, for each share that R may hold.

    Args:
        share: S's own.
        shift: added to the level, modulo the number of levels.
    """
    of_product = _levels_of_ring(spec)
    of_share = np.roll(of_product, -share)  # entry j is that of product j + share
    return _bits((of_share + shift) % spec.levels, spec.level_lookup.outputs)


@lru_cache(maxsize=16)
def _levels_of_ring(spec: LevelSpec) -> Ints:
    """[2^ring_bits] the level of each element of the ring, read as a signed integer."""
    size = 1 << spec.ring_bits
    element = np.arange(size)
    levels = levels_of(np.where(element < size // 2, element, element - size), spec)
    levels.flags.writeable = False
    return levels


def _bits(entries: Ints, count: int) -> Bytes:
    """[…, count, entries] the bits of [… , entries], the lowest first."""
    places = np.arange(count)[:, None]
    return (entries[..., None, :] >> places & 1).astype(np.uint8)
