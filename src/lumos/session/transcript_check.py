"""The check that both parties have seen the same bytes, and the code of an answer.

The check is CRC-8 with polynomial x^8 + x^2 + x + 1 over all public bytes of a session in order.
An answer is a code word XOR the check. Up to four values: words at a Hamming distance of at least
5, so that up to four flipped bits never turn one answer into another. Up to eight values: distance
4 (no code of 8 bits has more), three flipped bits.
"""

from collections.abc import Sequence

from lumos.session.errors import BadValue

FOUR_WORDS = (0x00, 0x1F, 0xE3, 0xFC)
EIGHT_WORDS = (0x00, 0x0F, 0x33, 0x3C, 0x55, 0x5A, 0x66, 0x69)


def words_for(values: int) -> tuple[int, ...]:
    """One code word for each of so many values, at most eight."""
    return (FOUR_WORDS if values <= len(FOUR_WORDS) else EIGHT_WORDS)[:values]


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        state = byte
        for _ in range(8):
            state = state << 1 ^ (0x107 if state & 0x80 else 0)
        table.append(state)
    return tuple(table)


_TABLE = _table()


def crc8(state: int, data: bytes) -> int:
    """The check after more bytes."""
    table = _TABLE
    for byte in data:
        state = table[state ^ byte]
    return state


def encode_answer(value: int, check: int, words: Sequence[int] = FOUR_WORDS) -> bytes:
    """The byte of an answer: the value's code word XOR the check."""
    return bytes([words[value] ^ check])


def decode_answer(byte: int, check: int, words: Sequence[int]) -> int:
    """The value that the byte encodes; raises `BadValue` for anything but one of `words`."""
    word = byte ^ check
    if word not in words:
        raise BadValue("an answer is not a word of its code")
    return words.index(word)
