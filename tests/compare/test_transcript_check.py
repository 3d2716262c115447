"""The check is CRC-8, and answers lie far apart."""

import pytest

from lumos.compare import BadValue
from lumos.compare.transcript_check import WORDS, crc8, decode_answer, encode_answer


def test_answers_have_distance_five() -> None:
    for left in WORDS:
        for right in WORDS:
            assert left == right or (left ^ right).bit_count() >= 5
    for check in (0, 0x5A, 0xFF):
        for outputs in (1, 2):
            good = {encode_answer(value, check)[0] for value in range(1 << outputs)}
            for byte in range(256):
                if byte in good:
                    assert encode_answer(decode_answer(byte, check, outputs), check)[0] == byte
                else:
                    with pytest.raises(BadValue):
                        decode_answer(byte, check, outputs)


def test_the_check_is_crc_8() -> None:
    # The catalogued check value of CRC-8/SMBUS.
    assert crc8(0, b"123456789") == 0xF4
    assert crc8(crc8(0, b"12345"), b"6789") == 0xF4
