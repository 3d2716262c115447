"""Levels against the product computed in the clear."""

import itertools
from typing import Any

import numpy as np
import pytest

from lumos.crypto.groups import GROUPS
from lumos.twoparty.score import (
    LevelSpec,
    Shifted,
    level_table,
    levels_of,
    messages,
    product_tables,
)

SPECS = [
    LevelSpec(width=1, bits=1, ring_bits=2, thresholds=(1,)),
    LevelSpec(width=2, bits=2, ring_bits=4, thresholds=(-3, 0, 2)),
    LevelSpec(width=3, bits=3, ring_bits=6, thresholds=(-20, -5, 0, 1, 7)),
    LevelSpec(width=5, bits=4, ring_bits=8, thresholds=(0,)),
    LevelSpec(width=24, thresholds=(-100, 0, 100)),
    LevelSpec(width=24, thresholds=(-300, -100, -20, 0, 20, 100, 300)),
    LevelSpec(width=40, bits=3, ring_bits=11, thresholds=(-512, 0, 511)),
    LevelSpec(width=7, bits=4, ring_bits=12, thresholds=(-2048, 2047)),
]


def bits_as_numbers(bits):
    """[…, entries] of […, bits, entries]."""
    return (bits.astype(np.int64) << np.arange(bits.shape[-2])[:, None]).sum(axis=-2)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_random_vectors(spec, talk, plain_level, short_vector):
    randomness = np.random.default_rng(spec.width)
    items = []
    for _ in range(4):
        s, v = short_vector(spec, randomness), short_vector(spec, randomness)
        items += [(spec, s, v), (spec, s, s), (spec, s, np.minimum(-s, 2 ** (spec.bits - 1) - 1))]
    right = [plain_level(*item) for item in items]
    for group in (GROUPS[name] for name in GROUPS):
        session, point = talk(group=group), group.point_bytes
        assert session.run(items) == (right, right)
        assert session.shape() == messages([spec] * len(items), first=True, point=point)
        # A second batch of the same session, in which R speaks first.
        assert session.run(items[:3]) == (right[:3], right[:3])
        assert session.shape() == messages([spec] * 3, first=False, point=point)


def products_of_three(thresholds):
    """Vectors of three numbers, by product, for every product near a threshold."""
    found: dict[int, Any] = {}
    for s, v in itertools.product(itertools.product(range(-7, 8), repeat=2), repeat=2):
        found.setdefault(s[0] * v[0] + s[1] * v[1], ((*s, 0), (*v, 0)))
    return {
        (place + above): found[threshold - 1 + above]
        for place, threshold in enumerate(thresholds)
        for above in (0, 1)
    }


@pytest.mark.parametrize("ends", ["sender", "receiver", "both"])
def test_every_level_and_every_shift(ends, talk, plain_levels):
    """Products just below, at and above each threshold."""
    thresholds = (-30, -12, -1, 0, 5, 16, 40)
    spec = LevelSpec(width=3, bits=4, ring_bits=9, thresholds=thresholds)
    items: list[Any] = []
    for level, (s, v) in products_of_three(thresholds).items():
        for shift in range(8):
            other = (3 * shift + level) % 8
            items.append(
                (
                    spec,
                    s if ends == "receiver" else Shifted(s, shift),
                    v if ends == "sender" else Shifted(v, other),
                )
            )
    right = plain_levels(items)
    assert all(set(learnt) == set(range(8)) for learnt in right)
    assert talk().run(items) == right
    assert (right[0] == right[1]) is False


def test_both_ends_shift_in_a_batch_of_several_specs(talk, plain_levels, short_vector):
    """And a session's second batch, in which R speaks first."""
    randomness = np.random.default_rng(5)
    items: list[Any] = []
    for spec in SPECS:
        ends = [
            Shifted(short_vector(spec, randomness), int(randomness.integers(spec.levels)))
            for _ in range(2)
        ]
        items.append((spec, *ends))
    session = talk()
    for batch in (items, items[::-1]):
        assert session.run(batch) == plain_levels(batch)


def test_extreme_products_stay_in_the_ring(talk):
    # Norm 511 exactly, with itself and with its opposite: the ends of the signed range.
    spec = LevelSpec(thresholds=(-511, -510, 510, 511))
    s = np.zeros(24, np.int64)
    s[:12] = 6  # 432
    s[12:20] = 3  # 504
    s[20:] = (2, 1, 1, 1)  # 511
    assert (s**2).sum() == 511
    half = LevelSpec(thresholds=(-512, 0))
    items = [(spec, s, s), (spec, s, -s), (spec, s, s * 0), (half, s, s), (half, s, -s)]
    assert talk().run(items) == ([4, 1, 2, 2, 1], [4, 1, 2, 2, 1])


def test_specs_of_one_batch_may_differ(talk, plain_level, short_vector):
    randomness = np.random.default_rng(3)
    items = [
        (spec, short_vector(spec, randomness), short_vector(spec, randomness)) for spec in SPECS
    ]
    right = [plain_level(*item) for item in items]
    session = talk()
    assert session.run(items) == (right, right)
    assert session.shape() == messages(SPECS, first=True)


@pytest.mark.parametrize("spec", SPECS[:5], ids=str)
def test_tables_hold_the_formula(spec, short_vector):
    randomness = np.random.default_rng(1)
    s = short_vector(spec, randomness)
    size, half = 1 << spec.ring_bits, 1 << (spec.bits - 1)
    masks = randomness.integers(0, size, spec.width)
    entries = bits_as_numbers(product_tables(spec, s, masks))
    for i, v in itertools.product(range(spec.width), range(-half, half)):
        assert entries[i, v % (2 * half)] == (s[i] * v + masks[i]) % size
    for share, shift in [(0, 0), (1, 0), (size - 1, spec.levels - 1), (size // 3, 1)]:
        levels = bits_as_numbers(level_table(spec, share, shift))
        for j in range(size):
            product = (j + share) % size
            product -= size if product >= size // 2 else 0
            level = sum(t <= product for t in spec.thresholds)
            assert levels[j] == (level + shift) % spec.levels


def test_levels_of_products():
    spec = LevelSpec(thresholds=(-2, 0, 5))
    assert levels_of(np.array([-9, -3, -2, -1, 0, 4, 5, 99]), spec).tolist() == [
        0, 0, 1, 1, 2, 2, 3, 3
    ]  # fmt: skip
