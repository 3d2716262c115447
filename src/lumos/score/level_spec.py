"""What is scored, and the public list of messages that follows from it.

Everything here is public and fixed before the first byte is sent. The ideal backend books from
this module, the secure one is checked against it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from lumos.crypto.ed25519 import POINT
from lumos.errors import UsageError
from lumos.session.errors import BadValue
from lumos.session.lookup import MAX_PAD, Lookup, digit_widths, pad_bytes
from lumos.session.message_list import CHECK, NONCE, Message
from lumos.typing import Ints

MAX_WIDTH = 1024
MAX_BITS = 4
MAX_RING_BITS = 12
MAX_LEVELS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSpec:
    """The level of the dot product of two vectors: how many thresholds it has reached.

    Args:
        width: coordinates of each vector.
        bits: of each coordinate, a signed integer from -2^(bits-1) to 2^(bits-1) - 1.
        ring_bits: products are computed modulo 2^ring_bits. The squared norm of a vector is at
            most 2^(ring_bits-1) - 1, so that by Cauchy-Schwarz no product leaves the ring.
        thresholds: increasing integers t; the level is the number of t ≤ product.
    """

    width: int = 24
    bits: int = 4
    ring_bits: int = 10
    thresholds: tuple[int, ...]
    #: Sixteen bytes that name the score in every pad and in the check.
    code: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_range("width", self.width, 1, MAX_WIDTH)
        _check_range("bits", self.bits, 1, MAX_BITS)
        _check_range("ring_bits", self.ring_bits, 2, MAX_RING_BITS)
        object.__setattr__(self, "thresholds", tuple(self.thresholds))
        _check_range("number of thresholds", len(self.thresholds), 1, MAX_LEVELS - 1)
        half = 1 << (self.ring_bits - 1)
        for threshold in self.thresholds:
            _check_range("threshold", threshold, -half, half - 1)
        if any(low >= high for low, high in pairwise(self.thresholds)):
            raise UsageError(f"thresholds must increase, not {self.thresholds}")
        widest = min(self.level_lookup.widths)
        if pad_bytes(self.level_lookup, self.level_lookup.widths.index(widest)) > MAX_PAD:
            raise UsageError(
                f"{self.levels} levels in a ring of {self.ring_bits} bits need pads of more than "
                f"{MAX_PAD} bytes; use a smaller ring, or fewer levels"
            )
        public = (self.width, self.bits, self.ring_bits, self.thresholds)
        encoded = msgspec.msgpack.encode(public)
        code = blake2b(encoded, digest_size=16, person=b"lumos.level.1").digest()
        object.__setattr__(self, "code", code)

    @property
    def levels(self) -> int:
        """Number of possible levels."""
        return len(self.thresholds) + 1

    @property
    def largest_norm(self) -> int:
        """The largest squared norm of a vector."""
        return (1 << (self.ring_bits - 1)) - 1

    @property
    def coordinate_lookup(self) -> Lookup:
        """The table of one coordinate: s·v + r in the ring, for every v."""
        return Lookup((self.bits,), self.ring_bits)

    @property
    def level_lookup(self) -> Lookup:
        """The table of the level, for every share of R."""
        return Lookup(digit_widths(self.ring_bits), (self.levels - 1).bit_length())

    @property
    def digits(self) -> int:
        """Points that R sends."""
        return self.width + len(self.level_lookup.widths)


def _check_range(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise UsageError(f"{name} must be an integer from {least} to {most}, not {value!r}")


def fitting_vectors(vectors: npt.ArrayLike, spec: LevelSpec) -> Ints:
    """[…, width] the vectors as int64, if they are integers in range and short enough.

    Raises:
        BadValue: they are not; the message carries no value.
    """
    given = np.asarray(vectors)
    if given.dtype.kind not in "iu":
        raise BadValue("a vector has a coordinate that is not an integer")
    if given.ndim == 0 or given.shape[-1] != spec.width:
        raise BadValue(f"a vector does not have the {spec.width} coordinates of its score")
    half = 1 << (spec.bits - 1)
    if given.size and not (given.min() >= -half and given.max() < half):
        raise BadValue(f"a coordinate does not fit the {spec.bits} bits of its score")
    plain: Ints = given.astype(np.int64)
    if np.count_nonzero((plain * plain).sum(axis=-1) > spec.largest_norm):
        raise BadValue(
            f"the squared norm of a vector is above {spec.largest_norm}, the largest that a ring "
            f"of {spec.ring_bits} bits can hold"
        )
    return plain


def levels_of(products: Ints, spec: LevelSpec) -> Ints:
    """The number of thresholds that each product has reached."""
    return np.searchsorted(np.array(spec.thresholds), products, side="right").astype(np.int64)


def messages(specs: Sequence[LevelSpec], *, first: bool, point: int = POINT) -> tuple[Message, ...]:
    """Who sends how many bytes in a batch.

    Args:
        specs: of its items, in order.
        first: whether it opens the session.
        point: bytes of a point of the session's group; by default those of `ed25519`.
    """
    return _messages(tuple(specs), first, point)


@lru_cache(maxsize=256)
def _messages(specs: tuple[LevelSpec, ...], first: bool, point: int) -> tuple[Message, ...]:
    opening = (Message(False, NONCE + point),) if first else ()
    coordinates = sum(spec.width for spec in specs)
    products = sum(spec.width * spec.coordinate_lookup.table_bytes for spec in specs)
    shares = sum(len(spec.level_lookup.widths) for spec in specs)
    levels = sum(spec.level_lookup.table_bytes for spec in specs)
    return (
        *opening,
        Message(True, NONCE * first + point * coordinates),
        Message(False, products + CHECK),
        Message(True, point * shares),
        Message(False, levels + CHECK),
        Message(True, len(specs)),
    )
