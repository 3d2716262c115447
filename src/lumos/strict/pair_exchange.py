"""The exchange of answers about the pairs that devices train and validate on.

Neighbours send each other their answers. Strangers, and the peers of held-back validation edges,
are asked: one question to each, however many pairs it is in. A device asks the same number of
strangers whatever its degree, and uses as many of the answers as it has neighbours to train with.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Program
from lumos.strict.answer_samples import Answers, check_answers
from lumos.strict.relay import send_to_neighbours
from lumos.strict.score_models import PAIRS
from lumos.strict.topics import ANSWER, ASK, NEIGHBOUR_ANSWER
from lumos.training.strangers import Strangers
from lumos.typing import Bytes, Doubles, Ints


class AnsweredPairs(NamedTuple):
    """Pairs of one kind, by asker."""

    rows: Ints
    """[pairs] position of the asker, not decreasing."""
    answers: Bytes
    """[pairs, kinds · (1 + hops · many)] of the peers."""


class ReceivedAnswers(NamedTuple):
    """All answers that the hosted devices received."""

    slots: Ints
    """[pairs] slots of the neighbours to train with."""
    neighbours: AnsweredPairs
    """The same pairs with their answers."""
    strangers: AnsweredPairs
    """As many strangers of each device to train with."""
    validation_edges: AnsweredPairs
    """One held-back edge of each device that has any."""
    validation_strangers: AnsweredPairs
    """As many strangers of the same devices."""


def exchange_answers(
    shard: Shard, answers: Answers, sizes: Sequence[int], held_back: Ints, epsilon: Doubles
) -> Program[ReceivedAnswers]:
    """Send the answers of the hosted devices, and collect those about their pairs.

    Args:
        answers: of the hosted devices.
        sizes: number of symbols of each kind.
        held_back: [pairs, 2] position of a hosted device and id of a neighbour.
        epsilon: [hosted] that an answer costs: that of the device's release.

    Raises:
        ProtocolError: an answer is missing, unexpected, of another length, or out of range.
    """
    free = np.zeros(len(shard.owner))
    near = yield from send_to_neighbours(NEIGHBOUR_ANSWER, shard, answers.for_neighbours, free)
    check_answers(near, sizes)
    slots = sample_slots(shard, PAIRS)
    strangers = Strangers(shard)
    held_rows, first = np.unique(held_back[:, 0], return_index=True)
    asked = [
        strangers.draw(np.full(len(shard), PAIRS), "strangers", 0),
        (held_rows, held_back[first, 1]),
        strangers.draw(np.bincount(held_rows, minlength=len(shard)), "validation strangers", 0),
    ]
    rows, peers = (np.concatenate(part) for part in zip(*asked, strict=True))
    received = yield from _ask(shard, rows, peers, answers.for_strangers, epsilon)
    check_answers(received, sizes)
    ends = np.cumsum([len(askers) for askers, _ in asked])[:-1]
    far, validation_edges, validation_strangers = (
        AnsweredPairs(*pairs)
        for pairs in zip(np.split(rows, ends), np.split(received, ends), strict=True)
    )
    neighbours = np.bincount(shard.owner[slots], minlength=len(shard))
    used = rank(far.rows, len(shard)) < neighbours[far.rows]
    return ReceivedAnswers(
        slots=slots,
        neighbours=AnsweredPairs(shard.owner[slots], near[slots]),
        strangers=AnsweredPairs(far.rows[used], far.answers[used]),
        validation_edges=validation_edges,
        validation_strangers=validation_strangers,
    )


def _ask(shard: Shard, rows: Ints, peers: Ints, answers: Bytes, epsilon: Doubles) -> Program[Bytes]:
    """[pairs, bytes] the peers' answers; each peer is asked once by a device.

    Args:
        rows: [pairs] positions of the askers.
        peers: [pairs] ids.
        answers: [hosted, bytes] of the hosted devices to whoever asks them.
        epsilon: [hosted].
    """
    width = answers.shape[1]
    keys, which = np.unique(rows * shard.total + peers, return_inverse=True)
    askers, answerers = shard.ids_of(keys // shard.total), keys % shard.total
    inbox = yield ASK.send(askers, answerers, 0)
    answering = shard.local(inbox.receiver)
    body = answers[answering]
    inbox = yield ANSWER.send(
        inbox.receiver,
        inbox.sender,
        body,
        epsilon=epsilon[answering],
        lengths=np.full(len(body), width),
    )
    if not np.array_equal(inbox.receiver, askers) or not np.array_equal(inbox.sender, answerers):
        raise ProtocolError(f"topic {ANSWER.name!r}: an answer is missing, or was not asked for")
    lengths = inbox.batch.lengths
    if len(askers) and (lengths is None or (lengths != width).any()):
        raise ProtocolError(f"topic {ANSWER.name!r}: a message has the wrong length")
    received = inbox.body[:, :width] if len(askers) else np.empty((0, width), np.uint8)
    return received[which]


def sample_slots(shard: Shard, many: int) -> Ints:
    """At most `many` slots of each device, drawn once per run, in order."""
    chance = shard.coins.uniform_each(shard.degree, "pairs", 0)
    order = np.lexsort((chance, shard.owner))
    place = np.arange(len(order)) - shard.offsets[:-1][shard.owner]
    return np.sort(order[place < many])


def rank(rows: Ints, hosted: int) -> Ints:
    """[pairs] number of earlier pairs of the same asker; `rows` do not decrease."""
    counts = np.bincount(rows, minlength=hosted)
    return np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
