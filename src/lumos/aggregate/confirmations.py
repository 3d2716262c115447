"""Before a device opens anything, t of its mask neighbours confirm that they have it in the sum.

A device h that was told to open has some mask neighbours in the sum, by what the coordinator told
it. For each of them it sends the coordinator a word, which only h and that neighbour know. The
coordinator passes on to each device w the words for it, added up (XOR), and says whose they are. w
opens if they are t or more, all of them have w's own word for "in the sum", and the words fit.

*What follows, whatever the coordinator says to whom.* A holder that confirmed w was not told that w
is lost, and gives out no share of w's pair secret. So if an honest w opens anything, at most k - t
of its holders, and the X that collude, give one: k - t + X < t, since 2t - k - X ≥ 1
(`lumos.aggregate.parameters`). Its pair secret stays shut.

A word that was not sent is 96 bits that the coordinator does not know, and so is a sum with it in
it (Katz, Lindell 2008, aggregate message authentication codes): a guess is right with probability
2^-96, and a wrong one stops the device. Words are of one sum: old ones fit nothing. A confirmation
that is withheld keeps a device from opening and never makes it open: no message between devices has
to arrive for this, as in the consistency check of Bonawitz et al. 2017, whose signatures are words
here.
"""

import numpy as np

from lumos.aggregate.errors import Equivocation, Forged, WrongSender
from lumos.aggregate.mask_graph import MaskGraph
from lumos.aggregate.pair_keys import WORD
from lumos.aggregate.topics import ALIVE, CONFIRMED, confirmed_bytes
from lumos.device.shard import COORDINATOR, Shard
from lumos.errors import WrongLength
from lumos.exchange.batch import Inbox, Outbox
from lumos.exchange.endpoint import Program
from lumos.typing import Bytes, Flags, Ints, Words

_NUMBERS = WORD // 4  # a word is so many of 32 bits


def confirm(
    shard: Shard, opening: Flags, in_sum: Flags, own: Words, theirs: Words, threshold: int
) -> Program[Flags]:
    """[hosted] who may open.

    Args:
        opening: [hosted] who was told to open.
        in_sum: [hosted, k] its neighbours in the sum, by what the coordinator said.
        own: [hosted, k, 3] the words for the neighbours.
        theirs: [hosted, k, 3] the words that the neighbours would send.
        threshold: t.
    """
    rows = np.flatnonzero(opening)
    said = np.where(in_sum[rows, :, None], own[rows], np.uint32(0))
    yield _outbox(shard, rows, said.astype("<u4").reshape(len(rows), in_sum.shape[1] * _NUMBERS))
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


def _outbox(shard: Shard, rows: Ints, said: Words) -> Outbox:
    body = said.view(np.uint8)
    return ALIVE.send(
        shard.ids_of(rows),
        np.full(len(rows), COORDINATOR),
        body,
        lengths=np.full(len(rows), body.shape[1]),
    )


def _read(shard: Shard, inbox: Inbox, neighbours: int) -> tuple[Ints, Flags, Words]:
    """Rows of the receivers, [rows, k] who confirmed, [rows, 3] the words added up."""
    if (inbox.sender != COORDINATOR).any():
        raise WrongSender("a device spoke in place of the coordinator")
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
    heard = words[graph.of(senders), k - 1 - np.arange(k)]
    summed = np.bitwise_xor.reduce(heard, axis=1).astype("<u4").view(np.uint8)
    bits = np.packbits(heard.any(axis=2), axis=1, bitorder="little")
    body = np.hstack([summed.reshape(len(senders), WORD), bits])
    return CONFIRMED.send(
        np.full(len(senders), COORDINATOR),
        senders,
        body,
        lengths=np.full(len(senders), body.shape[1]),
    )
