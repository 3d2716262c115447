"""Arbitrary bytes into both parsers: a typed error and a closed session, or nothing."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lumos.crypto.groups import GROUPS
from lumos.errors import ProtocolError, SessionClosed
from lumos.twoparty.comparison import Kind, Receiver, Sender, Spec, messages
from lumos.twoparty.session import Party

BOUNDED = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

specs = st.builds(
    Spec,
    st.sampled_from([1, 2, 3, 4, 5, 8, 12, 13, 17, 32]),
    st.sampled_from(list(Kind)),
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


@pytest.mark.parametrize("name", GROUPS.names())
@given(st.data(), st.lists(specs, min_size=1, max_size=3))
@BOUNDED
def test_damage_at_any_turn(name, data, batch):
    turn = data.draw(st.integers(0, len(messages(batch, first=True)) - 1))
    group = GROUPS[name]
    sender, receiver = Sender(1, 2, group=group), Receiver(2, 1, group=group)
    sender.begin([(spec, 0) for spec in batch])
    receiver.begin([(spec, (1 << spec.bits) - 1) for spec in batch])
    speaker: Party
    listener: Party
    message, speaker, listener = sender.step(), sender, receiver
    for _ in range(turn):
        message = listener.step(message)
        speaker, listener = listener, speaker
    broken = data.draw(damage(message))
    try:
        # Damage to a point can pass one parser (it is a point, too); the next one stops it.
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
    max_size=10,
)


@given(calls)
@BOUNDED
def test_any_order_of_calls(script):
    # Whatever is called when, an index is answered with one table only.
    spec = Spec(2)
    sender, receiver = Sender(1, 2), Receiver(2, 1)
    sender.begin([(spec, 1)])
    receiver.begin([(spec, 2)])
    sent = [b""]
    tables = set()
    for to_sender, incoming in script:
        party = sender if to_sender else receiver
        if incoming in ("last", "older"):
            incoming = sent[-1] if incoming == "last" else sent[0]
        try:
            answer = party.step(incoming)
        except ProtocolError:
            continue
        if answer is not None:
            sent.append(answer)
        if answer is not None and to_sender and len(answer) == 2:
            tables.add(answer)
    assert len(tables) <= 1
