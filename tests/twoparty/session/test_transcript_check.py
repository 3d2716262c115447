"""The check is CRC-8, and answers lie far apart."""

import pytest

from lumos.errors import BadValue
from lumos.twoparty.session import (
    EIGHT_WORDS,
    FOUR_WORDS,
    crc8,
    decode_answer,
    encode_answer,
    words_for,
)


@pytest.mark.parametrize(("words", "distance"), [(FOUR_WORDS, 5), (EIGHT_WORDS, 4)])
def test_answers_lie_far_apart(words: tuple[int, ...], distance: int) -> None:
    for left in words:
        for right in words:
            assert left == right or (left ^ right).bit_count() >= distance


@pytest.mark.parametrize("values", range(2, 9))
def test_only_words_of_the_code_are_answers(values: int) -> None:
    words = words_for(values)
    assert len(words) == values
    for check in (0, 0x5A, 0xFF):
        good = {encode_answer(value, check, words)[0] for value in range(values)}
        for byte in range(256):
            if byte in good:
                value = decode_answer(byte, check, words)
                assert encode_answer(value, check, words)[0] == byte
            else:
                with pytest.raises(BadValue):
                    decode_answer(byte, check, words)


def test_the_check_is_crc_8() -> None:
    # The catalogued check value of CRC-8/SMBUS.
    assert crc8(0, b"123456789") == 0xF4
    assert crc8(crc8(0, b"12345"), b"6789") == 0xF4
