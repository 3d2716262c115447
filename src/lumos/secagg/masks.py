"""Masks and their keys: key streams of whole vectors, and the ratchet that makes the keys of a sum.

Secrets and mask seeds have 128 bits. Run, sum and device are hashed into every key and commitment
that is made of them: a guess can be tried against one of them only, so that many targets are no
easier than one. Every key is derived for one purpose in one sum, so the nonce is zero.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from lumos.crypto import entropy
from lumos.crypto.entropy import InMemoryOnly
from lumos.errors import Forged
from lumos.secagg.parameters import RingWords
from lumos.secagg.shares import LIMBS, SELF, Elements, elements_of
from lumos.typing import Bytes, Ints, Words

NONCE = bytes(12)
COMMITMENT = 16
SEED = 16
"""Bytes of the seed of a pair's mask."""
WORD = 12
"""Bytes by which one end of a pair confirms the other."""
NOBODY = -1
PLEDGE = 16
"""Bytes of one hash in a pledge."""
WORD_PLEDGE = 8
"""Bytes of the hash of a word, of which only whoever sent it can be wrong."""
PLEDGE_BYTES = 3 * PLEDGE + 2 * WORD_PLEDGE
"""Bytes of a pledge for one pair: hashes of its seed, of values of both self secrets, and of the
words by which its ends confirm each other, from the low end and from the high."""


class SumId(NamedTuple):
    """The name of a sum: its run, and its number there."""

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


def pledges(keys: "RoundKeys", low: Ints, high: Ints, of: SumId) -> Bytes:
    """[pairs, 64] hashes of what the two ends of each pair share: both ends compute the same.

    Each hashed value has 96 uniform bits or more that only the two ends know, so its hash hides it.
    """
    return np.hstack(
        [
            seed_pledges(keys.seed, low, high, of),
            value_pledges(keys.values_up[:, SELF], low, high, of, up=True),
            value_pledges(keys.values_down[:, SELF], low, high, of, up=False),
            *(word_pledges(words, low, high, of) for words in (keys.word_up, keys.word_down)),
        ]
    )


def word_pledges(words: Words, low: Ints, high: Ints, of: SumId) -> Bytes:
    """[pairs, 8] hashes of words."""
    return _hash(words.astype("<u4"), low, high, of, b"lumos pledge w", WORD_PLEDGE)


def seed_pledges(seeds: Words, low: Ints, high: Ints, of: SumId) -> Bytes:
    """[pairs, 16] hashes of pair seeds."""
    return _hash(seeds.astype("<u4"), low, high, of, b"lumos pledge s", PLEDGE)


def value_pledges(values: Elements, low: Ints, high: Ints, of: SumId, *, up: bool) -> Bytes:
    """[pairs, 16] hashes of the values of self secrets: of the low end's if `up`."""
    purpose = b"lumos pledge u" if up else b"lumos pledge d"
    return _hash(values.astype("<u2"), low, high, of, purpose, PLEDGE)


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


def self_mask_halves(
    secrets: Elements, devices: Ints, width: int, of: SumId, word_bits: int
) -> tuple[Ints, Ints]:
    """[devices, width] the self masks, low + 2^32 · high; arguments as in `mask_halves`."""
    everyone = np.arange(len(devices))
    keys = keys_of(secrets, devices, SELF, of)
    nobody = np.full(len(devices), NOBODY)
    return mask_halves(len(devices), width, keys, everyone, nobody, word_bits)


def mask_halves(
    rows: int, width: int, keys: Words, plus: Ints, minus: Ints, word_bits: int
) -> tuple[Ints, Ints]:
    """[rows, width] integer sums of masks, low + 2^32 · high: not reduced modulo the word.

    Args:
        rows: number of rows; `keys`, `plus` and `minus` as in `add_masks`.
        width: numbers of a mask.
        word_bits: bits of a number on the wire; a mask is a number of so many bits, and no sign.
    """
    low, high = np.zeros((2, rows, width), np.int64)
    wide = word_bits > 32
    # In memory a word has 4 bytes up to 32 bits, as in `FixedPoint`, so that streams are the same.
    zeros = bytes(width * (8 if wide else 4))
    stream = bytearray(len(zeros))
    mask = np.frombuffer(stream, "<u8" if wide else "<u4")
    start, most = bytes(4) + NONCE, (1 << word_bits) - 1
    for key, adding, taking in zip(keys.astype("<u4"), plus.tolist(), minus.tolist(), strict=True):
        Cipher(ChaCha20(key.tobytes(), start), mode=None).encryptor().update_into(zeros, stream)
        words = mask & mask.dtype.type(most)
        parts = (words & mask.dtype.type(0xFFFFFFFF)).astype(np.int64)
        upper = (words >> np.uint64(32)).astype(np.int64) if wide else 0
        if adding != NOBODY:
            low[adding] += parts
            high[adding] += upper
        if taking != NOBODY:
            low[taking] -= parts
            high[taking] -= upper
    return low, high


def wrap(seeds: Words, keys: Words) -> Words:
    """Mask seeds under a device's round key, or, applied to that, the seeds again.

    Args:
        seeds: [devices, k, 4] by slot.
        keys: [devices, 8] fresh keys, each used for nothing else.
    """
    words = seeds.shape[1] * seeds.shape[2]
    pads = entropy.blocks(keys, NONCE, -(-words // 16))[:, :words]
    return seeds ^ pads.reshape(seeds.shape)


# Keys of pairs: agreed once per run with X25519, turned by a ratchet with every sum.
#
# A pair (low id, high id) agrees on s_0 = H(X25519; both ids; both public keys). For sum number r
#
#     s_{r+1} = ChaCha20(s_r; 0)                                                       (32 bytes)
#     seed ‖ word up ‖ word down ‖ values up ‖ values down = ChaCha20(k; H_2)
#                   where k = ChaCha20(s_r; H_1)        (32 bytes), and H_1 ‖ H_2 = H(context)
#                                      (16 bytes, 2 · 12, and 2 · 16 numbers of 4 bytes)
#
# The *context* is what the two ends have learnt of earlier sums, as a digest. If the coordinator
# sent them different sums, they share no key of this one: their words do not fit, and neither opens
# it.
#
# `seed` is that of the pair's mask. The *word* of a direction proves that its sender has the
# receiver in the sum (`lumos.secagg.device`). *Values up* are what the low end's holder, the high
# end, holds of its two secrets, and down the other way round (`lumos.secagg.shares`).
#
# Keys follow from the number of the sum, which everybody counts: whoever misses sums turns the
# ratchet further. s_r is forgotten as soon as it is turned: no sum is taken part in twice, and
# whoever seizes a device later cannot compute the masks of earlier sums, unless the device keeps
# the secret of its private key on its disk (`lumos.device.randomness`), so that it can come back
# after a restart. That the public keys are the neighbours' is the transport's guarantee.

KEY = 32
_NO_KEY = bytes(KEY)


def is_public_key(key: bytes) -> bool:
    """Return whether a key is a point of large order: others agree with nobody."""
    try:
        X25519PrivateKey.from_private_bytes(bytes(KEY)).exchange(
            X25519PublicKey.from_public_bytes(key)
        )
    except ValueError:
        return False
    return True


class RoundKeys(NamedTuple):
    """The keys of one sum, a row for each pair."""

    seed: Words
    """[pairs, 4]."""
    word_up: Words
    """[pairs, 3]."""
    word_down: Words
    """[pairs, 3]."""
    values_up: Elements
    """[pairs, 2, limbs] of the low end's self secret and of its pair secret."""
    values_down: Elements
    """[pairs, 2, limbs] of the high end's."""


class PairKeys(InMemoryOnly):
    """The pairs in which hosted devices take part; one that is hosted at both ends exists once.

    Args:
        devices: [hosted] ids.
        neighbours: [hosted, k] their neighbours on the mask graph, by slot.
    """

    def __init__(self, devices: Ints, neighbours: Ints) -> None:
        me = np.broadcast_to(devices[:, None], neighbours.shape)
        lows, highs = np.minimum(me, neighbours), np.maximum(me, neighbours)
        # Ids are below 2^31, so a pair is one key.
        pairs, self._first, of = np.unique(
            (lows << 32) + highs, return_index=True, return_inverse=True
        )
        self.of: Ints = of.reshape(neighbours.shape)
        """[hosted, k] the pair of each slot."""
        self.low: Ints = pairs >> 32
        self.high: Ints = pairs & 0xFFFFFFFF
        self.number = 0
        """Number of the next sum."""
        self._slots = neighbours.shape[1]
        self._own: list[X25519PrivateKey] = []
        self._public: list[bytes] = []
        self._chain = np.empty((0, 8), np.uint32)

    def public_keys(self, private: Sequence[bytes]) -> Bytes:
        """[hosted, 32] the public key of each device, for its neighbours.

        Args:
            private: the private keys, 32 bytes each.
        """
        self._own = [X25519PrivateKey.from_private_bytes(key) for key in private]
        self._public = [own.public_key().public_bytes_raw() for own in self._own]
        return np.frombuffer(b"".join(self._public), np.uint8).reshape(-1, KEY)

    def agree(self, received: Bytes) -> None:
        """Compute all s_0 from the neighbours' keys, and forget the own ones.

        Args:
            received: [hosted, k, 32] zeros where a neighbour sent none. Such a pair has no key, and
                must not be used.
        """
        agreed = []
        for first, low, high in zip(
            self._first.tolist(), self.low.tolist(), self.high.tolist(), strict=True
        ):
            row, slot = divmod(first, self._slots)
            theirs = received[row, slot].tobytes()
            if theirs == _NO_KEY:
                agreed.append(_NO_KEY)
                continue
            try:
                shared = self._own[row].exchange(X25519PublicKey.from_public_bytes(theirs))
            except ValueError:
                raise Forged("a public key is no point of large order") from None
            one, other = sorted([self._public[row], theirs])  # the same order at both ends
            agreed.append(
                blake2b(
                    b"lumos pair %d %d " % (low, high) + one + other,
                    key=shared,
                    digest_size=KEY,
                ).digest()
            )
        self._chain = np.frombuffer(b"".join(agreed), "<u4").astype(np.uint32).reshape(-1, 8)
        self._own = []  # an agreement is made once

    def ratchet(self, context: bytes = b"") -> RoundKeys:
        """The keys of the next sum. What made them is overwritten.

        Args:
            context: what everybody knows of earlier sums.
        """
        # With the nonce of the chain itself the words of a sum would begin with the next key.
        # Two nonces: the coordinator chooses contexts, and finds a collision of 96 bits.
        hashed = blake2b(context, digest_size=2 * len(NONCE), person=b"lumos context").digest()
        first, second = hashed[: len(NONCE)], hashed[len(NONCE) :]
        words = entropy.blocks(entropy.blocks(self._chain, first, 1)[:, :8], second, 3)
        self._turn()
        seed, word_up, word_down, up, down, _ = np.split(words, (4, 7, 10, 26, 42), axis=1)
        shape = (len(words), 2, LIMBS)
        values_up, values_down = elements_of(up).reshape(shape), elements_of(down).reshape(shape)
        return RoundKeys(seed, word_up, word_down, values_up, values_down)

    def skip(self, sums: int) -> None:
        """Turn the ratchet past sums that were missed."""
        for _ in range(sums):
            self._turn()

    def _turn(self) -> None:
        self._chain[:] = entropy.blocks(self._chain, NONCE, 1)[:, :8]
        self.number += 1
