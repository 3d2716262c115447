"""Known answers: with this entropy, these bytes. They fix the wire format.

The direct form is also computed a second time from its description alone, with the curve in
plain integers, sharing no code with the protocol.
"""

import hashlib
import itertools

import pytest
from tests.plain_curve import CURVES, crc

from lumos.crypto import entropy
from lumos.twoparty.comparison import Kind, Spec

# ℓ = 4, lt, x = 5, y = 9
ED25519 = {
    "opening": "af1ba9215bea85c4d1761838721e3470"
    "0648e0aed5d0b89beda4a13b19d958b0aef35997e29339698a418274d25dec5e",
    "points": "a933ec07082324914e0219cff396e511"
    "81a599c9318beb5de5681b1f14e80771e468d6387195ab69dc9313e3dbf95a0b",
    "table": "10038a",
    "answer": "95",
}
SECP256K1 = {
    "opening": "af1ba9215bea85c4d1761838721e3470"
    "02ecd477f6595f35e0b4ae858d3f4de4aed388def7b105e74cc6968a0938ec722e",
    "points": "9839910f5ca9947048193f9005c57278"
    "036f12aad38d3d3a8b7ab86fc91da8f518147caee0d3c1692de30f154d1c46bc12",
    "table": "8afb38",
    "answer": "27",
}
LITERAL = {"ed25519": ED25519, "secp256k1": SECP256K1}

DIGESTS = [
    ([(Spec(8), 200, 201)], ([1], [1]), "6abffe5c523ed6f62fabe6cd783d5f61"),
    ([(Spec(8, Kind.THREE_WAY), 77, 77)], ([0], [0]), "74efd2979e0a4ed294545a93f8f676c6"),
    ([(Spec(12), 4000, 3999)], ([0], [0]), "e5141af7c6af2fd11db49ebc375f112d"),
    ([(Spec(16), 40000, 40001)], ([1], [1]), "a5f77d193aa67c8adf612e0998d5580e"),
    (
        [(Spec(32, Kind.THREE_WAY), 2**31, 2**31 - 1)],
        ([1], [1]),
        "a4e66faad2a8e139b4b0474d5872b5c6",
    ),
    (
        [(Spec(4), 1, 2), (Spec(13), 8191, 8191)],
        ([1, 0], [1, 0]),
        "8a4cc336766dcabcf6e62a5dba5bd958",
    ),
]
OF_SECP256K1 = [
    "e62eebc80b57b7443ccb674a06b211f5",
    "258f5d30bf8b6a7a55b508831555f221",
    "659c979c357b29e8eafc1a16eb1f1006",
    "038c61497384cdcb21e1f1caa787381a",
    "1a4e0e3b8206f3b0556a0b51c9cad1d5",
    "ac5b16ab0e9a1548481b3673c05c11d4",
]
"""Digests of the same conversations in the other group."""


@pytest.fixture
def known(monkeypatch, stream):
    """Starts the stream of the known answers anew, also for a second reader."""
    monkeypatch.setattr(entropy, "draw", stream("lumos known answers"))
    return lambda: stream("lumos known answers")


def digest_of(session):
    said = "".join(message.hex() for _, message in session.sent)
    return hashlib.sha256(said.encode()).hexdigest()[:32]


@pytest.mark.parametrize("group", LITERAL)
def test_literal_messages(group, known, talk):
    session = talk(group)
    assert session.run([(Spec(4), 5, 9)]) == ([1], [1])
    assert [message.hex() for _, message in session.sent] == list(LITERAL[group].values())


@pytest.mark.parametrize(("items", "results", "digest"), DIGESTS)
def test_digests_of_whole_conversations(items, results, digest, known, talk):
    session = talk()
    assert session.run(items) == results
    assert digest_of(session) == digest


@pytest.mark.parametrize(("conversation", "digest"), list(zip(DIGESTS, OF_SECP256K1, strict=True)))
def test_digests_in_the_other_group(conversation, digest, known, talk, agrees):
    session = talk("secp256k1")
    ends = session.run(conversation[0])
    assert all(map(agrees, conversation[0], *ends))
    assert digest_of(session) == digest


@pytest.mark.parametrize("group", CURVES)
def test_the_direct_form_from_its_description(group, known, talk):
    x, y = 93, 94
    session = talk(group)
    assert session.run([(Spec(8), x, y)]) == ([1], [1])
    opening, points, table, answer = (message for _, message in session.sent)

    draw, curve = known(), CURVES[group]
    plus, times, encode = curve.plus, curve.times, curve.encode

    nonce_s = draw(16)
    a = curve.scalar(draw)
    nonce_r = draw(16)
    A = times(a, curve.base)
    assert opening == nonce_s + encode(A)

    B = [plus(times(curve.scalar(draw), curve.base), times(c, A)) for c in (y >> 4, y & 15)]
    assert points == nonce_r + encode(B[0]) + encode(B[1])

    ids = (3).to_bytes(8, "little") + (8).to_bytes(8, "little")
    sid = hashlib.blake2b(ids + opening + nonce_r, digest_size=32, person=b"lumos.sid.1").digest()

    def pad(digit, value):
        W = plus(times(a, B[digit]), times(curve.order - value, times(a, A)))
        spec = bytes([8, 0])
        said = sid + encode(A) + digit.to_bytes(8, "little") + spec + encode(B[digit])
        said += bytes([value]) + encode(W)
        return hashlib.blake2b(said, digest_size=2, person=b"lumos.pad.1").digest()

    high, low = ([int.from_bytes(pad(d, v), "little") for v in range(16)] for d in (0, 1))
    masked = 0
    for h, m in itertools.product(range(16), range(16)):
        j = 16 * h + m
        masked |= ((x < j) ^ (high[h] >> m & 1) ^ (low[m] >> h & 1)) << j
    assert table[:-1] == masked.to_bytes(32, "little")

    seen = b"lumos.compare.13 8" + bytes([8, 0]) + opening + points + table[:-1]
    assert table[-1] == crc(seen)
    assert answer == bytes([0x1F ^ crc(seen)])
