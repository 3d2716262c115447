"""The session of a pair: right products, known answers, typed errors, nothing written down."""

import copy
import hashlib
import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tests.session_doubles import Stream, Toy
from tests.twoparty.products.conversation import LONG, SHORT, Pair, product, random_inputs

from lumos.crypto import entropy
from lumos.crypto.groups import BadPoint
from lumos.errors import (
    CheckFailed,
    InputError,
    OutOfOrder,
    ProtocolError,
    Replay,
    SessionClosed,
    UsageError,
    WrongLength,
)
from lumos.secagg import FixedPoint
from lumos.twoparty.products import PairSession, columns_message, correction_message

SHAPES = [(1, 1), (7, 3), (8, 1), (9, 24), (64, 2), (129, 5), (300, 24), (5, 40)]
FIXED = pytest.mark.parametrize("fixed", [SHORT, LONG], ids=["32 bits", "64 bits"])


@FIXED
@pytest.mark.parametrize(("words", "width"), SHAPES)
def test_shares_add_up_to_the_product(words: int, width: int, fixed: FixedPoint) -> None:
    chosen, _ = random_inputs(words, width)
    pair = Pair(chosen, fixed, group=Toy())
    for step in range(3):
        _, numbers = random_inputs(words, width, seed=step)
        one, two = pair.multiply(numbers, step)
        assert np.array_equal(one + two, product(chosen, numbers, fixed))


@pytest.mark.parametrize("bits", [(0, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("value", [-127, 0, 127])
def test_extreme_inputs_on_the_real_curve(bits: tuple[int, int], value: int) -> None:
    chosen = (np.full(20, bits[0], np.bool_), np.full(20, bits[1], np.bool_))
    numbers = (np.full(4, value, np.int8), np.full(4, -value, np.int8))
    one, two = Pair(chosen).multiply(numbers)
    assert np.array_equal(one + two, product(chosen, numbers, LONG))


@FIXED
def test_messages_have_the_lengths_of_the_public_list(fixed: FixedPoint) -> None:
    chosen, numbers = random_inputs(77, 5)
    pair = Pair(chosen, fixed, group=Toy())
    pair.multiply(numbers)
    lengths = {name: {len(message) for message in sent} for name, sent in pair.sent.items()}
    assert lengths == {
        "opening": {80},
        "points": {4096 + 16},
        "columns": {columns_message(77)},
        "correction 0 0": {correction_message(77, 5, fixed.word)},
    }
    assert columns_message(77) == 128 * (10 + 16) + 16 + 32 + 16
    assert correction_message(77, 5, 8) == 77 * 5 * 8 + 16


KNOWN = {
    "opening": "5efe419e55d071f6a1031a15375da281",
    "points": "f8371748cdb08544434b744841492ff7",
    "columns": "e3ec94b1e39bbf836daf7dab3cd71926",
    "correction 3 1": "efc4bb415fb6af6977f9265455efb8b9",
    "shares": "3f8247918c23e05ee85f3e13be185e56",
}
"""SHA-256, cut to 16 bytes, of both ends' messages with the entropy below: the wire format."""


def test_known_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropy, "draw", Stream("lumos known products"))
    chosen, numbers = random_inputs(21, 3)
    pair = Pair(chosen, SHORT)
    shares = pair.multiply(numbers, 3, 1)
    said = {**pair.sent, "shares": [share.tobytes() for share in shares]}
    digests = {name: hashlib.sha256(b"".join(sent)).hexdigest()[:32] for name, sent in said.items()}
    assert digests == KNOWN


def test_a_product_from_its_description(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything again from the description, in plain integers, sharing no code with it."""
    monkeypatch.setattr(entropy, "draw", Stream("described"))
    chosen, numbers = random_inputs(11, 2)
    toy = Toy()
    pair = Pair(chosen, LONG, group=toy)
    shares = pair.multiply(numbers, 2, 0)
    draw, p, g = Stream("described"), Toy.order, Toy.generator

    def scalar() -> int:
        return int.from_bytes(draw(40), "little") % p

    def encode(value: int) -> bytes:
        return (value % p).to_bytes(32, "little")

    state: list[Any] = []
    for _ in range(2):  # device 3, then 8: nonce, X25519 scalar, a, s
        nonce, _, a, s = draw(16), draw(32), scalar(), int.from_bytes(draw(16), "little")
        state.append((nonce, a, s))
    openings = pair.sent["opening"]
    for (nonce, a, _), opening in zip(state, openings, strict=True):
        assert opening[:48] == nonce + encode(a * g)
    named = b"3 8 11 8 32 " + openings[0] + openings[1]
    sid = hashlib.blake2b(named, digest_size=32, person=b"lumos.pair.sid").digest()

    def seed(direction: bytes, A: bytes, number: int, B: bytes, value: int, W: int) -> bytes:
        said = direction + A + number.to_bytes(8, "little") + b"lumos.products" + B
        said += bytes([value]) + encode(W)
        return hashlib.blake2b(said, digest_size=32, person=b"lumos.pad.1").digest()

    def stream(key: bytes, size: int = 18) -> int:
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

        zeros = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(size))
        return int.from_bytes(zeros, "little")

    for _ in range(2 * 128):  # the scalars of the base transfers
        scalar()
    random_choices = [int.from_bytes(draw(16), "little") for _ in range(2)]
    total = np.zeros((11, 2), object)
    for end, multiplier in enumerate((3, 8)):
        direction = sid + multiplier.to_bytes(8, "little")
        _, _, s = state[end]
        _, a, _ = state[1 - end]
        A = encode(a * g)
        b = sum(int(bit) << place for place, bit in enumerate(chosen[1 - end]))
        b |= random_choices[1 - end] << 16
        t, q = [], []
        for number in range(128):
            B = pair.sent["points"][end][32 * number : 32 * number + 32]
            W = a * int.from_bytes(B, "little")
            zero, one = (
                stream(seed(direction, A, number, B, v, W - v * a * a * g)) for v in (0, 1)
            )
            column = pair.sent["columns"][1 - end][18 * number : 18 * number + 18]
            u = int.from_bytes(column, "little")
            assert u == zero ^ one ^ b
            bit = s >> number & 1
            t.append(zero)
            q.append((one if bit else zero) ^ (u if bit else 0))
        sent = pair.sent["columns"][1 - end]
        u_all, proof = sent[: 128 * 18], sent[128 * 18 : -16]
        hashed = hashlib.blake2b(u_all, digest_size=32, key=direction, person=b"lumos.ot.matrix")
        matrix = stream(hashed.digest(), 128 * 2)

        def h(column: int, matrix: int = matrix) -> int:
            words, rest = column & 0xFFFF, column >> 16
            parities = ((matrix >> 16 * k & 0xFFFF & words).bit_count() & 1 for k in range(128))
            return sum(bit << k for k, bit in enumerate(parities)) ^ rest

        x = h(b).to_bytes(16, "little")
        hashes = b"".join(h(column).to_bytes(16, "little") for column in t)
        digest = hashlib.blake2b(
            x + hashes, digest_size=32, key=direction, person=b"lumos.ot.check"
        )
        assert proof == x + digest.digest()
        received = np.frombuffer(pair.sent["correction 2 0"][end][:-16], "<u8").reshape(11, 2)
        for f in range(11):
            rows = [
                sum((column >> f & 1) << place for place, column in enumerate(columns))
                for columns in (t, q)
            ]
            rows.append(rows[1] ^ s)
            label = direction + (2).to_bytes(8, "little") + bytes(8) + bytes(4)
            kept, zero_pad, one_pad = (
                np.frombuffer(
                    hashlib.blake2b(
                        label + f.to_bytes(4, "little") + row.to_bytes(16, "little"),
                        digest_size=16,
                        person=b"lumos.product.1",
                    ).digest(),
                    "<u8",
                )
                for row in rows
            )
            z = (numbers[end].astype(np.int64) << 25).astype("<u8")
            assert np.array_equal(received[f], zero_pad - one_pad + z)
            bit = int(chosen[1 - end][f])
            assert np.array_equal(kept, one_pad if bit else zero_pad)
            total[f] += (kept + bit * received[f] - zero_pad).astype(object)
    both = (shares[0] + shares[1]).astype(object)
    assert np.array_equal(total % 2**64, both)


CHILD = """
import sys
import numpy as np
from lumos.secagg import FixedPoint
from lumos.twoparty.products import PairSession

def send(message):
    sys.stdout.buffer.write(len(message).to_bytes(4, "big") + message)
    sys.stdout.buffer.flush()

def receive():
    return sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(4), "big"))

end = PairSession(8, 3, np.arange(30) % 3 == 0, FixedPoint(1024.0, 32, 8, False))
send(end.opening())
send(end.points(receive()))
send(end.columns(receive()))
end.extend(receive())
for step in range(2):
    send(end.correction(np.array([step, -127], np.int8), step, 0))
    send(end.share(receive(), step, 0).tobytes())
"""


def test_a_session_between_two_processes() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None

    def swap(message: bytes) -> bytes:
        assert child.stdin is not None
        child.stdin.write(len(message).to_bytes(4, "big") + message)
        child.stdin.flush()
        return receive()

    def receive() -> bytes:
        assert child.stdout is not None
        return child.stdout.read(int.from_bytes(child.stdout.read(4), "big"))

    chosen = (np.arange(30) % 2 == 0, np.arange(30) % 3 == 0)
    end = PairSession(3, 8, chosen[0], LONG)
    theirs = receive()
    sent = end.opening()
    points = end.points(theirs)
    theirs = swap(sent)
    columns = end.columns(theirs)
    theirs = swap(points)
    end.extend(theirs)
    reply = swap(columns)  # the first correction
    for step in range(2):
        numbers = (np.array([7, step], np.int8), np.array([step, -127], np.int8))
        correction = end.correction(numbers[0], step, 0)
        own = end.share(reply, step, 0)
        other = np.frombuffer(swap(correction), "<u8").reshape(own.shape)
        assert np.array_equal(own + other, product(chosen, numbers, LONG))
        if step == 0:
            reply = receive()
    child.stdin.close()
    child.stdout.close()
    assert child.wait(timeout=120) == 0


def fresh(**options: Any) -> Pair:
    return Pair(random_inputs(9, 2)[0], group=Toy(), **options)


@pytest.mark.parametrize("index", [(1, 1), (1, 0), (0, 7)])
def test_an_index_is_used_once(index: tuple[int, int]) -> None:
    pair, (_, numbers) = fresh(), random_inputs(9, 2)
    pair.multiply(numbers, 1, 1)
    with pytest.raises(Replay):
        pair.ends[0].correction(numbers[0], *index)
    with pytest.raises(SessionClosed):
        pair.ends[0].correction(numbers[0], 5, 0)


def test_a_correction_is_taken_once_and_for_its_index() -> None:
    pair, (_, numbers) = fresh(), random_inputs(9, 2)
    pair.multiply(numbers, 0, 0)
    [_, message] = pair.sent["correction 0 0"]
    with pytest.raises(Replay):
        pair.ends[0].share(message, 0, 0)
    pair = fresh()
    pair.ends[0].correction(numbers[0], 0, 1)
    late = pair.ends[1].correction(numbers[1], 0, 2)
    with pytest.raises(CheckFailed):
        pair.ends[0].share(late, 0, 1)


def test_a_device_cannot_be_answered_with_its_own_message() -> None:
    pair, (_, numbers) = fresh(), random_inputs(9, 2)
    own = pair.ends[0].correction(numbers[0], 0, 0)
    with pytest.raises(CheckFailed):
        pair.ends[0].share(own, 0, 0)
    pair = fresh()
    word = pair.ends[0].word(b"ready", 0, 0, mine=True)
    pair.ends[1].check_word(word, b"ready", 0, 0)
    for purpose, index in ((b"present", (0, 0)), (b"ready", (0, 1)), (b"ready", (1, 0))):
        with pytest.raises(CheckFailed):
            fresh().ends[1].check_word(word, purpose, *index)
    with pytest.raises(CheckFailed):
        pair.ends[0].check_word(word, b"ready", 0, 0)


def test_messages_come_in_order_and_in_length() -> None:
    chosen, numbers = random_inputs(9, 2)
    end = PairSession(3, 8, chosen[0], LONG, group=Toy())
    with pytest.raises(OutOfOrder):
        end.correction(numbers[0], 0, 0)
    with pytest.raises(SessionClosed):
        end.opening()
    end = PairSession(3, 8, chosen[0], LONG, group=Toy())
    end.opening()
    with pytest.raises(WrongLength):
        end.points(bytes(79))
    for name in ("points", "columns", "correction 0 0"):

        def shorter(place: str, _: int, message: bytes, name: str = name) -> bytes:
            return message[:-1] if place == name else message

        with pytest.raises(WrongLength):
            fresh(tamper=shorter).multiply(numbers)


def test_points_and_keys_outside_their_groups_are_refused() -> None:
    def zero_key(place: str, _: int, message: bytes) -> bytes:
        return message[:48] + bytes(32) if place == "opening" else message

    def no_point(place: str, _: int, message: bytes) -> bytes:
        return message[:16] + bytes(32) + message[48:] if place == "opening" else message

    for tamper in (zero_key, no_point):
        with pytest.raises(BadPoint):
            Pair(random_inputs(9, 2)[0], tamper=tamper)


def test_every_flipped_bit_ends_the_session() -> None:
    """A sample of the bits of each message."""
    chosen, numbers = random_inputs(9, 2)
    randomness = np.random.default_rng(0)
    lengths = {"opening": 80, "points": 4112, "columns": 2368, "correction 0 0": 160}
    for name, length in lengths.items():
        every = np.arange(8 * length)
        bits = every[::7] if name == "opening" else randomness.choice(every, 40, replace=False)
        for bit in bits.tolist():

            def flip(place: str, end: int, message: bytes, name=name, bit=bit) -> bytes:
                if place != name or end:
                    return message
                changed = bytearray(message)
                changed[bit >> 3] ^= 1 << (bit & 7)
                return bytes(changed)

            with pytest.raises(ProtocolError):
                Pair(chosen, group=Toy(), tamper=flip).multiply(numbers)


def test_ends_that_disagree_about_public_settings_find_out() -> None:
    one = PairSession(3, 8, np.ones(9, np.bool_), LONG, group=Toy())
    two = PairSession(8, 3, np.ones(10, np.bool_), LONG, group=Toy())
    openings = [one.opening(), two.opening()]
    points = one.points(openings[1])
    two.points(openings[0])
    with pytest.raises(CheckFailed):
        two.columns(points)


def test_wrong_use_is_refused() -> None:
    with pytest.raises(UsageError, match="itself"):
        PairSession(3, 3, np.ones(4, np.bool_), LONG)
    with pytest.raises(UsageError, match="fraction_bits"):
        PairSession(3, 8, np.ones(4, np.bool_), FixedPoint(1.0, 6, 4, False))
    with pytest.raises(UsageError, match=r"\[words\]"):
        PairSession(3, 8, np.ones((4, 1), np.bool_), LONG)
    with pytest.raises(InputError, match="127"):
        fresh().ends[0].correction(np.array([-128], np.int8), 0, 0)
    with pytest.raises(UsageError, match="int8"):
        fresh().ends[0].correction(np.array([1]), 0, 0)


def test_a_session_is_never_written_down_and_does_not_survive_a_fork() -> None:
    pair, (_, numbers) = fresh(), random_inputs(9, 2)
    end = pair.ends[0]
    assert repr(end) == "<PairSession>"
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="never written down"):
            leak(end)
    end._process = os.getpid() + 1
    with pytest.raises(SessionClosed):
        end.correction(numbers[0], 0, 0)
    assert end._multiplier is None
    assert end._key == b""
