"""Every message of the paper's profile, and features on their way to the trees that need them.

The door `open` protects nothing. What passes there is what section VI of the paper sends, and
`lumos.paper.trainer.exposure` describes what it gives away (errata A to H).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_array, issparse
from torch import Tensor

from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Program
from lumos.exchange.messages import Batch, CheckMessages, Door, Outbox, Topic
from lumos.ldp import ENCODERS, EncoderSettings, Messages, RecoveredFeatures, joined
from lumos.ldp.bounds import Features
from lumos.ldp.wire import PART
from lumos.paper.profile import Recovery
from lumos.typing import Bytes, Flags, Ints

CARRY = Topic(
    name="train/carry",
    door=Door.CONTROL,
    vocabulary=("your leaf is in my tree",),
    learns="a device learns which of its neighbours carry their common edge",
)
FEATURES = Topic(
    name="train/features",
    door=Door.RELEASE,
    shape=None,
    learns="one neighbour gets one-bit encoded features: ε each; s = ⌈d/ρ⌉ tells it the range of ρ",
)
SHARED_FEATURES = Topic(
    name="train/shared-features",
    door=Door.RELEASE,
    shape=None,
    common=True,
    learns="all neighbours get one release of features, the same one: ε as the encoder has it",
)
CLEAR_FEATURES = Topic(
    name="train/features-in-the-clear",
    door=Door.OPEN,
    shape=None,
    learns="exposed to neighbours: the sender's features without noise (ε = inf); to the network: "
    "how many are not 0, by the length",
)
LEAF = Topic(
    name="train/leaf",
    door=Door.OPEN,
    shape=None,
    learns="exposed to neighbours: a device gets its leaf's embedding from a neighbour's tree, a "
    "function of the neighbour's raw features",
)
LEAF_GRADIENT = Topic(
    name="train/leaf-gradient",
    door=Door.OPEN,
    shape=None,
    learns="exposed to neighbours: a neighbour gets the gradient of its leaf, which depends on the "
    "sender's label or links, and its factor on the number of leaves",
)
ASK = Topic(
    name="train/ask",
    door=Door.CONTROL,
    vocabulary=("send me your embedding",),
    learns="a device learns who wants its embedding: a neighbour, or someone who drew it at random",
)
EMBEDDING = Topic(
    name="train/embedding",
    door=Door.OPEN,
    shape=None,
    learns="exposed to neighbours, and to non-neighbours who asked: an embedding computed from raw "
    "features",
)
EMBEDDING_GRADIENT = Topic(
    name="train/embedding-gradient",
    door=Door.OPEN,
    shape=None,
    learns="exposed to neighbours, and to non-neighbours that were asked: the direction of the "
    "asker's own embedding",
)


ReceivedFeatures: TypeAlias = "RecoveredFeatures | Features"
"""Features of neighbours: as the one-bit mechanism has them, dense, or CSR."""


def send_rows(
    topic: Topic,
    sender: Ints,
    receiver: Ints,
    rows: Tensor,
    *,
    awaits: Ints | None = None,
    check: CheckMessages | None = None,
) -> Outbox:
    """An outbox of one row of numbers for each message, little-endian float32.

    Args:
        sender, receiver: [messages] ids.
        rows: [messages, width] to send; the caller must not use the array afterwards.
        awaits, check: see `Outbox`.
    """
    body = np.ascontiguousarray(rows.detach().numpy(), "<f4").view(np.uint8)
    lengths = np.full(len(sender), body.shape[1])
    return topic.send(sender, receiver, body, lengths=lengths, awaits=awaits, check=check)


def received_rows(topic: Topic, batch: Batch, width: int) -> Tensor:
    """[messages, width] the received rows.

    Raises:
        ProtocolError: a message is not `width` finite numbers.
    """
    if not batch.messages:
        return torch.empty(0, width)
    lengths = batch.lengths
    if batch.body.shape[1] != 4 * width or lengths is None or (lengths != 4 * width).any():
        raise ProtocolError(f"topic {topic.name!r}: a message is not {width} numbers")
    rows = np.require(np.ascontiguousarray(batch.body).view("<f4"), np.float32, ["C", "W"])
    if not np.isfinite(rows).all():
        raise ProtocolError(f"topic {topic.name!r}: a message has a number that is not finite")
    return torch.from_numpy(rows)


def received_slots(topic: Topic, shard: Shard, batch: Batch, allowed: Ints) -> Ints:
    """[messages] slots over which messages came, increasing.

    Args:
        allowed: slots over which a message may come, once, increasing. A device that is lost sends
            none.

    Raises:
        ProtocolError: a message came over another slot, or two came over one.
    """
    sender, receiver = batch.sender, shard.local(batch.receiver)
    if np.array_equal(shard.neighbours[allowed], sender) and np.array_equal(
        shard.owner[allowed], receiver
    ):
        return allowed
    slots = shard.slots_or_none(receiver, sender)
    if not np.isin(slots, allowed).all() or (np.diff(slots) <= 0).any():
        raise ProtocolError(f"topic {topic.name!r}: a message was not expected, or came twice")
    return slots


def from_slots(
    topic: Topic, shard: Shard, allowed: Ints, width: int | None = None
) -> CheckMessages:
    """The check of messages that `received_slots`, and with a width `received_rows`, take."""

    def check(batch: Batch) -> None:
        received_slots(topic, shard, batch, allowed)
        if width is not None:
            received_rows(topic, batch, width)

    return check


class ExchangedFeatures(NamedTuple):
    """The features of neighbours, and who takes part in the trees of whom."""

    features: ReceivedFeatures
    """[branches that arrived, d] as receivers recover them."""
    branches: Ints
    """[branches that arrived] slots of the neighbours whose features came, increasing."""
    carriers: Ints
    """[leaves elsewhere] slots of the neighbours that have a leaf for the hosted device."""


def exchange_features(
    shard: Shard,
    leaves: Flags,
    features: Features,
    settings: EncoderSettings,
    *,
    step: int = 0,
) -> Program[ExchangedFeatures]:
    """Send features to every device whose tree has a leaf for the sender, once per run.

    A neighbour that is lost on the way has no branch.

    Args:
        leaves: [slots] whether the neighbour has a leaf in the hosted device's tree.
        features: [hosted, d] to release.
        settings: ε, bounds, bins.
        step: number of this release; each has randomness of its own, and each costs ε again.
    """
    branches, every = np.flatnonzero(leaves), np.arange(len(leaves))
    inbox = yield CARRY.send(
        shard.ids_of(shard.owner[branches]),
        shard.neighbours[branches],
        0,
        awaits=shard.neighbours,
        check=from_slots(CARRY, shard, every),
    )
    carriers = received_slots(CARRY, shard, inbox.batch, every)
    # By receiver, then sender: for each hosted device its receivers in increasing order.
    sender, receiver = inbox.receiver, inbox.sender
    receivers = np.bincount(shard.local(sender), minlength=len(shard))
    encoder, width = ENCODERS[settings.encoder], features.shape[1]
    messages, epsilon = encoder.encode(features, receivers, settings, shard.randomness, step)
    topic = SHARED_FEATURES if encoder.common else FEATURES if settings.noisy else CLEAR_FEATURES
    rounds = encoder.rounds(width, settings)

    def check(batch: Batch) -> None:
        received_slots(topic, shard, batch, branches)
        if rounds == 1 and batch.messages:
            whole = joined([_part(np.arange(batch.messages), batch)], batch.messages)
            encoder.decode(whole, width, settings)

    parts: list[tuple[Ints, Bytes, Ints]] = []
    there = going = branches
    for number in range(rounds):
        rows, body, lengths = messages.part(number)
        # ε belongs to the whole message, and its first part pays it.
        spent = epsilon[rows] if number == 0 else np.zeros(len(rows))
        inbox = yield topic.send(
            sender[rows],
            receiver[rows],
            body,
            lengths=lengths,
            epsilon=spent if settings.noisy else None,
            awaits=shard.neighbours,
            check=check,
        )
        slots = received_slots(topic, shard, inbox.batch, branches)
        known = np.isin(slots, going)  # a message ends where a part does not come
        going = slots[known]
        there = going if number == 0 else there
        parts.append(_part(np.searchsorted(there, going), inbox.batch.take(known)))
    whole = joined(parts, len(there))
    lost = _cut_off(whole, lambda some: encoder.decode(some, width, settings), rounds)
    if lost.any():
        there, whole = there[~lost], whole.take(np.flatnonzero(~lost))
    received: ReceivedFeatures = encoder.decode(whole, width, settings)
    return ExchangedFeatures(received, there, carriers)


def _cut_off(messages: Messages, decode: Callable[[Messages], object], rounds: int) -> Flags:
    """[messages] those whose sender was lost between two parts: they end with a whole part."""
    lengths = messages.lengths
    lost = np.zeros(len(lengths), np.bool_)
    for row in np.flatnonzero((lengths % PART == 0) & (lengths < rounds * PART)):
        try:
            decode(messages.take(np.array([row])))
        except ProtocolError:
            lost[row] = True
    return lost


def _part(rows: Ints, batch: Batch) -> tuple[Ints, Bytes, Ints]:
    """A part of messages, as `joined` takes it."""
    return rows, batch.body, np.zeros(0, np.int64) if batch.lengths is None else batch.lengths


def on_leaves(
    recovered: RecoveredFeatures, settings: EncoderSettings, recovery: Recovery
) -> RecoveredFeatures:
    """The features that receivers put on their leaves: post-processing, which costs no ε.

    literal: x'' as recovered. shrunk: (x'' - midpoint) · tanh(ε'/2)², so ±(b - a)/2 · tanh(ε'/2)
    where an element was received and 0 elsewhere. tanh(ε'/2)² is the share of x'' that is signal,
    for elements as far apart as the bounds allow, so a leaf is scaled by its reliability.
    """
    if recovery == "literal" or not (settings.noisy or settings.bins):
        return recovered
    half = np.float32((settings.high - settings.low) / 2)
    scale = half * half / recovered.scale if settings.noisy else recovered.scale
    return replace(recovered, scale=scale, filler=0.0)


def without_information(features: Features, settings: EncoderSettings) -> Features:
    """Features of the same shape that carry no information: equal for all devices (control)."""
    if issparse(features):
        nowhere = np.zeros(features.shape[0] + 1, np.int32)
        nothing = np.empty(0, np.float32), np.empty(0, np.int32), nowhere
        return csr_array(nothing, shape=features.shape)
    return np.broadcast_to(np.float32(settings.midpoint), features.shape)
