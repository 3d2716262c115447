"""Messages to neighbours: topics, sending and checking, propagated labels, and control messages.

**Control run.** Its messages depend on no data. One random value for all neighbours would mark the
sender, and so its community. So every receiver draws the content of each message for itself.

**Propagated labels.** A propagated label is the class, or the random mark, that a device's evidence
so far points to, randomized. It depends on received messages and public matrices only, so it costs
no ε of any feature or label. It depends on the sender's edges and degree, and is randomized for
that reason.

**One end uses an edge.** A public rule names one end of every edge, its *user* (`uses_edge`). Of a
training device and one that does not train, it is the latter: only it receives a randomized label
over the edge. Otherwise a fixed hash of both ids decides. A device computes its propagated labels
from the messages of the edges that it uses, and from no others. Predictions, which stay on the
device, use all messages.

Guarantee: a propagated label is the same for all receivers, so one edge changes the propagated
labels of its user only: ε_m each, for any two neighbourhoods, however many receivers collude. All
that follows is a function of what was sent (docs/strict-proofs.md). A propagated label made for one
receiver, without the messages of that receiver, would guarantee nothing
(`tests/strict/test_propagated_labels.py` breaks it).

Every device with a neighbour sends, even if it received nothing: silence would reveal that. Ties
between classes are broken at random. A device whose evidence does not tell any two classes apart
has no class to send: if the mechanism has one value more than there are classes, it sends that one,
randomized like the others. A class drawn at random would hide the labels of those who know more.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lumos.device.randomness import mix
from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.counts import nondecreasing
from lumos.exchange.endpoint import Program
from lumos.exchange.messages import Batch, Door, Topic
from lumos.ldp.mechanisms import COIN, Mechanism
from lumos.strict.features import row_maxima
from lumos.typing import Bytes, Doubles, Flags, Ints

RANDOMIZED_LABEL = Topic(
    name="strict/symbol",
    door=Door.RELEASE,
    shape=None,
    common=True,
    learns="every neighbour gets the same randomized label: ε, however many of them collude",
)
PROPAGATED_LABEL = Topic(
    name="strict/opinion",
    door=Door.RELEASE,
    shape=None,
    common=True,
    about_edges=True,
    learns="every neighbour gets the same randomized class (for links: random mark), which depends "
    "on what the sender received and not on its own data: ε for each of its edges, however many "
    "neighbours collude",
)
PREDICTED_LABEL = Topic(
    name="strict/prediction",
    door=Door.RELEASE,
    shape=None,
    common=True,
    learns="every neighbour gets the same randomized class, which the sender's own features point "
    "to: ε of its features, however many neighbours collude",
)
MARK = Topic(
    name="strict/colour",
    door=Door.RELEASE,
    shape=None,
    common=True,
    learns="every neighbour gets the same random mark, which depends on no data",
)
PROPOSAL = Topic(
    name="strict/proposal",
    door=Door.CONTROL,
    vocabulary=("be my partner",),
    learns="a device learns that the sender has no partner for calibration yet, and a held-back "
    "edge to it",
)
REPLY = Topic(
    name="strict/reply",
    door=Door.CONTROL,
    vocabulary=("no", "yes"),
    learns="a device learns whether the other end of a held-back edge is its partner",
)
QUESTION = Topic(
    name="strict/question",
    door=Door.CONTROL,
    vocabulary=("may we compare",),
    learns="a device learns who asks for the bucket of their score",
)
CONSENT = Topic(
    name="strict/consent",
    door=Door.CONTROL,
    vocabulary=("no", "yes"),
    learns="the asker learns whether the other has score queries left: a hint at how many have "
    "asked it",
)


def uses_edge(
    devices: Ints, neighbours: Ints, released: Flags | None = None, theirs: Flags | None = None
) -> Flags:
    """Return [edges] whether each device, and not its neighbour, is the user of their edge.

    Everybody computes the same from public facts; no other edge has any part in it. Of two devices
    of which one has released a randomized label, the other one is the user. Otherwise their ids
    decide: the larger one, l, is the user if the highest bit of mix(mix(s) + l) is 1, the smaller
    one, s, if it is 0.

    Args:
        devices: [edges] ids.
        neighbours: [edges] ids.
        released: [edges] whether the device has released its randomized label; None if no device
            does.
        theirs: [edges] the same for its neighbour.
    """
    smaller, larger = np.minimum(devices, neighbours), np.maximum(devices, neighbours)
    state = mix(mix(smaller.astype(np.uint64)) + larger.astype(np.uint64))
    uses: Flags = (state >> np.uint64(63) == 1) == (devices > neighbours)
    if released is not None and theirs is not None:
        uses = np.where(released == theirs, uses, theirs)
    return uses


class ReceivedMessages(NamedTuple):
    """Messages from neighbours."""

    receiver: Ints
    """[messages] position of the hosted device that received it."""
    slot: Ints
    """[messages] slot of receiver and sender."""
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
        read: raises `ProtocolError` for bodies that no honest device can have sent.

    Raises:
        ProtocolError: a non-neighbour sent a message, a neighbour sent two, a message has another
            length, or messages are not in the order of their receivers.
    """
    width = bodies.shape[1]

    def check(batch: Batch) -> None:
        if batch.messages:
            if batch.lengths is None or (batch.lengths != width).any():
                raise ProtocolError(f"topic {topic.name!r}: a message has the wrong length")
            if len(np.unique(batch.sender)) < batch.messages:  # of one receiver
                raise ProtocolError(f"topic {topic.name!r}: a message came twice")
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
    slot = _slots(shard, receiver, inbox.sender)
    if slot is None:
        raise ProtocolError(
            f"topic {topic.name!r}: a non-neighbour sent a message, or one came twice"
        )
    lengths = inbox.batch.lengths
    if len(receiver) and (lengths is None or (lengths != width).any()):
        raise ProtocolError(f"topic {topic.name!r}: a message has the wrong length")
    body = inbox.body[:, :width] if len(receiver) else np.empty((0, width), np.uint8)
    return ReceivedMessages(receiver, slot, body)


def _slots(shard: Shard, receiver: Ints, sender: Ints) -> Ints | None:
    """Return the slots of messages; None unless they came from neighbours, at most one of each."""
    if np.array_equal(sender, shard.neighbours) and np.array_equal(receiver, shard.owner):
        return np.arange(len(sender))  # from every neighbour, in the order of the slots
    slots = shard.slots_or_none(receiver, sender)
    if np.count_nonzero(slots < 0):
        return None
    came = np.zeros(len(shard.neighbours), np.bool_)
    came[slots] = True
    return slots if int(np.count_nonzero(came)) == len(slots) else None


def drawn_randomized_labels(shard: Shard, size: int) -> Ints:
    """Return [hosted] uniform values below `size`, to be sent."""
    everyone = np.arange(len(shard))
    chance = shard.randomness.uniform(everyone, "control symbol", 0)[:, 0]
    return np.floor(chance * size).astype(np.int64)


def drawn_values(shard: Shard, received: ReceivedMessages, size: int, step: int = 0) -> Ints:
    """Return [messages] uniform values below `size`, drawn by each receiver for itself.

    Args:
        step: names the randomness.
    """
    many = np.bincount(received.receiver, minlength=len(shard))
    chance = shard.randomness.uniform_each(many, "control", step)
    return np.floor(chance * size).astype(np.int64)


def drawn_propagated_labels(
    shard: Shard, received: ReceivedMessages, mechanism: Mechanism, number: int
) -> Bytes:
    """Return [messages, bytes] releases of uniform classes, drawn by each receiver for itself."""
    first = 100 * number
    classes = drawn_values(shard, received, mechanism.size, first)
    words = [
        drawn_values(shard, received, COIN, first + 1 + word)
        for word in range(mechanism.randomness)
    ]
    return mechanism.release(classes, np.stack(words, axis=1).astype(np.uint32))


PURPOSE, PREDICTION = "opinion", "prediction"


def propagated_labels(shard: Shard, evidence: Doubles, mechanism: Mechanism, number: int) -> Bytes:
    """Return [hosted, bytes] the randomized propagated labels of the hosted devices.

    Args:
        evidence: [hosted, k] from everything received so far over the edges that a device uses.
        mechanism: on k values; or on k + 1, of which the last one stands for no class.
        number: 1 for the first propagated label; names the randomness.
    """
    chosen, classes = preferred(shard, evidence, number), evidence.shape[1]
    if mechanism.size > classes:
        chosen[undecided(evidence)] = classes
    return randomized(shard, chosen, mechanism, number)


def undecided(evidence: Doubles) -> Flags:
    """Return [hosted] whether all classes have the same evidence."""
    same: Flags = (evidence == evidence[:, :1]).all(axis=1)
    return same


def preferred(shard: Shard, evidence: Doubles, number: int) -> Ints:
    """Return [hosted] propagated labels before randomization; see `propagated_labels`."""
    chosen: Ints = evidence.argmax(axis=1)
    best = evidence == row_maxima(evidence)[:, None]
    tied = np.flatnonzero(np.count_nonzero(best, axis=1) > 1)
    chance = shard.randomness.uniform(tied, f"{PURPOSE}/tie", number)
    chosen[tied] = most_likely(evidence[tied], chance[:, 0])
    return chosen


def randomized(
    shard: Shard, chosen: Ints, mechanism: Mechanism, number: int, purpose: str = PURPOSE
) -> Bytes:
    """Return [hosted, bytes] propagated labels, or others, as they are sent.

    Randomness depends on who is left out: the propagated label may then be another one, and two
    releases with the same randomness would show by how much they differ.
    """
    absent = ",".join(map(str, sorted(shard.absent)))
    purpose = f"{purpose}/without {absent}" if absent else purpose
    randomness = shard.randomness.words(
        np.arange(len(shard)), purpose, number, mechanism.randomness
    )
    return mechanism.release(chosen, randomness)


def most_likely(evidence: Doubles, chance: Doubles) -> Ints:
    """Return [hosted] the class with the most evidence; `chance` in (0, 1) breaks ties."""
    best = evidence == evidence.max(axis=1, keepdims=True)
    place = np.floor(chance * best.sum(axis=1)).astype(np.int64)
    which: Ints = (np.cumsum(best, axis=1) > place[:, None]).argmax(axis=1)
    return which
