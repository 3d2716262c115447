"""Arbitrary bytes into both parsers: a typed error and a closed session, or nothing."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lumos.errors import ProtocolError, SessionClosed
from lumos.twoparty.score import LevelSpec, ScoreReceiver, ScoreSender, messages

BOUNDED = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

specs = st.builds(
    LevelSpec,
    width=st.integers(1, 4),
    bits=st.integers(1, 4),
    ring_bits=st.sampled_from([3, 4, 5, 8, 10]),
    thresholds=st.sampled_from([(0,), (-1, 2), (-4, 0, 3), (-3, -2, -1, 0, 1, 2, 3)]),
)


@st.composite
def damage(draw, message):
    """The message cut, extended, overwritten in places, or replaced by bytes of its length."""
    how = draw(st.sampled_from(["cut", "extend", "overwrite", "replace", "anything"]))
    if how == "cut":
        return message[: draw(st.integers(0, max(0, len(message) - 1)))]
    if how == "extend":
        return message + draw(st.binary(min_size=1, max_size=64))
    if how == "overwrite":
        broken = bytearray(message)
        for _ in range(draw(st.integers(1, 4))):
            broken[draw(st.integers(0, len(message) - 1))] = draw(st.integers(0, 255))
        return bytes(broken)
    if how == "replace":
        return draw(st.binary(min_size=len(message), max_size=len(message)))
    return draw(st.binary(max_size=200))


@given(st.data(), st.lists(specs, min_size=1, max_size=3))
@BOUNDED
def test_damage_at_any_turn(data, batch):
    turn = data.draw(st.integers(0, len(messages(batch, first=True)) - 1))
    sender, receiver = ScoreSender(1, 2), ScoreReceiver(2, 1)
    sender.begin([(spec, [-1] + [0] * (spec.width - 1)) for spec in batch])
    receiver.begin([(spec, [-1] * min(2, spec.width) + [0] * (spec.width - 2)) for spec in batch])
    speaker: Any = sender
    listener: Any = receiver
    message = sender.step()
    for _ in range(turn):
        message = listener.step(message)
        speaker, listener = listener, speaker
    broken = data.draw(damage(message))
    try:
        while broken is not None:
            broken = listener.step(broken)
            speaker, listener = listener, speaker
    except ProtocolError:
        with pytest.raises(SessionClosed):
            listener.step(b"")
    else:
        # What got through was no damage, or the one in 256 that a byte cannot tell.
        assert sender.finished
        assert receiver.finished


calls = st.lists(
    st.tuples(
        st.booleans(),
        st.one_of(st.none(), st.binary(max_size=60), st.sampled_from(["last", "older"])),
    ),
    max_size=14,
)


@given(calls)
@BOUNDED
def test_any_order_of_calls(script):
    # Whatever is called when, an index is answered with one table only.
    spec = LevelSpec(width=1, bits=1, ring_bits=3, thresholds=(1,))
    sender, receiver = ScoreSender(1, 2), ScoreReceiver(2, 1)
    sender.begin([(spec, [-1])])
    receiver.begin([(spec, [-1])])
    lengths = [message.length for message in messages([spec], first=True)]
    sent = [b""]
    tables: dict[int, set[bytes]] = {lengths[2]: set(), lengths[4]: set()}
    assert len(tables) == 2
    for to_sender, incoming in script:
        party: Any = sender if to_sender else receiver
        if incoming in ("last", "older"):
            incoming = sent[-1] if incoming == "last" else sent[0]
        try:
            answer = party.step(incoming)
        except ProtocolError:
            continue
        if answer is not None:
            sent.append(answer)
        if answer is not None and to_sender and len(answer) in tables:
            tables[len(answer)].add(answer)
    assert all(len(answers) <= 1 for answers in tables.values())
