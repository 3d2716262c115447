"""Messages to neighbours: how they are sent, propagated labels, and those of the control.

**Control.** Its messages are values that depend on no data. A random value that a sender told all
its neighbours would be a mark of the sender, and so of a community. So every receiver draws for
itself what it takes each message to say.

**Propagated labels.** A propagated label is the class, or the random mark, that a device's
evidence so far points to, randomized. It is a function of received messages and public matrices
only, so it costs no ε of any feature or label; it tells something about the sender's edges and
degree, and is randomized for that.

Guarantee: one propagated label is the same for all receivers, so one edge changes at most the
propagated labels of its two ends: ε_m each, for any two neighbourhoods, however many receivers
collude. All that follows from a propagated label is a function of what was sent. A propagated
label made for one receiver, without what that receiver sent, would guarantee nothing
(`tests/strict/test_propagated_labels.py` breaks it).

Every device with a neighbour sends, also if it received nothing: silence would tell. Where several
classes have the same evidence, the device draws one.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.counts import nondecreasing
from lumos.exchange.endpoint import Program
from lumos.exchange.messages import Batch, Door, Topic
from lumos.ldp.mechanisms import COIN, Mechanism
from lumos.strict.features import row_maxima
from lumos.typing import Bytes, Doubles, Ints

RANDOMIZED_LABEL = Topic(
    name="strict/symbol",
    door=Door.RELEASE,
    shape=None,
    common=True,
    learns="every neighbour gets the same randomized randomized label: ε, however many of them collude",
)
PROPAGATED_LABEL = Topic(
    name="strict/opinion",
    door=Door.RELEASE,
    shape=None,
    common=True,
    about_edges=True,
    learns="every neighbour gets the same randomized class (for links: random mark), made of what "
    "the sender received and of nothing of its own: ε of each of its edges, however many of them "
    "collude",
)
MARK = Topic(
    name="strict/colour",
    door=Door.RELEASE,
    shape=None,
    common=True,
    learns="every neighbour gets the same random mark, drawn at random: it depends on no data",
)
PROPOSAL = Topic(
    name="strict/proposal",
    door=Door.CONTROL,
    vocabulary=("be my partner",),
    learns="a neighbour learns that the sender has no partner yet and chose it among its "
    "neighbours: a hint at the sender's degree",
)
REPLY = Topic(
    name="strict/reply",
    door=Door.CONTROL,
    vocabulary=("no", "yes"),
    learns="a device learns whether a neighbour is its partner: a hint at who proposed to it",
)
QUESTION = Topic(
    name="strict/question",
    door=Door.CONTROL,
    vocabulary=("may we compare",),
    learns="a device learns who wants to know the level of their score",
)
CONSENT = Topic(
    name="strict/consent",
    door=Door.CONTROL,
    vocabulary=("no", "yes"),
    learns="the asker learns whether the other has answers left: a hint at how many have asked it",
)


class ReceivedMessages(NamedTuple):
    """Messages from neighbours."""

    receiver: Ints
    """[messages] position of the hosted device that received it."""
    body: Bytes
    """[messages, bytes]"""


def send_over(
    topic: Topic,
    shard: Shard,
    slots: Ints | None,
    bodies: Bytes,
    epsilon: float,
    read: Callable[[Bytes], object],
) -> Program[ReceivedMessages]:
    """Send one message over each of some slots; return what the hosted devices received.

    Args:
        slots: from a hosted device to one of its neighbours; None for all of them.
        bodies: [slots, bytes].
        epsilon: spent by each message.
        read: raises `ProtocolError` for bodies that nobody can have sent who keeps the rules.

    Raises: ProtocolError: a non-neighbour sent a message, a neighbour sent two, or one has another
        length; or messages are not in the order of their receivers.
    """
    width = bodies.shape[1]

    def check(batch: Batch) -> None:
        if batch.messages:
            if batch.lengths is None or (batch.lengths != width).any():
                raise ProtocolError(f"topic {topic.name!r}: a message has the wrong length")
            read(batch.body[:, :width])

    rows = shard.owner if slots is None else shard.owner[slots]
    inbox = yield topic.send(
        shard.ids_of(rows),
        shard.neighbours if slots is None else shard.neighbours[slots],
        bodies,
        # One number for all messages, in the memory of one.
        epsilon=np.broadcast_to(np.float64(epsilon), len(rows)),
        lengths=np.broadcast_to(np.int64(width), len(rows)),
        awaits=shard.neighbours,
        check=check,
    )
    receiver = shard.local(inbox.receiver)
    if not nondecreasing(receiver):
        raise ProtocolError(f"topic {topic.name!r}: messages arrived out of order")
    if not _one_each(shard, receiver, inbox.sender):
        raise ProtocolError(
            f"topic {topic.name!r}: a non-neighbour sent a message, or one came twice"
        )
    lengths = inbox.batch.lengths
    if len(receiver) and (lengths is None or (lengths != width).any()):
        raise ProtocolError(f"topic {topic.name!r}: a message has the wrong length")
    body = inbox.body[:, :width] if len(receiver) else np.empty((0, width), np.uint8)
    return ReceivedMessages(receiver, body)


def _one_each(shard: Shard, receiver: Ints, sender: Ints) -> bool:
    """Whether messages came from neighbours, at most one from each."""
    if np.array_equal(sender, shard.neighbours) and np.array_equal(receiver, shard.owner):
        return True  # from every neighbour, in the order of the slots
    slots = shard.slots_or_none(receiver, sender)
    if np.count_nonzero(slots < 0):
        return False
    came = np.zeros(len(shard.neighbours), np.bool_)
    came[slots] = True
    return int(np.count_nonzero(came)) == len(slots)


def drawn_randomized_labels(shard: Shard, size: int) -> Ints:
    """[hosted] uniform values below `size`, to be sent."""
    everyone = np.arange(len(shard))
    chance = shard.randomness.uniform(everyone, "control symbol", 0)[:, 0]
    return np.floor(chance * size).astype(np.int64)


def drawn_values(shard: Shard, received: ReceivedMessages, size: int, step: int = 0) -> Ints:
    """[messages] uniform values below `size`, drawn by each receiver for itself.

    Args:
        step: names the randomness.
    """
    many = np.bincount(received.receiver, minlength=len(shard))
    chance = shard.randomness.uniform_each(many, "control", step)
    return np.floor(chance * size).astype(np.int64)


def drawn_propagated_labels(
    shard: Shard, received: ReceivedMessages, mechanism: Mechanism, number: int
) -> Bytes:
    """[messages, bytes] releases of uniform classes, drawn by each receiver for itself."""
    first = 100 * number
    classes = drawn_values(shard, received, mechanism.size, first)
    words = [
        drawn_values(shard, received, COIN, first + 1 + word)
        for word in range(mechanism.randomness)
    ]
    return mechanism.release(classes, np.stack(words, axis=1).astype(np.uint32))


PURPOSE = "opinion"


def propagated_labels(shard: Shard, evidence: Doubles, mechanism: Mechanism, number: int) -> Bytes:
    """[hosted, bytes] the randomized propagated labels of the hosted devices.

    Args:
        evidence: [hosted, k] of everything received so far.
        number: 1 for the first propagated label; names the randomness.
    """
    return randomized(shard, preferred(shard, evidence, number), mechanism, number)


def preferred(shard: Shard, evidence: Doubles, number: int) -> Ints:
    """[hosted] the propagated labels before they are randomized; arguments as in
    `propagated_labels`."""
    chosen: Ints = evidence.argmax(axis=1)
    best = evidence == row_maxima(evidence)[:, None]
    tied = np.flatnonzero(np.count_nonzero(best, axis=1) > 1)
    chance = shard.randomness.uniform(tied, f"{PURPOSE}/tie", number)
    chosen[tied] = most_likely(evidence[tied], chance[:, 0])
    return chosen


def randomized(shard: Shard, chosen: Ints, mechanism: Mechanism, number: int) -> Bytes:
    """[hosted, bytes] propagated labels as they are sent.

    Without devices that are left out, randomness is others: the propagated label may be another,
    and two of them with the same randomness would show by how much they differ.
    """
    absent = ",".join(map(str, sorted(shard.absent)))
    purpose = f"{PURPOSE}/without {absent}" if absent else PURPOSE
    randomness = shard.randomness.words(
        np.arange(len(shard)), purpose, number, mechanism.randomness
    )
    return mechanism.release(chosen, randomness)


def most_likely(evidence: Doubles, chance: Doubles) -> Ints:
    """[hosted] the class with the most evidence; one of the best by `chance` in (0, 1) at ties."""
    best = evidence == evidence.max(axis=1, keepdims=True)
    place = np.floor(chance * best.sum(axis=1)).astype(np.int64)
    which: Ints = (np.cumsum(best, axis=1) > place[:, None]).argmax(axis=1)
    return which
