"""Fixed point: real numbers as words whose sums are exact and cannot wrap.

A number x becomes round(x · 2^f) modulo 2^w. With n devices and |x| ≤ limit the sum lies within
±n · round(limit · 2^f), and w is the smallest of 8, 16, …, 64 with

    n · round(limit · 2^f) < 2^(w-1),

so every sum is read back without loss, in whatever order it was added up. A sum differs from the
sum of the unrounded numbers by at most n · 2^-(f+1). w/8 bytes travel for each number; in memory it
has 4 or 8, of which the upper ones say nothing until a sum is read.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.aggregate.settings import AggregateSettings
from lumos.errors import InputError, UsageError
from lumos.typing import Bytes, Doubles

RingWords = npt.NDArray[Any]
"""Unsigned words of 32 or 64 bits, little-endian."""


def limit_for(settings: AggregateSettings, total: int) -> float:
    """The largest absolute value of a number, in sums over `total` devices.

    That of the settings, halved as often as sums need to fit 64 bits, if the settings permit it.
    """
    limit, least = settings.limit, settings.least_limit
    while least is not None and total * round(limit * 2**settings.fraction_bits) >= 1 << 63:
        if limit / 2 < least:
            break
        limit /= 2
    return limit


@dataclass(frozen=True)
class FixedPoint:
    """One public way to write numbers as words."""

    limit: float
    fraction_bits: int
    wire: int
    """Bytes of a number in a message."""
    clip: bool

    @staticmethod
    def of(settings: AggregateSettings, total: int) -> "FixedPoint":
        """The shortest words that hold every sum over `total` devices."""
        limit = limit_for(settings, total)
        largest = total * round(limit * 2**settings.fraction_bits)
        for wire in range(1, 9):
            if largest < 1 << (8 * wire - 1):
                return FixedPoint(limit, settings.fraction_bits, wire, settings.clip)
        raise UsageError(
            f"sums over {total} devices of numbers up to {settings.limit:g} with "
            f"{settings.fraction_bits} fraction bits do not fit 64 bits; lower one of them"
        )

    @property
    def word(self) -> int:
        """Bytes of a number in memory."""
        return 4 if self.wire <= 4 else 8

    @property
    def dtype(self) -> "np.dtype[Any]":
        """The type of one word."""
        return np.dtype(f"<u{self.word}")

    def encode(self, values: Doubles) -> RingWords:
        """Numbers as words. Refuses what is not finite and, unless it clips, what is too large."""
        if values.size:
            largest = max(float(values.max()), -float(values.min()))
            if not np.isfinite(largest):
                raise InputError("a vector for a masked sum has a number that is not finite")
            if largest > self.limit:
                if not self.clip:
                    raise InputError(
                        f"a vector for a masked sum has a number beyond ±{self.limit:g}; "
                        "scale it, raise `limit`, or set `clip`"
                    )
                values = np.clip(values, -self.limit, self.limit)
        return self.encode_sum(values)

    def encode_sum(self, values: Doubles) -> RingWords:
        """Numbers that are sums already, and may exceed the limit of a single device."""
        scaled = np.multiply(values, 2.0**self.fraction_bits)
        np.rint(scaled, out=scaled)
        signed = scaled.astype(np.int64)
        return signed.view("<u8") if self.word == 8 else signed.astype(self.dtype)

    def pack(self, words: RingWords) -> Bytes:
        """[…, numbers] words → […, bytes] as they travel."""
        if self.wire == self.word:
            return np.ascontiguousarray(words).view(np.uint8)
        each = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, self.word)
        size = words.shape[-1] * self.wire
        return each[..., : self.wire].reshape(*words.shape[:-1], size)

    def unpack(self, body: Bytes) -> RingWords:
        """[…, bytes] → […, numbers] words with their sign; what `pack` left out is restored."""
        if self.wire == self.word:
            return np.ascontiguousarray(body).view(self.dtype)
        numbers = body.shape[-1] // self.wire
        each = np.zeros((*body.shape[:-1], numbers, self.word), np.uint8)
        each[..., : self.wire] = body.reshape(*body.shape[:-1], numbers, self.wire)
        words = each.reshape(*body.shape[:-1], numbers * self.word).view(self.dtype)
        missing = 8 * (self.word - self.wire)
        signed = (words << missing).view(f"<i{self.word}") >> missing
        return signed.view(self.dtype)

    def rounded(self, values: Doubles) -> Doubles:
        """Numbers as they will be encoded: the nearest on the grid."""
        grid = 2.0**self.fraction_bits
        nearest: Doubles = np.rint(values * grid) / grid
        return nearest

    def decode(self, words: RingWords) -> Doubles:
        """The numbers that sums of words stand for."""
        signed = words.view(f"<i{self.word}").astype(np.float64)
        decoded: Doubles = signed * 2.0**-self.fraction_bits
        return decoded
