"""The public list of messages: its numbers, written out."""

import pytest

from lumos.errors import UsageError
from lumos.twoparty.comparison import Kind, Spec, messages, plan
from lumos.twoparty.lookup import digit_widths
from lumos.twoparty.session import Message


def lengths(*specs, first=True):
    return [message.length for message in messages(specs, first=first)]


def test_direct_form_as_documented():
    # opening 16+32 | nonce 16 + 2 points | 256 bits + check | outcome
    assert lengths(Spec(8)) == [48, 16 + 64, 32 + 1, 1]
    assert lengths(Spec(8), first=False) == [64, 33, 1]
    assert lengths(Spec(8, Kind.THREE_WAY)) == [48, 80, 64 + 1, 1]
    assert lengths(Spec(4, Kind.THREE_WAY)) == [48, 48, 4 + 1, 1]
    assert lengths(Spec(12)) == [48, 16 + 96, 512 + 1, 1]
    assert lengths(Spec(1)) == [48, 48, 1 + 1, 1]


@pytest.mark.parametrize("bits", range(1, 13))
@pytest.mark.parametrize("kind", list(Kind))
def test_direct_formula(bits, kind):
    outputs = 2 if kind is Kind.THREE_WAY else 1
    table = outputs * -(-(2**bits) // 8)
    expected = [48, 16 + 32 * 7 * -(-bits // 4), 7 * table + 1, 7]
    assert lengths(*[Spec(bits, kind)] * 7) == expected


def test_tree_form_as_documented():
    # 16 bits: 4 leaves (3 of lt and eq, 1 of lt) and 3 triples (1 with eq): 7 points.
    # Tables 3·4 + 2 + 2 + 1 + 1; level 1 opens 3 + 2 bits, level 2 opens 2.
    assert lengths(Spec(16)) == [48, 16 + 7 * 32, 18 + 1 + 1, 1 + 1, 1 + 1 + 1, 1]
    # 32 bits: 8 leaves, 7 triples; level 1 opens 11 bits, level 2 opens 5, level 3 opens 2.
    assert lengths(Spec(32)) == [48, 16 + 15 * 32, 30 + 11 + 2 + 1, 2 + 1, 1 + 1, 1 + 1 + 1, 1]


def test_speakers_alternate():
    for bits in (8, 13, 16, 17, 32):
        listed = messages([Spec(bits)], first=True)
        assert [message.to_sender for message in listed] == [
            place % 2 == 1 for place in range(len(listed))
        ]
    assert messages([Spec(8)], first=False)[0] == Message(to_sender=True, length=64)


def test_fifty_to_a_session_stay_below_100_bytes():
    together = sum(lengths(*[Spec(8)] * 50)) / 50
    one_by_one = (sum(lengths(Spec(8))) + 49 * sum(lengths(Spec(8), first=False))) / 50
    assert together == pytest.approx(98.3)
    assert one_by_one == pytest.approx(99.28)


def test_digits_are_even_and_at_most_four_bits():
    for bits in range(1, 33):
        widths = digit_widths(bits)
        assert sum(widths) == bits
        assert len(widths) == -(-bits // 4)
        assert max(widths) <= 4
        assert max(widths) - min(widths) <= 1


def test_trees_have_as_many_levels_as_documented():
    for bits in range(13, 33):
        shape = plan(bits, 1)
        q = -(-bits // 4)
        assert len(shape.leaves) == q
        assert len(shape.triples) == q - 1
        assert len(shape.levels) == (q - 1).bit_length()


@pytest.mark.parametrize("bits", [0, -1, 33])
def test_bits_out_of_range_are_refused(bits):
    with pytest.raises(UsageError, match="bits must be 1 to 32"):
        Spec(bits)
