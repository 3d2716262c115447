"""Fixed point: real numbers as words whose sums are exact and cannot wrap.

A number x becomes round(x · 2^f) modulo 2^w. With n devices and |x| ≤ limit the sum lies within
±n · round(limit · 2^f), and w is the smaller of 32 and 64 with

    n · round(limit · 2^f) < 2^(w-1),

so every sum is read back without loss, in whatever order it was added up. A sum differs from the
sum of the unrounded numbers by at most n · 2^-(f+1).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.aggregate.settings import AggregateSettings
from lumos.errors import InputError, UsageError
from lumos.typing import Doubles

RingWords = npt.NDArray[Any]
"""Unsigned words of 32 or 64 bits, little-endian."""


@dataclass(frozen=True)
class FixedPoint:
    """One public way to write numbers as words of `word` bytes."""

    limit: float
    fraction_bits: int
    word: int
    clip: bool

    @staticmethod
    def of(settings: AggregateSettings, total: int) -> "FixedPoint":
        """The shortest words that hold every sum over `total` devices."""
        largest = total * round(settings.limit * 2**settings.fraction_bits)
        for word in (4, 8):
            if largest < 1 << (8 * word - 1):
                return FixedPoint(settings.limit, settings.fraction_bits, word, settings.clip)
        raise UsageError(
            f"sums over {total} devices of numbers up to {settings.limit:g} with "
            f"{settings.fraction_bits} fraction bits do not fit 64 bits; lower one of them"
        )

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
