"""One flipped bit anywhere, and no result: the session stops, whatever the message."""

import random

import numpy as np
import pytest

from lumos.errors import ProtocolError
from lumos.twoparty.score import LevelSpec, messages


def flipper(position, bit):
    def flip(place, message):
        if place != position:
            return message
        flipped = bytearray(message)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        return bytes(flipped)

    return flip


def every_bit(spec):
    return [
        (place, bit)
        for place, message in enumerate(messages([spec], first=True))
        for bit in range(8 * message.length)
    ]


def stops(talk, spec, position, bit):
    s = v = np.ones(spec.width, np.int64) * (-1 if spec.bits == 1 else 1)
    session = talk()
    try:
        session.run([(spec, s, v)], flipper(position, bit))
    except ProtocolError:
        return True
    return False


@pytest.mark.parametrize(
    "spec",
    [
        LevelSpec(width=1, bits=1, ring_bits=2, thresholds=(1,)),
        LevelSpec(width=2, bits=3, ring_bits=5, thresholds=(-1, 3)),
        pytest.param(
            LevelSpec(width=1, bits=4, ring_bits=6, thresholds=(-3, -2, -1, 0, 1, 2, 3)),
            marks=pytest.mark.long,
        ),
    ],
    ids=str,
)
def test_every_bit_of_every_message(spec, talk):
    assert [place for place in every_bit(spec) if not stops(talk, spec, *place)] == []


def test_bits_of_long_messages(talk):
    spec = LevelSpec(thresholds=(-20, 0, 20))
    randomness = random.Random(5)
    everywhere = every_bit(spec)
    chosen = randomness.sample(everywhere, 24) + [place for place in everywhere if place[0] == 5]
    assert all(stops(talk, spec, *place) for place in chosen)
