"""Public numbers of masked sums: their settings, the mask graph's k and t, and the fixed point.

The settings are the only source of their defaults. k and t follow from them and the number of
devices, with the security statement that they fulfil; so does the range of numbers.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.errors import InputError, UsageError
from lumos.typing import Bytes, Doubles


@dataclass(frozen=True, kw_only=True)
class AggregateSettings:
    """Settings of masked sums. All of them are public, and the same at every participant.

    Args:
        limit: largest absolute value of one number of one device's vector.
        least_limit: where sums over all devices do not fit 64 bits, the limit is halved until
            they do, down to this; None: such sums are refused.
        fraction_bits: numbers are rounded to multiples of 2^-fraction_bits.
        least_fraction_bits: where sums over all devices do not fit 32 bits, there are fewer
            fraction bits, down to this; None: words are wider instead.
        clip: clip numbers beyond the limit instead of refusing the vector.
        corrupt: fraction of devices that may collude with the coordinator; they may choose
            themselves, before the mask graph is drawn.
        dropped: fraction of devices that may fall silent in a round without stopping it.
        security_bits: colluders learn more than the sum with probability ≤ 2^-security_bits a run.
        liveness_bits: tolerated dropouts stop a round with probability ≤ 2^-liveness_bits.
        neighbours: k, mask partners of each device; None: as few as the statements above allow.
        threshold: t, shares that open a secret; None: as few as `corrupt` allows.
        minimum: survivors below which nothing is opened; None: what `dropped` leaves, at least 3.
        proofs: devices prove that their summands are short, and those that lie are excluded; False:
            devices are assumed to follow the protocol. Exact sums have no proofs.
    """

    limit: float = 1024.0
    least_limit: float | None = None
    fraction_bits: int = 32
    least_fraction_bits: int | None = None
    clip: bool = False
    corrupt: float = 0.10
    dropped: float = 0.05
    security_bits: int = 40
    liveness_bits: int = 20
    neighbours: int | None = None
    threshold: int | None = None
    minimum: int | None = None
    proofs: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.limit < float("inf"):
            raise UsageError(f"limit must be positive and finite, got {self.limit}")
        if self.least_limit is not None and not self.least_limit > 0:
            raise UsageError(f"least_limit must be above 0, got {self.least_limit}")
        if not 0 <= self.fraction_bits <= 52:
            raise UsageError(f"fraction_bits must be 0 to 52, got {self.fraction_bits}")
        least = self.least_fraction_bits
        if least is not None and not 0 <= least <= self.fraction_bits:
            raise UsageError(
                f"least_fraction_bits must be 0 to {self.fraction_bits} (fraction_bits), "
                f"got {least}"
            )
        for name in ("corrupt", "dropped"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} must be >= 0 and < 1, got {getattr(self, name)}")
        for name in ("security_bits", "liveness_bits"):
            if not 1 <= getattr(self, name) <= 256:
                raise UsageError(f"{name} must be 1 to 256, got {getattr(self, name)}")
        if self.minimum is not None and self.minimum < 2:
            raise UsageError(
                f"minimum must be >= 2, got {self.minimum}: a sum over one device is its vector"
            )


# How many mask neighbours, and how many shares open a secret: k and t from the public n.
#
# c devices collude with the coordinator. They were chosen before the mask graph was drawn, with
# full knowledge of everything else (`lumos.secagg.mask_graph`), so the ring is a uniform order
# for them and any h = k/2 or k places hold a hypergeometric number of them. Two things must not
# happen:
#
#     surrounded   n · P[X ≥ 2t - k],            X ~ Hypergeometric(n-1, c, k)
#                  colluders and a lying coordinator open both secrets of one device: they hold X
#                  shares of each and talk the other k - X holders into one each, so they need
#                  2t ≤ k + X
#     parted       n(n-1) · P[Y ≥ t - h, Z ≥ t - h],   Y, Z: colluders in two windows of h places
#                  a lying coordinator, or whoever silences devices, chooses after the draw whom to
#                  lose, and opens the sum of an arc of the ring alone
#
# *Why these windows.* A group A of honest devices can be opened without the others exactly if each
# v of A has t - X_v neighbours in A. It is enough: the coordinator leaves all other honest devices
# out, and the colluders play along. It is necessary: where v's self secret is opened, t - X_v
# honest holders gave out a share. They masked with v, and were confirmed by t neighbours, so their
# pair secrets stay shut (`lumos.secagg.device`), their masks with v remain, and they must be in
# the group; and the same is true of each of them. Let v be the last of A before a gap of h places
# without any of A. Behind v are at most h of A and colluders, so of the h places before it
# colluders hold t - h at least. A group that leaves two such gaps, or one of k places, has two such
# windows that do not overlap. So unless it is parted, a group that is opened goes round the ring,
# with at most one gap of h places, shorter than k; and unless some device is surrounded, each of
# its members has t - X_v ≥ k - t + 1 others of it among its neighbours. n(n-1) and not C(n,2): a
# coordinator that lies in the draw may give each device a seed of its own; a group is then counted
# at one end, in the graph of the device there. For the same reason the bound of the surrounded is a
# sum over devices and needs no common graph.
#
# Devices that fall silent without anybody's choice are d, with D ~ Hypergeometric(n-1, d, k) of
# them among the neighbours of a device:
#
#    stuck        n · P[D > k - t]              a secret that is needed cannot be opened; nothing is
#
# A device that withholds its contribution voids a draw and is barred, so all devices but `minimum`
# can void one each: there are at most n - minimum + 1 draws, of which the adversary may take the
# one it likes. So `surrounded + parted` ≤ 2^-security_bits / draws, which bounds the failure of a
# whole run: graph and colluders stay. `stuck` ≤ 2^-liveness_bits in each round. All three are
# computed exactly, in integers. Because 2t - k ≤ t, the first covers colluders alone (t shares).
#
# With very few devices no k is enough: the graph is then complete, t as the colluders demand and at
# most k. Four devices or fewer tolerate no dropout at the default settings.

_CANDIDATES = (*range(2, 128, 2), *range(128, 512, 16), *range(512, 1025, 64))


@dataclass(frozen=True)
class MaskParameters:
    """The public numbers of a mask graph, with what they guarantee."""

    neighbours: int
    """k."""
    threshold: int
    """t."""
    minimum: int
    """Survivors below which nothing is opened."""
    draws: int
    """Largest number of draws of the mask graph: every void one costs a device."""
    surrounded: float
    """Bound on the probability that colluders open both secrets of some device, in one draw."""
    parted: float
    """Bound on the probability that an arc of the ring can be opened alone, in one draw."""
    stuck: float
    """Bound on the probability that the tolerated dropouts stop a round."""


def mask_parameters(settings: AggregateSettings, total: int) -> MaskParameters:
    """k, t and the minimum for `total` devices, with their bounds."""
    colluders, silent = math.ceil(settings.corrupt * total), math.ceil(settings.dropped * total)
    minimum = settings.minimum or max(3, total - silent)
    if total < minimum:
        raise UsageError(
            f"a masked sum needs at least {minimum} devices, here are {total}: "
            "with fewer, a sum shows one device's vector to another"
        )
    draws = total - minimum + 1
    security = 2.0**-settings.security_bits / draws
    if settings.neighbours is None:
        k, t = _smallest(total, colluders, silent, security, 2.0**-settings.liveness_bits)
    else:
        k = settings.neighbours
        if not 1 <= k < total or (k % 2 and k < total - 1):
            raise UsageError(
                f"`neighbours` must be even and below {total}, or {total - 1}, got {k}"
            )
        t = min(k, _threshold(total, colluders, k, security))
    if settings.threshold is not None:
        t = settings.threshold
        if not 1 <= t <= k:
            raise UsageError(f"`threshold` must be 1 to {k} (the mask neighbours), got {t}")
    return MaskParameters(
        neighbours=k,
        threshold=t,
        minimum=minimum,
        draws=draws,
        surrounded=min(1.0, _surrounded(total, colluders, k, t)),
        parted=min(1.0, _parted(total, colluders, k, t)),
        stuck=min(1.0, total * tail(total - 1, silent, k, k - t + 1)),
    )


def tail(population: int, marked: int, drawn: int, least: int) -> float:
    """P[at least `least` of `drawn` are marked], drawing without replacement."""
    ways = _ways(population, marked, drawn)[max(least, 0) :]
    return sum(ways) / math.comb(population, drawn)


@cache
def _ways(population: int, marked: int, drawn: int) -> list[int]:
    """[0 … drawn] in how many ways so many of the drawn are marked."""
    return [
        math.comb(marked, count) * math.comb(population - marked, drawn - count)
        for count in range(drawn + 1)
    ]


@cache
def _smallest(
    total: int, colluders: int, silent: int, security: float, liveness: float
) -> tuple[int, int]:
    for k in (*(k for k in _CANDIDATES if k < total - 1), total - 1):
        # X + 2D < k must hold in the mean at least.
        if k > _CANDIDATES[-1] or (k > 128 and colluders + 2 * silent >= total):
            raise UsageError(
                f"no mask graph with at most {_CANDIDATES[-1]} neighbours stands {colluders} "
                f"colluders and {silent} silent devices of {total}; lower `corrupt` or `dropped`"
            )
        t = _threshold(total, colluders, k, security)
        if t <= k and total * tail(total - 1, silent, k, k - t + 1) <= liveness:
            return k, t
    return k, min(k, t)  # complete, and still too few devices


def _threshold(total: int, colluders: int, k: int, security: float) -> int:
    """The least t above k/2 that keeps `surrounded + parted` below; k + 1 if there is none."""
    low, high = k // 2 + 1, k + 1
    while low < high:  # both fall as t grows
        t = (low + high) // 2
        if _surrounded(total, colluders, k, t) + _parted(total, colluders, k, t) <= security:
            high = t
        else:
            low = t + 1
    return low


def _surrounded(total: int, colluders: int, k: int, t: int) -> float:
    return total * tail(total - 1, colluders, k, 2 * t - k)


def _parted(total: int, colluders: int, k: int, t: int) -> float:
    if k == total - 1:
        return 0.0  # a complete graph has no arcs
    return total * (total - 1) * both_windows(total, colluders, k // 2, t - k // 2)


def both_windows(population: int, marked: int, size: int, least: int) -> float:
    """P[at least `least` are marked in each of two samples of `size`], without replacement."""
    ways, least = _ways(population, marked, 2 * size), max(least, 0)
    every = math.comb(population, 2 * size)
    chance = 0.0
    for count in range(2 * least, 2 * size + 1):
        # Of `count` marked places among 2 · size, so many lie in the first half.
        first = range(max(least, count - size), min(size, count - least) + 1)
        split = sum(math.comb(size, i) * math.comb(size, count - i) for i in first)
        chance += ways[count] * split / (every * math.comb(2 * size, count))
    return chance


# Fixed point: real numbers as words whose sums are exact and cannot wrap.
#
# A number x becomes round(x · 2^f) modulo 2^w. With n devices and |x| ≤ limit the sum lies within
# ±n · round(limit · 2^f), and w is the smallest of 8, 16, …, 64 with
#
#     n · round(limit · 2^f) < 2^(w-1),
#
# so every sum is read back without loss, in whatever order it was added up. A sum differs from the
# sum of the unrounded numbers by at most n · 2^-(f+1). w/8 bytes travel for each number; in memory
# it has 4 or 8, of which the upper ones say nothing until a sum is read. With `least_fraction_bits`
# w is the smallest of 32, 40, …, 64 that leaves as many, and f the largest that fits.

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
        limit, most, least = (
            limit_for(settings, total),
            settings.fraction_bits,
            settings.least_fraction_bits,
        )
        for wire in range(1 if least is None else 4, 9):
            for bits in range(most, (most if least is None else least) - 1, -1):
                if total * round(limit * 2**bits) < 1 << (8 * wire - 1):
                    return FixedPoint(limit, bits, wire, settings.clip)
        raise UsageError(
            f"sums over {total} devices of numbers up to {settings.limit:g} with "
            f"{settings.fraction_bits} fraction bits do not fit 64 bits; lower one of them"
        )

    @staticmethod
    def in_the_clear(settings: AggregateSettings, total: int) -> "FixedPoint":
        """The same for sums that a simulation computes in the clear: with all fraction bits."""
        fixed = FixedPoint.of(settings, total)
        if settings.least_fraction_bits is None:
            return fixed
        return FixedPoint(fixed.limit, settings.fraction_bits, 8, fixed.clip)

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
