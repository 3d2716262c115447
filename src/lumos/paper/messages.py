"""Every message of the paper's profile, and features on their way to the trees that need them.

The door `open` protects nothing. What passes there is what section VI of the paper sends, and
`lumos.paper.trainer.exposure` describes what it gives away (errata A to H).
"""

from dataclasses import replace
from typing import TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_array, issparse
from torch import Tensor

from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Program
from lumos.exchange.messages import Door, Inbox, Outbox, Topic
from lumos.ldp import ENCODERS, EncoderSettings, RecoveredFeatures, joined
from lumos.ldp.bounds import Features
from lumos.paper.profile import Recovery
from lumos.typing import Flags, Ints

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
    learns="a neighbour gets the sender's features without noise (ε = inf)",
)
LEAF = Topic(
    name="train/leaf",
    door=Door.OPEN,
    shape=None,
    learns="a device gets its leaf's embedding from a neighbour's tree: a function of the "
    "neighbour's raw features",
)
LEAF_GRADIENT = Topic(
    name="train/leaf-gradient",
    door=Door.OPEN,
    shape=None,
    learns="a neighbour gets the gradient of its leaf: it depends on the sender's label or links, "
    "and its factor on the number of leaves",
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
    learns="whoever asked gets an embedding computed from raw features, non-neighbours too",
)
EMBEDDING_GRADIENT = Topic(
    name="train/embedding-gradient",
    door=Door.OPEN,
    shape=None,
    learns="the asked device, non-neighbours too, gets the direction of the asker's own embedding",
)


ReceivedFeatures: TypeAlias = "RecoveredFeatures | Features"
"""Features of neighbours: as the one-bit mechanism has them, dense, or CSR."""


def send_rows(topic: Topic, sender: Ints, receiver: Ints, rows: Tensor) -> Outbox:
    """An outbox of one row of numbers for each message, little-endian float32.

    Args:
        sender, receiver: [messages] ids.
        rows: [messages, width] to send; the caller must not use the array afterwards.
    """
    body = np.ascontiguousarray(rows.detach().numpy(), "<f4").view(np.uint8)
    return topic.send(sender, receiver, body, lengths=np.full(len(sender), body.shape[1]))


def received_rows(topic: Topic, inbox: Inbox, width: int) -> Tensor:
    """[messages, width] the received rows.

    Raises:
        ProtocolError: a message is not `width` finite numbers.
    """
    if not inbox.batch.messages:
        return torch.empty(0, width)
    lengths = inbox.batch.lengths
    if inbox.body.shape[1] != 4 * width or lengths is None or (lengths != 4 * width).any():
        raise ProtocolError(f"topic {topic.name!r}: a message is not {width} numbers")
    rows = np.require(np.ascontiguousarray(inbox.body).view("<f4"), np.float32, ["C", "W"])
    if not np.isfinite(rows).all():
        raise ProtocolError(f"topic {topic.name!r}: a message has a number that is not finite")
    return torch.from_numpy(rows)


def exchange_features(
    shard: Shard,
    leaves: Flags,
    features: Features,
    settings: EncoderSettings,
    *,
    step: int = 0,
) -> Program[ReceivedFeatures]:
    """Send features to every device whose tree has a leaf for the sender, once per run.

    Args:
        leaves: [slots] whether the neighbour has a leaf in the hosted device's tree.
        features: [hosted, d] to release.
        settings: ε, bounds, bins.
        step: number of this release; each has randomness of its own, and each costs ε again.

    Returns:
        the recovered features for each branch, in the order of the branches.
    """
    kept = np.flatnonzero(leaves)
    inbox = yield CARRY.along(shard, kept, 0)
    # By receiver, then sender: for each hosted device its receivers in increasing order.
    sender, receiver = inbox.receiver, inbox.sender
    receivers = np.bincount(shard.local(sender), minlength=len(shard))
    encoder, width = ENCODERS[settings.encoder], features.shape[1]
    messages, epsilon = encoder.encode(features, receivers, settings, shard.randomness, step)
    topic = SHARED_FEATURES if encoder.common else FEATURES if settings.noisy else CLEAR_FEATURES
    owner, neighbour = shard.owner[kept], shard.neighbours[kept]
    keys = owner * shard.total + neighbour  # increasing: the order of the branches
    parts = []
    for number in range(encoder.rounds(width, settings)):
        rows, body, lengths = messages.part(number)
        # ε belongs to the whole message, and its first part pays it.
        spent = epsilon[rows] if number == 0 else np.zeros(len(rows))
        inbox = yield topic.send(
            sender[rows],
            receiver[rows],
            body,
            lengths=lengths,
            epsilon=spent if settings.noisy else None,
        )
        arrived = shard.local(inbox.receiver) * shard.total + inbox.sender
        branch = np.minimum(np.searchsorted(keys, arrived), max(0, len(keys) - 1))
        if number == 0 and not np.array_equal(keys, arrived):
            raise ProtocolError("features: a message is missing, or was not asked for")
        if len(arrived) and not np.array_equal(keys[branch], arrived):
            raise ProtocolError("features: a message was not asked for")
        of_messages = inbox.batch.lengths
        parts.append(
            (branch, inbox.body, np.zeros(0, np.int64) if of_messages is None else of_messages)
        )
    received: ReceivedFeatures = encoder.decode(joined(parts, len(keys)), width, settings)
    return received


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
