"""Have both parties seen the same bytes? One byte tells, and one code for single outcomes.

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
    """What the byte stands for; anything but a word of the code is refused."""
    word = byte ^ check
    if word not in WORDS[: 1 << outputs]:
        raise BadValue("an answer is not one of the words that stand for one")
    return WORDS.index(word)
