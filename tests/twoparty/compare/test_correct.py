"""Every answer is the answer in the clear, and every message has its documented length."""

import random

import pytest

from lumos.crypto.groups import GROUPS
from lumos.twoparty.comparison import Kind, Spec, messages

ALL = list(Kind)


@pytest.mark.parametrize(
    "bits", [1, 2, 3, *(pytest.param(bits, marks=pytest.mark.long) for bits in (4, 5))]
)
def test_every_pair_of_small_values(bits, talk, agrees):
    values = range(1 << bits)
    # Of the widest, each pair is compared in one of the ways, and in each way all kinds of pairs.
    items = [
        (Spec(bits, kind), x, y)
        for number, kind in enumerate(ALL)
        for x in values
        for y in values
        if bits < 5 or (x + 2 * y) % 4 // 2 == number
    ]
    # 50 to a session, as a long-lived pair would have them.
    for start in range(0, len(items), 50):
        batch = items[start : start + 50]
        session = talk()
        ends = session.run(batch)
        assert all(map(agrees, batch, *ends))
        assert session.shape() == messages([spec for spec, _, _ in batch], first=True)


SHORT = (6, 8, 9, 12, 13, 17, 32)


@pytest.mark.parametrize(
    "bits",
    [pytest.param(bits, marks=() if bits in SHORT else pytest.mark.long) for bits in range(6, 33)],
)
def test_boundaries_and_random_values(bits, talk, agrees):
    randomness = random.Random(bits)
    top = (1 << bits) - 1
    middle = 1 << (bits - 1)
    pairs = [(0, 0), (0, top), (top, 0), (top, top), (middle, middle - 1), (middle - 1, middle)]
    for _ in range(4):
        x = randomness.getrandbits(bits)
        # Neighbours that differ in one bit, at a digit's edge or within it.
        pairs += [
            (x, x ^ 1 << randomness.randrange(bits)),
            (x, randomness.getrandbits(bits)),
            (x, x),
        ]
    session = talk()
    batch = [(Spec(bits, ALL[k % 2]), x, y) for k, (x, y) in enumerate(pairs)]
    batch += [(Spec(bits, kind), x, y) for kind in ALL for x, y in pairs[4:6]]
    ends = session.run(batch)
    assert all(map(agrees, batch, *ends))
    assert session.shape() == messages([spec for spec, _, _ in batch], first=True)


@pytest.mark.parametrize("group", GROUPS.names())
def test_one_session_serves_many_batches_of_different_kinds(group, talk, agrees):
    session, point = talk(group), GROUPS[group].point_bytes
    for number, bits in enumerate([4, 8, 16, 1, 12, 32]):
        batch = [(Spec(bits, kind), 1, number % 2) for kind in ALL]
        assert all(map(agrees, batch, *session.run(batch)))
        specs = [spec for spec, _, _ in batch]
        assert session.shape() == messages(specs, first=number == 0, point=point)


@pytest.mark.parametrize("group", GROUPS.names())
def test_a_batch_mixes_forms(group, talk, agrees):
    batch = [(Spec(bits, Kind.THREE_WAY), 1, 0) for bits in (4, 32, 8, 13, 12, 20)]
    assert all(map(agrees, batch, *talk(group).run(batch)))


def test_every_digit_in_the_other_group(talk, agrees):
    # Every pair of values of two digits is compared once, among them 0: no multiple of A.
    items = [(Spec(4, ALL[(x + y) % 2]), x, y) for x in range(16) for y in range(16)]
    items += [(Spec(8), 100, y) for y in range(0, 256, 5)]
    session = talk("secp256k1")
    assert all(map(agrees, items, *session.run(items)))
    assert session.shape() == messages([spec for spec, _, _ in items], first=True, point=33)
