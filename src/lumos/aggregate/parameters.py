"""How many mask neighbours, and how many shares open a secret: k and t from the public n.

c devices collude with the coordinator and d fall silent; neither knew the mask graph when it was
chosen. Each device then has X ~ Hypergeometric(n-1, c, k) colluders and D ~ Hypergeometric(n-1, d,
k) silent devices among its k neighbours. By the union bound over devices

    surrounded   n · P[X ≥ 2t - k]       colluders and a lying coordinator open both secrets of
                                         one device: they hold X shares of each and talk the other
                                         k - X holders into one each, so they need 2t ≤ k + X
    parted       C(n,2) · Π_{i<k} (c+d-i)/(n-i)
                                         the honest survivors fall apart, and the coordinator
                                         learns a sum for each part: that takes two gaps of k/2
                                         neighbouring places on the ring
    stuck        n · P[D > k - t]        a secret that is needed cannot be opened; nothing is

`surrounded + parted` ≤ 2^-security_bits over the whole run, since the graph and the colluders stay;
`stuck` ≤ 2^-liveness_bits in each round. All three are computed exactly, in integers. Because
2t - k ≤ t, colluders alone (t shares) are covered by the first.

With very few devices no k is enough: the graph is then complete, t as the colluders demand and at
most k. Four devices or fewer tolerate no dropout at the default settings.
"""

import math
from dataclasses import dataclass
from functools import cache

from lumos.aggregate.settings import AggregateSettings
from lumos.errors import UsageError

_CANDIDATES = (*range(2, 128, 2), *range(128, 512, 16), *range(512, 1025, 64))


@dataclass(frozen=True)
class MaskParameters:
    """The public numbers of a mask graph, with what they promise."""

    neighbours: int
    """k."""
    threshold: int
    """t."""
    minimum: int
    """Survivors below which nothing is opened."""
    surrounded: float
    """Bound on the probability that colluders open both secrets of some device."""
    parted: float
    """Bound on the probability that the honest survivors fall apart."""
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
    if settings.neighbours is None:
        security, liveness = 2.0**-settings.security_bits, 2.0**-settings.liveness_bits
        k, t = _smallest(total, colluders, silent, security, liveness)
    else:
        k, t = settings.neighbours, 0
        if not 1 <= k < total or (k % 2 and k < total - 1):
            raise UsageError(
                f"`neighbours` must be even and below {total}, or {total - 1}, got {k}"
            )
        t = min(k, _threshold(total, colluders, k, 2.0**-settings.security_bits))
    if settings.threshold is not None:
        t = settings.threshold
        if not 1 <= t <= k:
            raise UsageError(f"`threshold` must be 1 to {k} (the mask neighbours), got {t}")
    return MaskParameters(
        neighbours=k,
        threshold=t,
        minimum=minimum,
        surrounded=min(1.0, total * tail(total - 1, colluders, k, 2 * t - k)),
        parted=min(1.0, _parted(total, colluders + silent, k)),
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
        t = _threshold(total, colluders, k, security / 2)
        if (
            t <= k
            and _parted(total, colluders + silent, k) <= security / 2
            and total * tail(total - 1, silent, k, k - t + 1) <= liveness
        ):
            return k, t
    return k, min(k, t)  # complete, and still too few devices


def _threshold(total: int, colluders: int, k: int, security: float) -> int:
    """The least t above k/2 with n · P[X ≥ 2t - k] ≤ security; k + 1 if there is none."""
    every, ways = math.comb(total - 1, k), 0
    for count in range(k, -1, -1):  # X = count is the first that is too likely: 2t - k exceeds it
        ways += _ways(total - 1, colluders, k)[count]
        if total * (ways / every) > security:
            return (k + count) // 2 + 1
    return k // 2 + 1


def _parted(total: int, gone: int, k: int) -> float:
    if k == total - 1:
        return 0.0  # a complete graph stays in one piece
    return math.comb(total, 2) * math.comb(gone, k) / math.comb(total, k)
