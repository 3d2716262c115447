"""One public bit from everybody's private flag: does anyone object?

Each device shares fresh random masks (`lumos.crypto.entropy`) with d partners on a public graph of
the devices that take part; the masks cancel in the sum modulo 2^64. A raised flag is a uniform
random number, so the sum says nothing of the count. A false "nobody" has probability 2^-64.

Guarantee, against semi-honest parties: the coordinator together with fewer than 2(d + 1)/3 devices
learns whether at least one of the other devices raised its flag, and neither who nor how many. The
mask graph is a connected circulant, and such a graph stays connected without that many of its
vertices, whichever they are (Watkins 1970): they may be chosen by the graph, which follows from the
run seed. A larger coalition, if chosen so, cuts the honest devices into groups and learns the bit
of each group. d is 16 for 22,470 devices and 20 for a million; with fewer than seven devices there
are at most n - 1 partners, and with one there is nobody to hide among.
"""

import math

import numpy as np

from lumos.crypto import entropy
from lumos.device.coins import PublicCoins
from lumos.device.shard import COORDINATOR, Shard
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Program
from lumos.exchange.topic import Door, Topic
from lumos.typing import Ints

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
    coordinator="receives",
    learns="the coordinator gets masked flags; their sum tells whether anyone raised one",
)
VERDICT = Topic(
    name="masked-flag/verdict",
    door=Door.CONTROL,
    vocabulary=("nobody", "somebody"),
    coordinator="sends",
    learns="everyone learns whether at least one device raised its flag",
)


def anyone(shard: Shard, flags: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Program[bool]:
    """Ask all devices at once. `flags`: [hosted] True where the device raises its flag."""
    me, present = shard.devices, shard.present
    shifts = partner_shifts(len(present), shard.public)
    place = np.searchsorted(present, me)
    masks = _random(len(me) * len(shifts)).reshape(len(shifts), len(me))
    share = np.where(flags, _random(len(me)), np.uint64(0))
    inbox = yield MASK.send(
        np.tile(me, len(shifts)),
        np.concatenate([present[(place + shift) % len(present)] for shift in shifts] or [me[:0]]),
        masks.ravel(),
    )
    if len(inbox.sender) != masks.size:
        raise ProtocolError("masked flag: a mask is missing, or one arrived twice")
    np.subtract.at(share, shard.local(inbox.receiver), inbox.body)
    share += masks.sum(axis=0, dtype=np.uint64)
    yield SHARE.send(me, np.full(len(me), COORDINATOR), share)
    inbox = yield VERDICT.nothing()
    if not np.array_equal(inbox.receiver, me) or inbox.body.min() != inbox.body.max():
        raise ProtocolError("masked flag: the coordinator's verdict is missing or not one verdict")
    return bool(inbox.body[0])


def count_for_everyone(devices: Ints) -> Program[bool]:
    """The coordinator's part: add the shares up and tell all devices the verdict.

    Args:
        devices: ids of all that take part, increasing.
    """
    inbox = yield SHARE.nothing()
    if not np.array_equal(inbox.sender, devices):
        raise ProtocolError("masked flag: a device's share is missing, or one arrived twice")
    raised = bool(inbox.body.sum(dtype=np.uint64) != 0)
    yield VERDICT.send(np.full(len(devices), COORDINATOR), devices, int(raised))
    return raised


def partner_shifts(total: int, public: PublicCoins) -> list[int]:
    """Public distances on the ring of `total` devices: the i-th sends a mask to the i + shift-th.

    1 is always among them, so the graph is connected; no two name the same pair of devices.
    """
    most = (total - 1) // 2
    if most < 1:
        return [1] * (total - 1)  # two devices share one mask
    wanted = min(most, max(3, math.ceil(math.log2(total) / 2)))
    further = public.generator("mask partners").choice(most - 1, wanted - 1, replace=False)
    return [1, *(2 + int(shift) for shift in further)]


def _random(count: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return np.frombuffer(entropy.draw(8 * count), np.uint64).copy()
