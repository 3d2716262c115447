"""ChaCha20: the vectors of RFC 8439, and OpenSSL, for one key and for many at once."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from lumos.crypto import entropy

MANY = entropy._FEW_KEYS + 1  # from here on the vectorised path computes


def openssl(key: bytes, nonce: bytes, count: int) -> bytes:
    cipher = Cipher(ChaCha20(key, bytes(4) + nonce), mode=None)
    return cipher.encryptor().update(bytes(64 * count))


@pytest.mark.parametrize("keys", [1, MANY])
def test_rfc_8439_section_2_3_2(keys: int) -> None:
    key = np.frombuffer(bytes(range(32)), "<u4").astype(np.uint32)
    nonce = bytes.fromhex("000000090000004a00000000")
    stream = entropy.blocks(np.tile(key, (keys, 1)), nonce, 2)
    expected = [
        *(0xE4E7F110, 0x15593BD1, 0x1FDD0F50, 0xC47120A3, 0xC7F4D1C7, 0x0368C033, 0x9AAA2204),
        *(0x4E6CD4C3, 0x466482D2, 0x09AA9F07, 0x05D7C214, 0xA2028BD9, 0xD19C12B5, 0xB94E16DE),
        *(0xE883D0CB, 0x4E3C50A2),
    ]
    # The vector has block counter 1: the second block of ours.
    assert (stream[:, 16:] == np.array(expected, np.uint32)).all()


@pytest.mark.parametrize("keys", [1, MANY])
def test_rfc_8439_appendix_a_1(keys: int) -> None:
    stream = entropy.blocks(np.zeros((keys, 8), np.uint32), bytes(12), 1)
    expected = (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    assert {row.astype("<u4").tobytes().hex() for row in stream} == {expected}


@pytest.mark.parametrize("keys", [0, 1, 2, MANY - 1, MANY, 300])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_same_bits_as_openssl(keys: int, count: int) -> None:
    random = np.random.default_rng(keys * 10 + count)
    secrets = random.integers(0, 2**32, (keys, 8), np.uint32)
    nonce = random.bytes(12)
    stream = entropy.blocks(secrets, nonce, count)
    assert stream.shape == (keys, 16 * count)
    assert stream.dtype == np.uint32
    expected = [openssl(secret.astype("<u4").tobytes(), nonce, count) for secret in secrets]
    assert stream.astype("<u4").tobytes() == b"".join(expected)


def test_very_many_keys_are_taken_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = np.random.default_rng(0).integers(0, 2**32, (500, 8), np.uint32)
    whole = entropy.blocks(secrets, bytes(12), 3)
    monkeypatch.setattr(entropy, "_BLOCKS", 3 * 90)
    assert np.array_equal(entropy.blocks(secrets, bytes(12), 3), whole)
    assert entropy.blocks(secrets, bytes(12), 0).shape == (500, 0)


def test_keys_are_left_as_they_are() -> None:
    secrets = np.arange(8 * MANY, dtype=np.uint32).reshape(MANY, 8)
    entropy.blocks(secrets, bytes(12), 2)
    assert np.array_equal(secrets.ravel(), np.arange(8 * MANY))
