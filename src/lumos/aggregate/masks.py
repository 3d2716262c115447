"""Masks: keys stretched to whole vectors by ChaCha20, and secrets turned into keys.

Secrets and mask seeds have 128 bits. Run, sum and device are hashed into every key and commitment
that is made of them: a guess can be tried against one of them only, so that many targets are no
easier than one. Every key is derived for one purpose in one sum, so the nonce is zero.
"""

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from lumos.aggregate.fixed_point import RingWords
from lumos.aggregate.shamir import Elements
from lumos.crypto import chacha
from lumos.typing import Bytes, Ints, Words

NONCE = bytes(12)
COMMITMENT = 16
SEED = 16
"""Bytes of the seed of a pair's mask."""
NOBODY = -1


class SumId(NamedTuple):
    """Which sum of which run."""

    run: bytes
    """16 bytes: the tag of the seed that all devices drew."""
    number: int


def keys_of(secrets: Elements, devices: Ints, which: Ints | int, of: SumId) -> Words:
    """[secrets, limbs] → [secrets, 8] the ChaCha20 key that each secret stands for.

    Args:
        devices: [secrets] whose they are.
        which: [secrets] or one for all: `SELF` or `PAIR`.
    """
    hashed = _hash(secrets.astype("<u2"), devices, which, of, b"lumos mask key", 32)
    return hashed.view("<u4").astype(np.uint32).reshape(len(secrets), 8)


def commitments(secrets: Elements, devices: Ints, which: Ints | int, of: SumId) -> Bytes:
    """[secrets, limbs] → [secrets, 16] what binds a device to a secret and hides it.

    A secret has 127.99 uniform bits, so its hash needs no salt.
    """
    return _hash(secrets.astype("<u2"), devices, which, of, b"lumos mask bound", COMMITMENT)


def pair_keys_of(seeds: Words, low: Ints, high: Ints, of: SumId) -> Words:
    """[pairs, 4] → [pairs, 8] the ChaCha20 key of the mask of each pair of ids."""
    hashed = _hash(seeds.astype("<u4"), low, high, of, b"lumos pair mask", 32)
    return hashed.view("<u4").astype(np.uint32).reshape(len(seeds), 8)


def _hash(
    secrets: Elements | Words, one: Ints, other: Ints | int, of: SumId, purpose: bytes, size: int
) -> Bytes:
    names = np.empty((len(secrets), 3), "<i8")
    names[:, 0], names[:, 1], names[:, 2] = of.number, one, other
    whole = np.hstack([names.view(np.uint8), np.ascontiguousarray(secrets).view(np.uint8)])
    rows, width = whole.tobytes(), whole.shape[1]
    hashed = b"".join(
        blake2b(rows[start : start + width], digest_size=size, salt=of.run, person=purpose).digest()
        for start in range(0, len(rows), width)
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
        seeds: [devices, k, 4] by slot.
        keys: [devices, 8] fresh keys, each used for nothing else.
    """
    words = seeds.shape[1] * seeds.shape[2]
    pads = chacha.blocks(keys, NONCE, -(-words // 16))[:, :words]
    return seeds ^ pads.reshape(seeds.shape)
