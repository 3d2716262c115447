"""The wire format between real devices and the coordinator.

A *packet* is a list of frames from one participant to another, sealed as a whole. Messages of
programs are frames of one kind, `Data`: an envelope with all messages of one sender to one receiver
in one round, empty or not. The other frames keep rounds going, and hold nothing of anybody's data:

| frame | from → to | content |
|---|---|---|
| data | anybody → anybody | the messages of a round |
| acknowledged | receiver → sender | which envelopes have arrived, and which phases are on disk |
| asked | sender → receiver | have these envelopes arrived? They are large |
| wanted | receiver → sender | they have not: send them again |
| hello | whoever starts → its peers | that it has started, and which envelopes it needs |
| welcome | peer → whoever started | that all those have arrived |
| alive | device → coordinator | that it is there, and in which phase |
| run | coordinator → device | where the run stands: phase, who is left out, whether it has ended |
| flags | device → coordinator | masked, in rounds between devices: is something missing; a word |
| closed | coordinator → device | the round is over |

A packet is padded to a multiple of `PADDING` bytes, so that an envelope with a short message and an
empty one look alike to whoever carries them.
"""

from struct import Struct
from typing import NamedTuple

import msgspec
import numpy as np

from lumos.errors import InputError, ProtocolError
from lumos.exchange.endpoint import check_form, check_no_padding
from lumos.exchange.messages import Batch, Topic
from lumos.typing import Doubles, Ints

WIRE_VERSION = 6
"""Participants with another version are refused."""
PADDING = 256
LARGEST = 64 << 20
"""Bytes of one packet."""


class RoundKey(NamedTuple):
    """The key of a round: unique in the run, and the same at all participants."""

    phase: int
    attempt: int
    channel: int
    """Rounds of each kind are numbered apart: with the coordinator, between devices, of both,
    between devices without the coordinator, and those in which it gathers a word of each."""
    number: int


WITH_COORDINATOR, BETWEEN_DEVICES, OF_BOTH, LOCAL, GATHERED = range(5)
FLAG_BYTES = 16


class Data(msgspec.Struct, frozen=True, array_like=True, tag="data"):
    """All messages of one sender to one receiver in one round."""

    key: RoundKey
    topic: str
    count: int
    """Number of messages."""
    body: bytes
    """One after the other, without padding."""
    lengths: list[int] | None = None
    """Bytes of each, where they differ."""
    quiet: bool = False
    """From the coordinator: it sends nothing to anybody in this round."""


class Acknowledged(msgspec.Struct, frozen=True, array_like=True, tag="ack"):
    """Envelopes that have arrived; and before which phase the receiver needs none again."""

    keys: list[RoundKey]
    durable: int
    boot: bytes
    """The start of the receiver in which they have arrived."""


class Asked(msgspec.Struct, frozen=True, array_like=True, tag="asked"):
    """A question in place of a repetition: have these envelopes arrived?"""

    keys: list[RoundKey]
    copies: list[int]
    """Number of times each was sent so far."""


class Wanted(msgspec.Struct, frozen=True, array_like=True, tag="wanted"):
    """The answer about those that have not arrived; the others are acknowledged."""

    keys: list[RoundKey]
    copies: list[int]
    """As in the question: the answer to an earlier one asks for nothing."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """Whoever starts, or starts again, says so until it is acknowledged."""

    boot: bytes
    """Random: another one after a restart."""
    durable: int


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """The answer to a hello, once all envelopes that its sender may have lost have arrived."""

    boot: bytes


class Alive(msgspec.Struct, frozen=True, array_like=True, tag="alive"):
    """A device is there."""

    phase: int
    attempt: int
    """At the phase: that which it is in."""
    ready: bool = False
    """It has finished that attempt, and waits for the coordinator to go on."""


class RunState(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """The state of the run, as the coordinator sends it."""

    phase: int
    attempt: int
    out: list[int]
    """Devices that are left out for good."""
    ended: str | None = None
    """Empty: the run is finished; a line: it has failed, and why; None: it goes on."""


class MaskedFlags(msgspec.Struct, frozen=True, array_like=True, tag="flags"):
    """The masked flags of a device in a round between devices, at its last ticks."""

    key: RoundKey
    ticks: list[int]
    shares: bytes
    """For each tick `FLAG_BYTES`: whether something is missing, and whether it sent a message; then
    the word of each device, in rounds in which they are gathered."""


class Closed(msgspec.Struct, frozen=True, array_like=True, tag="closed"):
    """A round is over."""

    key: RoundKey
    quiet: bool
    """Nobody sent anything."""


Frame = (
    Data | Acknowledged | Asked | Wanted | Hello | Welcome | Alive | RunState | MaskedFlags | Closed
)

RUN_TAG = 32
"""Bytes of the tag of a run: the digest of its signed plan."""
_HEAD = Struct(f"<B{RUN_TAG}sqqI")
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Frame])


class Route(NamedTuple):
    """The run, the sender and the receiver of a packet."""

    run: bytes
    """`RUN_TAG` bytes."""
    sender: int
    receiver: int


def encode(route: Route, frames: list[Frame]) -> bytes:
    """Return a packet: version, run, sender, receiver, length, frames, padding.

    It is sealed as a whole. The run and both ends are in it so that a packet of another run, of
    another pair, or one that comes back to its own sender is refused.
    """
    body = _ENCODER.encode(frames)
    head = _HEAD.pack(WIRE_VERSION, *route, len(body))
    return (head + body).ljust(-(-(len(head) + len(body)) // PADDING) * PADDING, b"\0")


def decode(route: Route, packet: bytes) -> list[Frame]:
    """Return the frames of a packet.

    Args:
        route: as the packet must have it.

    Raises:
        InputError: the sender speaks another version.
        ProtocolError: the bytes are no packet of this run between these two.
    """
    if len(packet) < PADDING or len(packet) % PADDING or len(packet) > LARGEST:
        raise ProtocolError(f"invalid packet size: {len(packet):,} bytes")
    version, run, sender, receiver, size = _HEAD.unpack_from(packet)
    if version != WIRE_VERSION:
        raise InputError(
            f"a participant speaks wire version {version}, this one {WIRE_VERSION}; run the same "
            "version of Lumos everywhere"
        )
    if (run, sender, receiver) != route:
        raise ProtocolError("a packet is of another run, or of other participants")
    end = _HEAD.size + size
    if end > len(packet) or len(packet) - end >= PADDING or packet[end:].strip(b"\0"):
        raise ProtocolError("the length field of a packet does not match its size")
    try:
        return _DECODER.decode(packet[_HEAD.size : end])
    except (msgspec.MsgspecError, ValueError):  # text that is no UTF-8 is the latter
        raise ProtocolError("a packet holds no frames") from None


def data_of(key: RoundKey, topic: Topic, batch: Batch, rows: Ints, *, quiet: bool = False) -> Data:
    """Return the envelope with the messages at `rows`, all to one receiver."""
    some = batch.take(rows)
    if not len(rows):
        return Data(key, topic.name, 0, b"", quiet=quiet)
    body = np.ascontiguousarray(some.body)
    if some.lengths is None:
        return Data(key, topic.name, len(rows), body.tobytes(), quiet=quiet)
    lengths = some.lengths.tolist()
    whole = b"".join(row[:length].tobytes() for row, length in zip(body, lengths, strict=True))
    return Data(key, topic.name, len(rows), whole, lengths, quiet)


def batch_of(data: Data, topic: Topic, sender: int, receiver: int) -> Batch:
    """Return the checked messages of an envelope.

    Raises:
        ProtocolError: they are not what the topic declares.
    """
    if data.topic != topic.name:
        raise ProtocolError(f"topic {topic.name!r}: an envelope has another topic")
    if not data.count:
        if data.body or data.lengths:
            raise ProtocolError(f"topic {topic.name!r}: bytes arrived that belong to no message")
        return topic.no_messages
    bodies = _bodies(data, topic)  # first: the count is not more than they have
    batch = Batch(_all(data.count, sender), _all(data.count, receiver), *bodies)
    check_form(topic, batch, arriving=True)
    if batch.lengths is not None:
        check_no_padding(topic, batch)
    return batch


def _all(count: int, participant: int) -> Ints:
    return np.full(count, participant, np.int64)


def _bodies(data: Data, topic: Topic) -> tuple[np.ndarray, Doubles | None, Ints | None]:
    """Return [messages, …] bodies, no ε (it is the sender's account), and lengths."""
    if topic.shape is not None:
        right = data.count > 0 and len(data.body) == data.count * topic.size
        if data.lengths is not None or not right:
            raise ProtocolError(f"topic {topic.name!r}: an envelope is too long or too short")
        bodies = np.frombuffer(data.body, topic.element).reshape(data.count, *topic.shape)
        return bodies.copy(), None, None
    lengths = data.lengths or []
    if len(lengths) != data.count or min(lengths) < 0 or sum(lengths) != len(data.body):
        raise ProtocolError(f"topic {topic.name!r}: `lengths` are not those of its messages")
    widest = max(lengths)
    if widest * data.count > LARGEST:
        raise ProtocolError(f"topic {topic.name!r}: an envelope is too long")
    bodies = np.zeros((data.count, widest), np.uint8)
    start = 0
    for row, length in zip(bodies, lengths, strict=True):
        row[:length] = np.frombuffer(data.body, np.uint8, length, start)
        start += length
    return bodies, None, np.array(lengths, np.int64)
