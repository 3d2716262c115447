"""Masks: keys stretched to whole vectors by ChaCha20, and secrets turned into keys.

Every key here is fresh, or derived for one purpose in one round, so the nonce is zero.
"""

from hashlib import blake2b

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from lumos.aggregate.fixed_point import RingWords
from lumos.aggregate.shamir import Elements
from lumos.crypto import chacha
from lumos.typing import Bytes, Ints, Words

NONCE = bytes(12)
COMMITMENT = 16
NOBODY = -1


def keys_of(secrets: Elements) -> Words:
    """[secrets, limbs] → [secrets, 8] the ChaCha20 key that each secret stands for."""
    hashed = _hash(secrets, b"lumos mask key", 32)
    return hashed.view("<u4").astype(np.uint32).reshape(len(secrets), 8)


def commitments(secrets: Elements) -> Bytes:
    """[secrets, limbs] → [secrets, 16] what binds a device to a secret and hides it.

    A secret has 255.99 uniform bits, so its hash needs no salt.
    """
    return _hash(secrets, b"lumos mask bound", COMMITMENT)


def _hash(secrets: Elements, purpose: bytes, size: int) -> Bytes:
    rows = secrets.astype("<u2")
    hashed = b"".join(
        blake2b(row.tobytes(), digest_size=size, person=purpose).digest() for row in rows
    )
    return np.frombuffer(hashed, np.uint8).reshape(len(secrets), size)


def add_masks(vectors: RingWords, keys: Words, plus: Ints, minus: Ints) -> None:
    """Stretch each key once; add it to one row and take it from another, modulo the word.

    Args:
        vectors: [rows, width] changed in place.
        keys: [masks, 8].
        plus: [masks] the row that adds the mask, or `NOBODY`.
        minus: [masks] the row that takes it away, or `NOBODY`.
    """
    zeros = bytes(vectors.shape[1] * vectors.itemsize)
    stream = bytearray(len(zeros))
    mask = np.frombuffer(stream, vectors.dtype)
    start = bytes(4) + NONCE  # OpenSSL takes the block counter in front of the nonce
    for key, adding, taking in zip(keys.astype("<u4"), plus.tolist(), minus.tolist(), strict=True):
        Cipher(ChaCha20(key.tobytes(), start), mode=None).encryptor().update_into(zeros, stream)
        if adding != NOBODY:
            vectors[adding] += mask
        if taking != NOBODY:
            vectors[taking] -= mask


def wrap(seeds: Words, keys: Words) -> Words:
    """Mask seeds under a device's round key, or, applied to that, the seeds again.

    Args:
        seeds: [devices, k, 8] by slot.
        keys: [devices, 8] fresh keys, each used for nothing else.
    """
    words = seeds.shape[1] * seeds.shape[2]
    pads = chacha.blocks(keys, NONCE, -(-words // 16))[:, :words]
    return seeds ^ pads.reshape(seeds.shape)
