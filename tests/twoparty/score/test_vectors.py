"""Known answers: with this entropy, these bytes. They fix the wire format.

One score is also computed a second time from its description alone, with the curve in plain
integers, sharing no code with the protocol.
"""

import hashlib
import itertools

import msgspec
import numpy as np
import pytest
from tests.plain_curve import CURVES, crc

from lumos.crypto import entropy
from lumos.crypto.groups import GROUPS
from lumos.twoparty.score import LevelSpec, Shifted

TINY = LevelSpec(width=1, bits=3, ring_bits=4, thresholds=(0,))
FULL = LevelSpec(thresholds=(-20, 0, 20))
EIGHT = LevelSpec(width=5, thresholds=(-30, -20, -10, 0, 10, 20, 30))
UP = [7 * k % 11 - 5 for k in range(24)]
DOWN = [5 * k % 9 - 4 for k in range(24)]

# s = 2, v = -1
ED25519 = {
    "opening": "af1ba9215bea85c4d1761838721e3470"
    "0648e0aed5d0b89beda4a13b19d958b0aef35997e29339698a418274d25dec5e",
    "points": "a933ec07082324914e0219cff396e511"
    "50d2961fac4b8af1106417a8a136b33177851734f17cdc9bc03fac9723399e9f",
    "products": "087c107664",
    "share": "2dfe5514893a2fbf44188ded2cd5de2f9890d8949cc57c6fbee8448a1b1456c0",
    "levels": "847128",
    "answer": "28",
}
SECP256K1 = {
    "opening": "af1ba9215bea85c4d1761838721e3470"
    "02ecd477f6595f35e0b4ae858d3f4de4aed388def7b105e74cc6968a0938ec722e",
    "points": "9839910f5ca9947048193f9005c57278"
    "030b5bd80ab1a8baee26d5affa62f40c70955a9ad68dd6949989ba43c3661f18f1",
    "products": "cca9041afb",
    "share": "0376b3a39374eed0adb0861c3444bdb487b8e8a9d3abae8f83862baeae9a9ff457",
    "levels": "3af4b2",
    "answer": "b2",
}
LITERAL = {"ed25519": ED25519, "secp256k1": SECP256K1}

WORDS = (0x00, 0x1F, 0xE3)
"""The first words of the code of up to four values."""

DIGESTS = [
    ([(FULL, UP, DOWN)], ([3], [3]), "3b31e404644f593be496d9ad7a1a704e"),
    ([(FULL, Shifted(UP, 3), UP)], ([3], [2]), "c365be219262dbd10c36c20fe3fdf52c"),
    ([(FULL, UP, Shifted(UP, 3))], ([2], [3]), "cca2bb8a84bcd390263827bf116e7052"),
    ([(FULL, Shifted(UP, 1), Shifted(UP, 3))], ([2], [0]), "1504a8478c7a14d5b322d2b4fcbb2064"),
    (
        [(EIGHT, [7, -7, 1, 0, 2], [3, 1, -8, 0, 2])],
        ([5], [5]),
        "7da7b602790288bf27c8e3c3c9123499",
    ),
    (
        [(TINY, [2], [1]), (EIGHT, Shifted([1, 2, 3, 4, 5], 6), [-1, 2, -3, 4, -5])],
        ([1, 2], [1, 0]),
        "9f2ad2b2df2204433fc5bcd9ec776643",
    ),
]
OF_SECP256K1 = [
    "4f953eaffdc2fe47a1bf1a05a3933280",
    "d7ff3903d5edd3c0f953ca96ed498d6c",
    "1e0a5f25a47c3bfead99f24f2661ca4f",
    "62b25e0f9461264e1b10584fd9272536",
    "0af99fde069c0b530e5c7cc7fa393a16",
    "48ec324c818dee2954a3276a733542dd",
]
"""Digests of the same conversations in the other group."""


@pytest.fixture
def known(monkeypatch, stream):
    """Starts the stream of the known answers anew, also for a second reader."""
    monkeypatch.setattr(entropy, "draw", stream("lumos known answers"))
    return lambda: stream("lumos known answers")


@pytest.mark.parametrize("group", LITERAL)
def test_literal_messages(group, known, talk):
    session = talk(group=GROUPS[group])
    assert session.run([(TINY, [2], [-1])]) == ([0], [0])
    assert [message.hex() for _, message in session.sent] == list(LITERAL[group].values())


@pytest.mark.parametrize(
    ("group", "items", "level", "digest"),
    [("ed25519", *one) for one in DIGESTS]
    + [("secp256k1", *one[:2], other) for one, other in zip(DIGESTS, OF_SECP256K1, strict=True)],
)
def test_digests_of_whole_conversations(group, items, level, digest, known, talk):
    session = talk(group=GROUPS[group])
    assert session.run(items) == level
    said = "".join(message.hex() for _, message in session.sent)
    assert hashlib.sha256(said.encode()).hexdigest()[:32] == digest


@pytest.mark.parametrize("group", CURVES)
def test_a_score_from_its_description(group, known, talk):
    thresholds = (-5, 3)
    spec = LevelSpec(width=2, bits=3, ring_bits=5, thresholds=thresholds)
    # The product is -9, the level 0: R reads it with S's shift, and tells it with its own as well.
    s, v, shift, shift_r = (3, -2), (-1, 3), 2, 2
    session = talk(group=GROUPS[group])
    assert session.run([(spec, Shifted(s, shift), Shifted(v, shift_r))]) == ([2], [2])
    opening, points, products, asked, levels, answer = (message for _, message in session.sent)

    draw, curve = known(), CURVES[group]
    plus, times, encode = curve.plus, curve.times, curve.encode

    nonce_s = draw(16)
    a = curve.scalar(draw)
    nonce_r = draw(16)
    A = times(a, curve.base)
    assert opening == nonce_s + encode(A)

    # One point per coordinate, in two's complement of three bits.
    B = [plus(times(curve.scalar(draw), curve.base), times(c % 8, A)) for c in v]
    assert points == nonce_r + encode(B[0]) + encode(B[1])

    ids = (3).to_bytes(8, "little") + (8).to_bytes(8, "little")
    sid = hashlib.blake2b(ids + opening + nonce_r, digest_size=32, person=b"lumos.sid.1").digest()
    public = msgspec.msgpack.encode((2, 3, 5, thresholds))
    code = hashlib.blake2b(public, digest_size=16, person=b"lumos.level.1").digest()

    def pad(idx, point, value, size):
        W = plus(times(a, point), times(curve.order - value, times(a, A)))
        said = sid + encode(A) + idx.to_bytes(8, "little") + code + encode(point)
        said += bytes([value]) + encode(W)
        digest = hashlib.blake2b(said, digest_size=size, person=b"lumos.pad.1").digest()
        return int.from_bytes(digest, "little")

    # Tables of products: for each bit of the ring a byte, one bit per value of v.
    r = [word % 32 for word in np.frombuffer(draw(4), "<u2").tolist()]
    expected = b""
    for i in range(2):
        pads = [pad(i, B[i], c, 1) for c in range(8)]
        for bit in range(5):
            row = 0
            for c in range(8):
                entry = s[i] * (c if c < 4 else c - 8) + r[i]
                row |= ((entry >> bit & 1) ^ (pads[c] >> bit & 1)) << c
            expected += bytes([row])
    assert products[:-1] == expected

    # R's share, in digits of three and two bits.
    share = sum(a * b for a, b in zip(s, v, strict=True)) + sum(r)
    share %= 32
    C = [plus(times(curve.scalar(draw), curve.base), times(c, A)) for c in (share >> 2, share & 3)]
    assert asked == encode(C[0]) + encode(C[1])

    # The table of levels: two output bits of 32 entries each.
    high = [pad(2, C[0], c, 1) for c in range(8)]
    low = [pad(3, C[1], c, 2) for c in range(4)]
    masked = [0, 0]
    for (h, m), output in itertools.product(itertools.product(range(8), range(4)), (0, 1)):
        j = 4 * h + m
        product = (j - sum(r)) % 32
        product -= 32 if product >= 16 else 0
        level = (sum(t <= product for t in thresholds) + shift) % 3
        bit = level >> output & 1
        bit ^= high[h] >> (4 * output + m) & 1
        bit ^= low[m] >> (8 * output + h) & 1
        masked[output] |= bit << j
    assert levels[:-1] == b"".join(row.to_bytes(4, "little") for row in masked)

    seen = b"lumos.score.13 8" + code + opening + points + products[:-1]
    assert products[-1] == crc(seen)
    seen += asked + levels[:-1]
    assert levels[-1] == crc(seen)
    told = (0 + shift + shift_r) % 3
    assert answer == bytes([WORDS[told] ^ crc(seen)])
