"""Turns, repeats, refusals, and the end of a session of scores."""

import copy
import os
import pickle

import numpy as np
import pytest

from lumos.errors import (
    BadValue,
    CheckFailed,
    OutOfOrder,
    SessionClosed,
    UsageError,
    WrongLength,
)
from lumos.twoparty.score import LevelSpec, ScoreReceiver, ScoreSender, Shifted
from lumos.twoparty.session import crc8

SPEC = LevelSpec(width=3, bits=4, ring_bits=8, thresholds=(-10, 10))
S, V = (7, -5, 3), (6, 1, 0)


def opened(spec=SPEC, s=S, v=V):
    """A session up to R's points."""
    sender, receiver = ScoreSender(3, 8), ScoreReceiver(8, 3)
    sender.begin([(spec, s)])
    receiver.begin([(spec, v)])
    opening = sender.step()
    return sender, receiver, opening, receiver.step(opening)


def closed(party):
    for call in (party.step, lambda: party.step(b""), lambda: party.begin([(SPEC, V)])):
        with pytest.raises(SessionClosed):
            call()
    assert not party.finished
    assert party._keys is None
    assert party._tasks == []


def refused(party, error, incoming, **more):
    with pytest.raises(error):
        party.step(incoming, **more)
    closed(party)


def test_messages_out_of_order():
    sender, receiver, opening, points = opened()
    refused(receiver, WrongLength, opening)
    products = sender.step(points)
    refused(sender, WrongLength, products)
    sender, *_ = opened()
    with pytest.raises(OutOfOrder):
        sender.begin([(SPEC, S)])
    closed(sender)


@pytest.mark.parametrize(
    "value",
    [
        (8, 0, 0),
        (-8, -8, 0),
        (1, 2),
        (1.5, 0, 0),
        None,
        "123",
        [[1, 2, 3]],
        np.array([7, 7, 7, 7]),
    ],
    ids=str,
)
def test_vectors_that_do_not_fit_are_refused_without_being_named(value):
    spec = LevelSpec(width=3, bits=4, ring_bits=7, thresholds=(0,))
    for party in (ScoreSender(3, 9), ScoreReceiver(9, 3)):
        with pytest.raises(BadValue) as caught:
            party.begin([(spec, (1, 2, 3)), (spec, value)])
        assert "8" not in str(caught.value)
        assert "1.5" not in str(caught.value)
        with pytest.raises(SessionClosed):
            party.step()


@pytest.mark.parametrize("shift", [-1, 3, 1.0, True, "1"])
def test_shifts_that_are_no_level(shift):
    for party in (ScoreSender(3, 8), ScoreReceiver(8, 3)):
        with pytest.raises(BadValue, match="not one of the 3 levels"):
            party.begin([(SPEC, Shifted(S, shift))])
        closed(party)


@pytest.mark.parametrize("by_sender", range(3))
@pytest.mark.parametrize("by_receiver", range(3))
def test_each_end_shifts_what_the_other_learns(by_sender, by_receiver):
    """The product is 37: level 2."""
    sender, receiver, _, points = opened(s=Shifted(S, by_sender), v=Shifted(V, by_receiver))
    sender.step(receiver.step(sender.step(receiver.step(sender.step(points)))))
    assert receiver.results == [(2 + by_sender) % 3]
    assert sender.results == [(2 + by_receiver) % 3]


@pytest.mark.parametrize(
    "other",
    [
        LevelSpec(width=3, bits=4, ring_bits=8, thresholds=(-10, 11)),
        LevelSpec(width=3, bits=4, ring_bits=8, thresholds=(-10, 10, 20)),
        LevelSpec(width=3, bits=4, ring_bits=9, thresholds=(-10, 10)),
        LevelSpec(width=2, bits=4, ring_bits=8, thresholds=(-10, 10)),
        LevelSpec(width=3, bits=3, ring_bits=8, thresholds=(-10, 10)),
    ],
    ids=str,
)
def test_parties_that_disagree_about_the_spec_stop(other):
    # At a length, or at the check: one byte of it misses one time in 256.
    stopped = 0
    for _ in range(4):
        sender, receiver = ScoreSender(3, 8), ScoreReceiver(8, 3)
        sender.begin([(SPEC, S)])
        receiver.begin([(other, [1] * other.width)])
        try:
            receiver.step(sender.step(receiver.step(sender.step())))
        except (CheckFailed, WrongLength):
            stopped += 1
    assert stopped >= 3


def test_a_level_above_the_highest_is_the_highest():
    # Three levels in two bits. An error would show a lying S whether R read a fourth.
    sender, receiver, _, points = opened()
    levels = sender.step(receiver.step(sender.step(points)))
    score = receiver._tasks[0]
    share, stride = score.share, SPEC.level_lookup.stride
    body = bytearray(levels[:-1])
    for output in (0, 1):
        own = sender_bit(score, bytes(body), output)
        body[output * stride + (share >> 3)] ^= (1 ^ own) << (share & 7)
    forged = bytes(body) + bytes([crc8(receiver._check, bytes(body))])
    assert len(receiver.step(forged)) == 1
    assert receiver.results == [2]


def sender_bit(score, table, output):
    from lumos.twoparty.lookup import unmask

    return unmask(SPEC.level_lookup, table, score.kept[0], score.share) >> output & 1


def test_sessions_are_never_written_down():
    sender, receiver, _, points = opened()
    receiver.step(sender.step(points))
    for secret in (sender, receiver, sender._keys, receiver._keys, *sender._tasks):
        for write in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="never written down"):
                write(secret)
        assert "b'" not in repr(secret)
        assert "-5" not in repr(secret)
    assert repr(sender) == "ScoreSender(me=3, peer=8, open)"
    assert "-5" not in repr(Shifted(S, 1))


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


def test_an_empty_batch_is_refused():
    with pytest.raises(UsageError, match="at least one"):
        ScoreSender(3, 8).begin([])


def test_all_randomness_is_the_operating_systems(monkeypatch):
    asked = []

    def counting(count):
        asked.append(count)
        return os.urandom(count)

    monkeypatch.setattr("lumos.crypto.entropy.secrets.token_bytes", counting)
    sender, receiver, _, points = opened()
    sender.step(receiver.step(sender.step(points)))
    # Nonce and key of S, R's nonce, a scalar per coordinate, S's masks, a scalar per digit.
    assert asked == [16, 64, 16, *[64] * 3, 2 * 3, *[64] * 2]
