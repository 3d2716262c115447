"""Rules for what may be opened: one public bit, and sums of which each is opened once at most.

In the order of the file: a masked flag, by which all devices learn whether any of them objects; the
record of what was opened; and the confirmations by mask neighbours without which no device opens
anything. The last belongs to the stage UNMASK of a masked sum (`lumos.secagg.device`).
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from lumos.crypto import entropy
from lumos.device.randomness import PublicRandomness
from lumos.device.shard import Shard
from lumos.errors import (
    AlreadyOpened,
    Equivocation,
    Forged,
    ProtocolError,
    WrongLength,
    WrongSender,
)
from lumos.exchange.endpoint import Program
from lumos.exchange.messages import Door, Inbox, Outbox, Topic
from lumos.secagg.mask_graph import MaskGraph
from lumos.secagg.masks import WORD
from lumos.secagg.topics import (
    ALIVE,
    CONFIRMED,
    check_from_coordinator,
    confirmed_bytes,
)
from lumos.typing import Bytes, Flags, Ints, Words

# One public bit from everybody's private flag: does anyone object?
#
# Each device shares fresh random masks (`lumos.crypto.entropy`) with d partners on a public graph
# of the devices that take part; the masks cancel in the sum modulo 2^64. A raised flag is a uniform
# random number, so the sum reveals nothing of the count. A false "nobody" has probability 2^-64.
#
# Guarantee, against semi-honest participants: the coordinator together with fewer than 2(d + 1)/3
# devices learns whether at least one of the other devices raised its flag, and neither who nor how
# many. The mask graph is a connected circulant, and such a graph stays connected without that many
# of its vertices, whichever they are (Watkins 1970): they may be chosen by the graph, which follows
# from the run seed. A larger coalition, if chosen so, cuts the honest devices into groups and
# learns the bit of each group. d is 16 for 22,470 devices and 20 for a million; with fewer than
# seven devices there are at most n - 1 partners, and with one there is nobody to hide among.

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
ANYONE = Topic(
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
    yield SHARE.to_coordinator(shard, np.arange(len(me)), share)
    inbox = yield ANYONE.nothing()
    if not np.array_equal(inbox.receiver, me) or inbox.body.min() != inbox.body.max():
        raise ProtocolError("masked flag: the coordinator's verdict is missing or not one verdict")
    return bool(inbox.body[0])


def count_for_everyone(devices: Ints) -> Program[bool]:
    """Run the coordinator's part: add the shares up and send all devices the verdict.

    Args:
        devices: ids of all that take part, increasing.
    """
    inbox = yield SHARE.nothing()
    if not np.array_equal(inbox.sender, devices):
        raise ProtocolError("masked flag: a device's share is missing, or one arrived twice")
    raised = bool(inbox.body.sum(dtype=np.uint64) != 0)
    yield ANYONE.from_coordinator(devices, int(raised))
    return raised


def partner_shifts(total: int, public: PublicRandomness, least: int = 3) -> list[int]:
    """Public distances on the ring of `total` devices: the i-th sends a mask to the i + shift-th.

    1 is always among them, so the graph is connected; no two name the same pair of devices.

    Args:
        least: number of distances, if there are as many devices.
    """
    most = (total - 1) // 2
    if most < 1:
        return [1] * (total - 1)  # two devices share one mask
    wanted = min(most, max(least, math.ceil(math.log2(total) / 2)))
    further = public.generator("mask partners").choice(most - 1, wanted - 1, replace=False)
    return [1, *(2 + int(shift) for shift in further)]


def _random(count: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return np.frombuffer(entropy.draw(8 * count), np.uint64).copy()


# Of every sum a device gives out shares once: also if it was restarted in between.
#
# A device that replays a sum after a restart sends the same messages again, byte by byte, as long
# as it receives the same. Did it receive something else the second time (another device is lost,
# another attempt of the same step is to be opened), its shares of both times together would open
# what neither opens alone. So a device notes what it received before it gives out the first share,
# where it survives a restart, and gives out nothing of that sum, or of that step, for anything
# else.


class Opening(NamedTuple):
    """The record of what a device had received when it gave out shares."""

    step: int
    """Attempts of one step have the same."""
    number: int
    """Number of the sum, or attempt: it grows."""
    told: bytes
    """Digest of who is in the sum, who is lost, and the context."""


class OpenedSums:
    """The rule of one shard.

    Args:
        before: openings before a restart, of all sums that can be replayed.
        write: makes an opening survive a restart, before it returns.
    """

    def __init__(
        self,
        before: Iterable[Opening] = (),
        write: Callable[[Opening], None] | None = None,
    ) -> None:
        self._by_number = {opening.number: opening for opening in before}
        self._write = write

    def has(self, step: int, *, before: int | None = None) -> bool:
        """Return whether shares of an attempt of this step were given out.

        Args:
            before: number of an attempt; it and later ones do not count. If one of them was opened,
                this is a replay, which opens that one and none before it (`open`).
        """
        return any(
            opening.step == step and (before is None or opening.number < before)
            for opening in self._by_number.values()
        )

    def settle(self, number: int) -> None:
        """Sums before this number cannot be replayed any more: their openings are forgotten."""
        self._by_number = {
            opened: opening for opened, opening in self._by_number.items() if opened >= number
        }

    def open(self, opening: Opening) -> None:
        """Note an opening. Afterwards shares of it may be given out.

        Raises:
            AlreadyOpened: shares of this sum, of another attempt of its step, or of a later sum
                were given out before, for something else.
        """
        if opening == self._by_number.get(opening.number):
            return
        later = opening.number <= max(self._by_number, default=-1)
        if later or self.has(opening.step):
            raise AlreadyOpened("shares of this sum were given out before, for something else")
        if self._write is not None:
            self._write(opening)
        self._by_number[opening.number] = opening


# Before a device opens anything, t of its mask neighbours confirm that they have it in the sum.
#
# A device h that was asked to open has some mask neighbours in the sum, according to the
# coordinator. For each of them it sends the coordinator a word, which only h and that neighbour
# know. The coordinator passes on to each device w the words for it, added up (XOR), and names their
# senders. w opens if they are t or more, all of them have w's own word for "in the sum", and the
# words fit.
#
# *What follows, whatever the coordinator sends to whom.* A holder that confirmed w did not receive
# that w is lost, and gives out no share of w's pair secret. So if an honest w opens anything, at
# most k - t of its holders, and the X that collude, give one: k - t + X < t, since 2t - k - X ≥ 1
# (`lumos.secagg.parameters`). Its pair secret stays shut.
#
# A word that was not sent is 96 bits that the coordinator does not know, and so is a sum with it in
# it (Katz, Lindell 2008, aggregate message authentication codes): a guess is right with probability
# 2^-96, and a wrong one stops the device. Words are of one sum: old ones fit nothing. A
# confirmation that is withheld keeps a device from opening and never makes it open: no message
# between devices has to arrive for this, as in the consistency check of Bonawitz et al. 2017, whose
# signatures are words here.

_NUMBERS = WORD // 4  # a word is so many of 32 bits


def confirm(
    shard: Shard,
    opening: Flags,
    in_sum: Flags,
    own: Words,
    theirs: Words,
    threshold: int,
    signed: Callable[[Outbox], Outbox] | None = None,
) -> Program[Flags]:
    """[hosted] who may open.

    Args:
        opening: [hosted] the devices that were asked to open.
        in_sum: [hosted, k] its neighbours in the sum, according to the coordinator.
        own: [hosted, k, 3] the words for the neighbours.
        theirs: [hosted, k, 3] the words that the neighbours would send.
        threshold: t.
        signed: adds signatures to what is sent; None: there are none.
    """
    rows = np.flatnonzero(opening)
    words = np.where(in_sum[rows, :, None], own[rows], np.uint32(0)).astype("<u4")
    body = words.reshape(len(rows), in_sum.shape[1] * _NUMBERS).view(np.uint8)
    sent = ALIVE.to_coordinator(shard, rows, body)
    yield sent if signed is None else signed(sent)
    inbox = yield CONFIRMED.nothing()
    rows, confirmed, summed = _read(shard, inbox, in_sum.shape[1])
    listening = opening[rows]
    rows, confirmed, summed = rows[listening], confirmed[listening], summed[listening]
    if (confirmed & ~in_sum[rows]).any():
        raise Equivocation("a neighbour that was called lost, or left out, is in the sum")
    words = np.where(confirmed[:, :, None], theirs[rows], np.uint32(0))
    if not np.array_equal(np.bitwise_xor.reduce(words, axis=1), summed):
        raise Forged("words that confirm a device are not those of its neighbours")
    confirmed_by = np.zeros(len(shard), np.int64)
    confirmed_by[rows] = confirmed.sum(axis=1)
    return opening & (confirmed_by >= threshold)


def _read(shard: Shard, inbox: Inbox, neighbours: int) -> tuple[Ints, Flags, Words]:
    """Rows of the receivers, [rows, k] who confirmed, [rows, 3] the words added up."""
    check_from_coordinator(inbox)
    rows = shard.local(inbox.receiver)
    if len(np.unique(rows)) < len(rows):
        raise WrongSender("the coordinator confirmed a device twice")
    lengths = inbox.batch.lengths
    if lengths is not None and (lengths != confirmed_bytes(neighbours)).any():
        raise WrongLength("a confirmation is too long or too short")
    if not len(rows):
        return rows, np.empty((0, neighbours), np.bool_), np.empty((0, _NUMBERS), np.uint32)
    summed = np.ascontiguousarray(inbox.body[:, :WORD]).view("<u4").astype(np.uint32)
    bits = np.unpackbits(inbox.body[:, WORD:], axis=1, bitorder="little").astype(np.bool_)
    if bits[:, neighbours:].any():
        raise WrongSender("a confirmation names a neighbour that does not exist")
    return rows, bits[:, :neighbours], summed


def relay(graph: MaskGraph, speaking: Flags, bodies: Bytes) -> Outbox:
    """The coordinator's part: to everyone who spoke, the words for it.

    Args:
        speaking: [total] who sent words.
        bodies: [speaking, 12 k] their words by slot, in the order of the ids; zero for none.
    """
    k, senders = graph.neighbours, np.flatnonzero(speaking)
    words = np.zeros((graph.total, k, _NUMBERS), np.uint32)
    words[senders] = np.ascontiguousarray(bodies).view("<u4").reshape(len(senders), k, _NUMBERS)
    # Slots mirror, see `MaskGraph`.
    received = words[graph.of(senders), k - 1 - np.arange(k)]
    summed = np.bitwise_xor.reduce(received, axis=1).astype("<u4").view(np.uint8)
    bits = np.packbits(received.any(axis=2), axis=1, bitorder="little")
    body = np.hstack([summed.reshape(len(senders), WORD), bits])
    return CONFIRMED.from_coordinator(senders, body)
