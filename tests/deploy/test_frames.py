"""Packets and envelopes: what goes in comes out, and whatever was changed on the way does not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos.deploy.protocol.frames import (
    PADDING,
    RUN_TAG,
    Acknowledged,
    Alive,
    Asked,
    Closed,
    Data,
    Frame,
    Hello,
    MaskedFlags,
    RoundKey,
    Route,
    RunState,
    Wanted,
    Welcome,
    batch_of,
    data_of,
    decode,
    encode,
)
from lumos.errors import InputError, LumosError, ProtocolError
from lumos.exchange.messages import Batch
from lumos.secagg.topics import DECISION, LEFT_OUT, MASKED

ROUTE = Route(b"thirty-two bytes of a plan's tag", 3, -1)
KEY = RoundKey(4, 0, 1, 9)
EVERY: list[Frame] = [
    Data(KEY, "aggregate/masked", 1, b"abc", [3]),
    Acknowledged([KEY], 4, b"boot"),
    Asked([KEY], [1]),
    Wanted([KEY], [1]),
    Hello(b"boot", 2),
    Welcome(b"boot"),
    Alive(4, 0),
    RunState(4, 1, [5, 7], None),
    RunState(4, 1, [], ""),
    MaskedFlags(KEY, [7, 8], b"0123456789abcdef" * 2),
    Closed(KEY, False),
]


def test_packets_come_back() -> None:
    packet = encode(ROUTE, EVERY)
    assert decode(ROUTE, packet) == EVERY
    assert len(packet) % PADDING == 0


def test_a_short_message_and_none_have_one_size() -> None:
    nothing = encode(ROUTE, [Data(KEY, "aggregate/masked", 0, b"")])
    randomized_label = encode(ROUTE, [Data(KEY, "aggregate/masked", 1, b"s", [1])])
    assert len(nothing) == len(randomized_label) == PADDING


@pytest.mark.parametrize(
    "other",
    [
        ROUTE._replace(run=b"r" * RUN_TAG),
        ROUTE._replace(sender=4),
        ROUTE._replace(receiver=4),
        Route(ROUTE.run, ROUTE.receiver, ROUTE.sender),  # back to its sender
    ],
)
def test_a_packet_of_another_run_or_pair_is_refused(other: Route) -> None:
    with pytest.raises(ProtocolError, match="another run, or of other participants"):
        decode(other, encode(ROUTE, EVERY))


def test_another_version_is_refused_with_a_clear_line() -> None:
    packet = encode(ROUTE, EVERY)
    with pytest.raises(InputError, match="wire version 7, this one 6; run the same version"):
        decode(ROUTE, b"\x07" + packet[1:])


@given(st.binary(max_size=3 * PADDING))
def test_nonsense_is_refused(packet: bytes) -> None:
    with pytest.raises(LumosError):
        decode(ROUTE, packet)


@given(st.integers(0, 2 * PADDING - 1), st.integers(1, 255))
def test_a_changed_byte_never_crashes(place: int, change: int) -> None:
    packet = bytearray(encode(ROUTE, EVERY))
    packet[place % len(packet)] ^= change
    try:
        frames = decode(ROUTE, bytes(packet))
    except LumosError:
        return
    for frame in frames:
        if isinstance(frame, Data):
            try:
                batch_of(frame, MASKED, 3, -1)
            except ProtocolError:
                continue


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_envelopes_carry_the_messages_of_one_pair() -> None:
    body = np.arange(12, dtype=np.uint8).reshape(3, 4)
    batch = Batch(ids(3, 3, 3), ids(-1, 7, -1), body, None, ids(4, 2, 3))
    data = data_of(KEY, MASKED, batch, np.array([0, 2]))
    assert (data.count, data.body, data.lengths) == (2, bytes([0, 1, 2, 3, 8, 9, 10]), [4, 3])
    back = batch_of(data, MASKED, 3, -1)
    assert back.lengths is not None
    assert back.body.tolist() == [[0, 1, 2, 3], [8, 9, 10, 0]]
    named = Batch(ids(-1, -1), ids(5, 5), ids(7, 5))
    back = batch_of(data_of(KEY, LEFT_OUT, named, np.arange(2)), LEFT_OUT, -1, 5)
    assert back.body.tolist() == [7, 5]


@pytest.mark.parametrize(
    ("topic", "data"),
    [
        (MASKED, Data(KEY, "aggregate/wrapped", 1, b"abc", [3])),
        (MASKED, Data(KEY, MASKED.name, 0, b"abc")),
        (MASKED, Data(KEY, MASKED.name, 1, b"abc")),
        (MASKED, Data(KEY, MASKED.name, 1, b"abc", [2])),
        (MASKED, Data(KEY, MASKED.name, 2, b"abc", [4, -1])),
        (MASKED, Data(KEY, MASKED.name, 1 << 40, b"", [])),
        (LEFT_OUT, Data(KEY, LEFT_OUT.name, 1, b"abc")),
        (LEFT_OUT, Data(KEY, LEFT_OUT.name, 1, bytes(8), [8])),
        (DECISION, Data(KEY, DECISION.name, 1, b"\x07")),
        (DECISION, Data(KEY, DECISION.name, -1, b"")),
    ],
)
def test_an_envelope_that_is_not_what_its_topic_declares(topic: object, data: Data) -> None:
    with pytest.raises(ProtocolError):
        batch_of(data, topic, 3, -1)  # type: ignore[arg-type]
