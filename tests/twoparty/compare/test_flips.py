"""One flipped bit anywhere, and no result: the session stops, whatever the message."""

import random
from functools import partial

import pytest

from lumos.errors import ProtocolError
from lumos.twoparty.comparison import Kind, Spec, messages
from lumos.twoparty.session import Message


def flipper(position, bit):
    def flip(place, message):
        if place != position:
            return message
        flipped = bytearray(message)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        return bytes(flipped)

    return flip


def every_bit(spec, point=32):
    listed: tuple[Message, ...] = messages([spec], first=True, point=point)
    return [
        (place, bit) for place, message in enumerate(listed) for bit in range(8 * message.length)
    ]


def stops(talk, spec, position, bit, x, y):
    session = talk()
    try:
        session.run([(spec, x, y)], flipper(position, bit))
    except ProtocolError:
        return True
    return False


@pytest.mark.parametrize(
    "spec",
    [Spec(1), Spec(4), Spec(4, Kind.THREE_WAY), Spec(8)],
    ids=str,
)
def test_every_bit_of_every_message_of_the_direct_form(spec, talk):
    top = (1 << spec.bits) - 1
    survived = [
        (place, bit)
        for place, bit in every_bit(spec)
        if not stops(talk, spec, place, bit, top // 3, top // 2)
    ]
    assert survived == []


def test_every_bit_in_the_other_group(talk):
    spec = Spec(4)
    everywhere = every_bit(spec, point=33)
    other = partial(talk, "secp256k1")
    assert all(stops(other, spec, place, bit, 5, 7) for place, bit in everywhere)


@pytest.mark.parametrize("bits", [12, 16, 32])
def test_bits_of_long_messages(bits, talk):
    spec = Spec(bits)
    randomness = random.Random(bits)
    everywhere = every_bit(spec)
    # All bits of the short messages, and a sample of the long ones.
    short = [place for place in everywhere if place[0] > 2]
    chosen = randomness.sample(everywhere, 40) + randomness.sample(short, min(16, len(short)))
    assert all(stops(talk, spec, place, bit, 1234, 4000) for place, bit in chosen)
