"""Turns, numbers, repeats, and the end of a session."""

import copy
import os
import pickle

import numpy as np
import pytest

from lumos.crypto.groups import BadPoint
from lumos.errors import (
    BadValue,
    CheckFailed,
    OutOfOrder,
    ProtocolError,
    SessionClosed,
    UsageError,
    WrongLength,
)
from lumos.twoparty.comparison import Kind, Receiver, Sender, Spec
from lumos.twoparty.session import Party, crc8

SPEC = Spec(8)
SECRET = 201


def opened(spec=SPEC, x=SECRET, y=90):
    """A session up to message 2."""
    sender, receiver = Sender(3, 8), Receiver(8, 3)
    sender.begin([(spec, x)])
    receiver.begin([(spec, y)])
    opening = sender.step()
    return sender, receiver, opening, receiver.step(opening)


def refused(party, error, incoming, **more):
    """The message is refused with this error, the session is closed and stays closed."""
    with pytest.raises(error) as caught:
        party.step(incoming, **more)
    assert isinstance(caught.value, ProtocolError)
    assert str(SECRET) not in str(caught.value)
    closed(party)


def closed(party):
    for call in (party.step, lambda: party.step(b""), lambda: party.begin([(SPEC, 0)])):
        with pytest.raises(SessionClosed):
            call()
    with pytest.raises(SessionClosed):
        _ = party.results
    assert not party.finished
    assert "closed" in repr(party)
    assert party._keys is None
    assert party._tasks == []


def test_another_message_2_closes():
    sender, _, _, points = opened()
    sender.step(points)
    _, _, _, others = opened()
    refused(sender, WrongLength, others)


def test_a_table_of_an_earlier_batch_is_found():
    found = 0
    for _ in range(20):
        sender, receiver, _, points = opened()
        tables = sender.step(points)
        sender.step(receiver.step(tables))
        sender.begin([(SPEC, 1)])
        receiver.begin([(SPEC, 2)])
        sender.step(receiver.step())
        try:
            receiver.step(tables)
        except CheckFailed:
            found += 1
    # One byte of check: 255 of 256 are found; three misses in 20 have probability 0.0001.
    assert found >= 18


def test_messages_out_of_order():
    sender, receiver, opening, points = opened()
    refused(receiver, WrongLength, opening)
    tables = sender.step(points)
    refused(sender, WrongLength, tables)
    fresh = Sender(3, 8)
    refused(fresh, OutOfOrder, points)
    fresh = Sender(3, 8)
    fresh.begin([(SPEC, 1)])
    refused(fresh, OutOfOrder, points)
    waiting = Receiver(8, 3)
    waiting.begin([(SPEC, 1)])
    with pytest.raises(OutOfOrder):
        waiting.step()
    closed(waiting)


@pytest.mark.parametrize("change", [lambda m: m[:-1], lambda m: m + b"\0", lambda m: b""])
@pytest.mark.parametrize("spec", [SPEC, Spec(16)], ids=["direct", "tree"])
def test_wrong_lengths_at_every_turn(change, spec):
    turns = 4 if spec == SPEC else 6
    for broken in range(turns):
        sender, receiver = Sender(3, 8), Receiver(8, 3)
        sender.begin([(spec, SECRET)])
        receiver.begin([(spec, 90)])
        speaker: Party
        listener: Party
        message, speaker, listener = sender.step(), sender, receiver
        for _ in range(broken):
            message = listener.step(message)
            speaker, listener = listener, speaker
        refused(listener, WrongLength, change(message))


BAD = {
    "identity": (1).to_bytes(32, "little"),
    "small order": bytes(32),
    "off curve": (2).to_bytes(32, "little"),
    "not canonical": (2**255 - 18).to_bytes(32, "little"),
    "all ones": b"\xff" * 32,
}


def mixed(point):
    from nacl.bindings import crypto_core_ed25519_add

    return crypto_core_ed25519_add(point, bytes(32))


@pytest.mark.parametrize("name", [*BAD, "mixed order"])
def test_bad_points_from_either_side(name):
    receiver = Receiver(8, 3)
    receiver.begin([(SPEC, SECRET)])
    sender, _, opening, points = opened()
    bad = BAD.get(name) or mixed(opening[16:])
    refused(receiver, BadPoint, opening[:16] + bad)
    for place in (16, 48):
        sender, _, _, points = opened()
        bad = BAD.get(name) or mixed(points[place : place + 32])
        refused(sender, BadPoint, points[:place] + bad + points[place + 32 :])


@pytest.mark.parametrize("value", [256, -1, 1 << 40, 3.0, "7", None])
def test_values_that_do_not_fit_are_refused_without_being_named(value):
    for party in (Sender(3, 8), Receiver(8, 3)):
        with pytest.raises(BadValue) as caught:
            party.begin([(SPEC, 1), (SPEC, value)])
        assert str(value) not in str(caught.value)
        closed(party)


def test_integers_of_numpy_are_integers(talk):
    assert talk().run([(SPEC, np.int64(4), np.uint8(9))]) == ([1], [1])


@pytest.mark.parametrize("message", [5, "text", bytearray(80), memoryview(b"x" * 80)])
def test_messages_are_bytes(message):
    sender, *_ = opened()
    refused(sender, BadValue, message)


@pytest.mark.parametrize(
    "other",
    [
        Spec(7),
        Spec(9),
        Spec(12),
        Spec(16),
        Spec(8, Kind.THREE_WAY),
    ],
    ids=str,
)
def test_parties_that_disagree_about_the_spec_stop(other):
    sender, receiver = Sender(3, 8), Receiver(8, 3)
    sender.begin([(SPEC, SECRET)])
    receiver.begin([(other, 0)])
    stopped = None
    speaker: Party
    listener: Party
    message, speaker, listener = sender.step(), sender, receiver
    while message is not None and stopped is None:
        try:
            message = listener.step(message)
        except ProtocolError:
            stopped = listener
        speaker, listener = listener, speaker
    assert stopped is not None
    closed(stopped)


def test_parties_that_disagree_about_who_they_are_stop():
    stopped = 0
    for peer in range(40, 80):
        sender, receiver = Sender(3, 8), Receiver(8, peer)
        sender.begin([(SPEC, SECRET)])
        receiver.begin([(SPEC, 0)])
        try:
            receiver.step(sender.step(receiver.step(sender.step())))
        except CheckFailed:
            stopped += 1
    assert stopped >= 38


def test_a_peer_that_disappears():
    sender, receiver, _, points = opened()
    with pytest.raises(OutOfOrder):
        _ = sender.results
    sender.step(points)
    assert not sender.finished
    sender.close()
    closed(sender)
    receiver.close()
    closed(receiver)


def test_a_batch_cannot_begin_before_the_last_has_ended():
    sender, *_ = opened()
    with pytest.raises(OutOfOrder):
        sender.begin([(SPEC, 1)])
    closed(sender)


def test_an_empty_batch_is_refused():
    with pytest.raises(UsageError, match="at least one"):
        Sender(3, 8).begin([])


def test_ids_are_64_bit_integers():
    with pytest.raises(UsageError, match="64 bits"):
        Sender(1 << 63, 8)


@pytest.mark.parametrize("spec", [SPEC, Spec(16)], ids=["direct", "tree"])
def test_sessions_are_never_written_down(spec):
    sender, receiver, _, points = opened(spec)
    tables = sender.step(points)
    receiver.step(tables)
    objects = [sender, receiver, sender._keys, receiver._keys, *sender._tasks]
    objects += [c.tree for c in sender._tasks if c.tree]
    for secret in objects:
        for write in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="never written down"):
                write(secret)
        # Nothing but public ids and states is printed.
        assert str(SECRET) not in repr(secret).replace(hex(id(secret)), "")
        assert "b'" not in repr(secret)
    assert repr(sender) == "Sender(me=3, peer=8, open)"


def test_a_fork_does_not_take_the_session_along():
    sender, _, _, points = opened()
    child = os.fork()
    if child == 0:
        try:
            sender.step(points)
        except SessionClosed:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert sender.step(points) is not None


def test_two_sessions_of_a_pair_share_nothing():
    openings = {Sender(3, 8)._nonce for _ in range(10)} | {
        Sender(3, 8)._live().A for _ in range(10)
    }
    assert len(openings) == 20


def forged(listener, message, place, bit):
    """The message with one bit changed and a check that fits again."""
    body = bytearray(message[:-1])
    body[place] ^= 1 << bit
    return bytes(body) + bytes([crc8(listener._check, bytes(body))])


def test_padding_of_small_tables_must_be_zero():
    for bits, unused in ((1, range(2, 8)), (2, range(4, 8))):
        for bit in unused:
            sender, receiver, _, points = opened(Spec(bits), 1, 0)
            refused(receiver, BadValue, forged(receiver, sender.step(points), 0, bit))


def test_padding_of_openings_must_be_zero():
    # 16 bits: R opens levels 1 and 2 with 7 bits; the eighth is padding.
    sender, receiver, _, points = opened(Spec(16))
    openings = receiver.step(sender.step(points))
    refused(sender, BadValue, forged(sender, openings, 0, 7))


def test_an_outcome_that_is_both_less_and_equal_is_equal():
    """No fourth outcome: an error would show a lying S whether R read such an entry."""
    sender, receiver, _, points = opened(Spec(4, Kind.THREE_WAY), 2, 9)
    # Entry 9 of the second table: eq of a pair that is less.
    message = forged(receiver, sender.step(points), 2 + 1, 1)
    assert len(receiver.step(message)) == 1
    assert receiver.results == [0]


def test_all_randomness_is_the_operating_systems(monkeypatch):
    asked = []

    def counting(count):
        asked.append(count)
        return os.urandom(count)

    monkeypatch.setattr("lumos.crypto.entropy.secrets.token_bytes", counting)
    sender, _, _, points = opened(Spec(16))
    sender.step(points)
    # Two nonces and the key; per point a scalar; per triple R's index; S's masks and factors.
    assert asked[:3] == [16, 64, 16]
    assert asked.count(64) == 1 + 7
    assert sum(asked) == 2 * 16 + 8 * 64 + 3 + (4 + 2 * 3)
