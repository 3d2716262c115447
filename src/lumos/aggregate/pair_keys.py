"""Keys of pairs: agreed once per run with X25519, turned by a ratchet every round.

A pair (low id, high id) agrees on s_0 = H(X25519; both ids; both public keys). In each round

    seed ‖ up ‖ down ‖ s_{r+1} ‖ word up ‖ word down ‖ flag = ChaCha20(s_r)
                                                          (4 · 32, 2 · 16 and 8 bytes)

`seed` stretches to the pair's mask; `up` and `down` seal the shares that travel from low to high
and from high to low, each key once; whoever says the *word* of its direction proves that it is
that device; `flag` hides objections (`lumos.aggregate.objections`). s_r is forgotten: whoever
seizes a device later cannot compute the masks of earlier rounds. That the public keys are the
neighbours' is the carrier's promise.
"""

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from nacl.bindings import crypto_secretbox, crypto_secretbox_open
from nacl.exceptions import CryptoError

from lumos.aggregate.errors import Forged
from lumos.aggregate.masks import NONCE
from lumos.crypto import chacha, entropy
from lumos.crypto.in_memory import InMemoryOnly
from lumos.typing import Bytes, Ints, Words

KEY = 32
SEAL = 16
WORD = 16
_SEAL_NONCE = bytes(24)  # each sealing key is used once


class RoundKeys(NamedTuple):
    """The keys of one round, [pairs, 8] words each; the words that prove an end are half.

    `flag`, [pairs, 2], is a mask of 64 bits and no key.
    """

    seed: Words
    up: Words
    down: Words
    word_up: Words
    word_down: Words
    flag: Words


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
        self._slots = neighbours.shape[1]
        self._own: list[X25519PrivateKey] = []
        self._public: list[bytes] = []
        self._hosted = len(devices)
        self._chain = np.empty((0, 8), np.uint32)

    def fresh_keys(self) -> Bytes:
        """[hosted, 32] a new public key of each device, for its neighbours."""
        draws = [entropy.draw(KEY) for _ in range(self._hosted)]
        self._own = [X25519PrivateKey.from_private_bytes(drawn) for drawn in draws]
        self._public = [own.public_key().public_bytes_raw() for own in self._own]
        return np.frombuffer(b"".join(self._public), np.uint8).reshape(-1, KEY)

    def agree(self, received: Bytes) -> None:
        """Compute all s_0 from the neighbours' keys, [hosted, k, 32], and forget the own ones."""
        agreed = []
        for first, low, high in zip(
            self._first.tolist(), self.low.tolist(), self.high.tolist(), strict=True
        ):
            row, slot = divmod(first, self._slots)
            theirs = received[row, slot].tobytes()
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

    def ratchet(self) -> RoundKeys:
        """The keys of the next round. What made them is overwritten."""
        words = chacha.blocks(self._chain, NONCE, 3)
        seed, up, down, self._chain[:], word_up, word_down, flag, _ = np.split(
            words, (8, 16, 24, 32, 36, 40, 42), axis=1
        )
        return RoundKeys(seed, up, down, word_up, word_down, flag)


def seal(keys: Words, bodies: Bytes) -> Bytes:
    """[messages, bytes] → [messages, bytes + 16], each under its one-time key."""
    sealed = [
        crypto_secretbox(body.tobytes(), _SEAL_NONCE, key.tobytes())
        for key, body in zip(keys.astype("<u4"), bodies, strict=True)
    ]
    return np.frombuffer(b"".join(sealed), np.uint8).reshape(len(bodies), bodies.shape[1] + SEAL)


def unseal(keys: Words, sealed: Bytes) -> Bytes:
    """[messages, bytes + 16] → [messages, bytes]; `Forged` if one is not what was sealed."""
    try:
        bodies = [
            crypto_secretbox_open(body.tobytes(), _SEAL_NONCE, key.tobytes())
            for key, body in zip(keys.astype("<u4"), sealed, strict=True)
        ]
    except CryptoError:
        raise Forged("a sealed share is not what its sender sealed") from None
    return np.frombuffer(b"".join(bodies), np.uint8).reshape(len(sealed), sealed.shape[1] - SEAL)
