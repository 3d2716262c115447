"""The check that both parties have seen the same bytes, and the code of an answer.

The check is CRC-8 with polynomial x^8 + x^2 + x + 1 over all public bytes of a session in order.
An answer is one of four words at a Hamming distance of at least 5, XOR the check: up to four
flipped bits never turn one answer into another.
"""

from lumos.compare.errors import BadValue

WORDS = (0x00, 0x1F, 0xE3, 0xFC)


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


def encode_answer(value: int, check: int) -> bytes:
    """The byte of an outcome or of a last share, 0 to 3."""
    return bytes([WORDS[value] ^ check])


def decode_answer(byte: int, check: int, outputs: int) -> int:
    """The value that the byte encodes; raises `BadValue` for anything but a word of the code."""
    word = byte ^ check
    if word not in WORDS[: 1 << outputs]:
        raise BadValue("an answer is not a word of its code")
    return WORDS.index(word)
