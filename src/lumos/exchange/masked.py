"""One public bit from everybody's private flag: does anyone object?

Guarantee: the coordinator and everybody else learn whether at least one device raised its flag,
and nothing about who, nor how many, against semi-honest parties of whom at most five of a
device's six mask partners collude with the coordinator. Each device splits fresh random masks
from the operating system with its partners; the masks cancel in the sum modulo 2^64. A raised flag
is a uniform random number, so the sum says nothing of the count. A false "nobody" has
probability 2^-64.
"""

import os

import numpy as np

from lumos.device.shard import COORDINATOR, Shard
from lumos.exchange.endpoint import Program
from lumos.exchange.topic import Door, Topic

_PARTNERS = 3  # sent to three, received from three

MASK = Topic(
    name="masked-flag/mask",
    door=Door.AGGREGATE,
    dtype=np.uint64,
    learns="a random number that hides the flag of sender and receiver; nothing by itself",
)
SHARE = Topic(
    name="masked-flag/share",
    door=Door.AGGREGATE,
    dtype=np.uint64,
    coordinator=True,
    learns="the coordinator gets masked flags; their sum tells whether anyone raised one",
)
VERDICT = Topic(
    name="masked-flag/verdict",
    door=Door.CONTROL,
    vocabulary=("nobody", "somebody"),
    coordinator=True,
    learns="everyone learns whether at least one device raised its flag",
)


def anyone(shard: Shard, flags: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Program[bool]:
    """Ask all devices at once. `flags`: [hosted] True where the device raises its flag."""
    me = shard.devices
    shifts = _shifts(shard)
    masks = _random(len(me) * len(shifts)).reshape(len(shifts), len(me))
    share = np.where(flags, _random(len(me)), np.uint64(0))
    inbox = yield MASK.send(
        np.tile(me, len(shifts)),
        np.concatenate([(me + shift) % shard.total for shift in shifts] or [me[:0]]),
        masks.ravel(),
    )
    np.subtract.at(share, shard.local(inbox.receiver), inbox.body)
    share += masks.sum(axis=0, dtype=np.uint64)
    yield SHARE.send(me, np.full(len(me), COORDINATOR), share)
    inbox = yield VERDICT.nothing()
    return bool(inbox.body[0])


def count_for_everyone(total: int) -> Program[bool]:
    """The coordinator's part: add the shares up and tell all `total` devices the verdict."""
    inbox = yield SHARE.nothing()
    raised = bool(inbox.body.sum(dtype=np.uint64) != 0)
    everyone = np.arange(total)
    yield VERDICT.send(np.full(total, COORDINATOR), everyone, int(raised))
    return raised


def _shifts(shard: Shard) -> list[int]:
    """Public distances on the ring of ids: device i sends masks to i + shift.

    One of them is 1, so that masks link all devices: with even distances only, the shares of the
    even ids alone would add up to their flags, and tell the coordinator in which half one is.
    """
    if shard.total < 2:
        return []
    generator = shard.public.generator("mask partners")
    others = min(_PARTNERS, shard.total - 1) - 1
    drawn = generator.choice(shard.total - 2, others, replace=False) if others else ()
    return [1, *(2 + int(shift) for shift in drawn)]


def _random(count: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return np.frombuffer(os.urandom(8 * count), np.uint64).copy()
