"""The table under its pads, against the formula computed entry by entry."""

from typing import Any

import numpy as np
import pytest

from lumos.crypto.groups import GROUPS
from lumos.twoparty import lookup
from lumos.twoparty.lookup import Lookup, Query, ReceiverKeys, SenderKeys, pad_bytes, unmask

SHAPES = [
    Lookup((1,), 1),
    Lookup((2,), 2),
    Lookup((4,), 2),
    Lookup((3, 2), 1),
    Lookup((4, 4), 1),
    Lookup((3, 3), 2),
    Lookup((4, 3, 3), 2),
    Lookup((4, 4, 4), 2),
]


def digits(index, widths):
    found, remaining = [], sum(widths)
    for width in widths:
        remaining -= width
        found.append(index >> remaining & ((1 << width) - 1))
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mask_is_the_formula(shape):
    randomness = np.random.default_rng(5)
    plain = randomness.integers(0, 2, (2, shape.outputs, shape.entries), dtype=np.uint8)
    pads = [
        [
            [randomness.bytes(pad_bytes(shape, digit)) for _ in range(1 << width)]
            for digit, width in enumerate(shape.widths)
        ]
        for _ in range(2)
    ]
    masked = lookup.mask(shape, plain, pads)
    for table, own, rows in zip(masked, pads, plain, strict=True):
        assert len(table) == shape.table_bytes
        for j in range(shape.entries):
            # R with index j holds one pad per digit, and finds f(j).
            held = [own[i][c] for i, c in enumerate(digits(j, shape.widths))]
            value = unmask(shape, table, held, j)
            assert [value >> output & 1 for output in range(shape.outputs)] == rows[:, j].tolist()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_pad_bit_masks_one_entry_once(shape):
    # One pad bit flipped changes exactly one entry of the table: none masks two.
    plain = np.zeros((1, shape.outputs, shape.entries), np.uint8)
    for digit, width in enumerate(shape.widths):
        size = pad_bytes(shape, digit)
        used = shape.outputs * (shape.entries >> width)
        hit = set()
        for value in {0, (1 << width) - 1}:
            for bit in range(used):
                pads = [
                    [bytes(pad_bytes(shape, d)) for _ in range(1 << w)]
                    for d, w in enumerate(shape.widths)
                ]
                pads[digit][value] = (1 << bit).to_bytes(size, "little")
                table = int.from_bytes(lookup.mask(shape, plain, [pads])[0], "little")
                assert table.bit_count() == 1
                hit.add(table)
            if used > 64:
                break
        assert len(hit) in (used, 2 * used)


def test_the_other_pads_are_out_of_reach():
    # R's pad is one of S's; no other of S's pads is derived from anything R holds.
    keys = SenderKeys()
    keys.bind(b"s" * 32)
    receiver = ReceiverKeys(keys.A, b"s" * 32)
    asked = Query(Lookup((4, 4), 2), b"\x08\x20", idx=6)
    for index in (0x00, 0x5C, 0xFF):
        points, held = receiver.choose(asked, index)
        for digit, c in enumerate(digits(index, (4, 4))):
            pads = keys.pads(asked, digit, points[32 * digit : 32 * digit + 32])
            assert len(set(pads)) == 16
            assert [place for place, pad in enumerate(pads) if pad == held[digit]] == [c]


def test_a_pad_depends_on_everything_it_is_bound_to():
    base: tuple[Any, ...] = (
        b"s" * 32,
        b"A" * 32,
        Query(Lookup((4,), 1), b"\x04\x00", 7),
        0,
        b"B" * 32,
        [(3, b"W" * 32)],
    )
    changes: dict[int, Any] = {
        0: b"t" * 32,
        1: b"a" * 32,
        2: Query(Lookup((4,), 1), b"\x04\x00", 8),
        4: b"b" * 32,
        5: [(2, b"W" * 32)],
    }
    variants = [base]
    for place, changed in changes.items():
        variants.append((*base[:place], changed, *base[place + 1 :]))
    variants.append((*base[:5], [(3, b"w" * 32)]))
    for code in (b"\x04\x10", b"\x04\x03", b"\x03\x00", b"sixteen bytes of."):
        variants.append((*base[:2], base[2]._replace(code=code), *base[3:]))
    pads = [lookup._pads(*variant)[0] for variant in variants]
    assert len(pads[0]) == 1
    wide = Lookup((4, 4, 4), 2)
    wider = [(*one[:2], one[2]._replace(lookup=wide), *one[3:]) for one in variants]
    longer = [lookup._pads(*variant)[0] for variant in wider]
    assert len(set(longer)) == len(variants)


@pytest.mark.parametrize("group", GROUPS.names())
@pytest.mark.parametrize("many", [1, 12])
def test_shifting_by_a_digit(many, group):
    # bG + cA, in the first digits of a session and after many.
    group = GROUPS[group]
    a, A, _ = group.key()
    receiver = ReceiverKeys(A, b"s" * 32, group)
    _, bG = group.pair()
    for _ in range(many):
        receiver._shifted(bG, 0)
    expected = bG
    for c in range(16):
        assert receiver._shifted(bG, c) == expected
        expected = group.add(expected, A)
    assert a


@pytest.mark.parametrize("name", GROUPS.names())
def test_the_work_does_not_depend_on_the_digit(name):
    # As many group operations for every value of y: the count is public.
    real = GROUPS[name]

    class Counting:
        identity = real.identity

        def __init__(self):
            self.calls = []

        def __getattr__(self, name):
            def counted(*arguments):
                self.calls.append(name)
                return getattr(real, name)(*arguments)

            return counted

    A = real.key()[1]
    seen = set()
    for index in range(0, 256, 15):
        group = Counting()
        receiver = ReceiverKeys(A, b"s" * 32, group)
        for _ in range(6):
            receiver.choose(Query(Lookup((4, 4), 1), b"\x08\x00", 0), index)
        seen.add(tuple(group.calls))
    assert len(seen) == 1
