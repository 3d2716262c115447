"""The only source of cryptographic randomness: scalars, nonces, masks, device secrets.

It is the operating system's generator, in simulations too: no seed, argument or setting replaces
it. (Known-answer tests patch `draw`.) A real device that has to come back after a restart expands
32 bytes of it (`Expanded`), which it keeps on its disk, and draws from that `within` its
programs. `InMemoryOnly` is the base class of objects that hold secrets; `blocks` are key streams.
"""

import secrets
from contextvars import ContextVar, Token
from typing import Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from lumos.typing import Words


class InMemoryOnly:
    """Cannot be pickled or copied, and its repr shows no field.

    A second copy of a session, for example one restored after a restart, would use the same pads
    or masks again: the XOR of two tables under one pad, or the difference of two updates under one
    mask, reveals what changed.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("secrets are never written down or copied; open a new session")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


KEY_BYTES = 32
_NONCE = bytes(16)  # each key is expanded in one way


class Expanded(InMemoryOnly):
    """The bytes that a key is expanded to, one after the other: ChaCha20.

    Guarantee: to whoever does not have the key they look like fresh ones. Two of the same key give
    the same bytes, so **whatever is drawn from both must meet the same inputs**.

    Args:
        key: 32 bytes, of which nothing else is made.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        self._stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor()

    def draw(self, count: int) -> bytes:
        """The next `count` bytes."""
        return self._stream.update(bytes(count))


EXPANDED: ContextVar[Expanded | None] = ContextVar("expanded", default=None)


def draw(count: int) -> bytes:
    """`count` fresh bytes from the operating system; or the next ones, `within` an expanded key."""
    expanded = EXPANDED.get()
    return secrets.token_bytes(count) if expanded is None else expanded.draw(count)


def bits(count: int) -> list[int]:
    """`count` fresh uniform bits, each 0 or 1."""
    pool = int.from_bytes(draw((count + 7) // 8), "little")
    return [pool >> position & 1 for position in range(count)]


class Meanwhile:
    """A context in which context variables have other values.

    Programs enter one in every round: a generator would take three times as long.
    """

    __slots__ = ("_tokens", "_values")

    def __init__(self, *values: tuple[ContextVar[Any], Any]) -> None:
        self._values = values
        self._tokens: list[Token[Any]] = []

    def __enter__(self) -> None:
        self._tokens = [variable.set(value) for variable, value in self._values]

    def __exit__(self, *_: object) -> None:
        for (variable, _value), token in zip(self._values, self._tokens, strict=True):
            variable.reset(token)


def within(expanded: Expanded | None) -> Meanwhile:
    """Meanwhile everything is drawn from an expanded key; None: from the operating system."""
    return Meanwhile((EXPANDED, expanded))


# ChaCha20 (RFC 8439) key streams, over many keys at once.
#
# A cipher and not a statistical generator, because the receiver of a release must not be able to
# predict its noise. Requests for many keys are vectorised; for a few keys OpenSSL is faster and
# gives the same bits.

_CONSTANTS = np.frombuffer(b"expand 32-byte k", dtype="<u4").astype(np.uint32)
_FEW_KEYS = 48  # below this OpenSSL, one context per key, beats 460 numpy calls
_COLUMNS = (np.arange(4)[:, None] + np.arange(4)) % 4  # row s: the columns, shifted by s
_BLOCKS = 1 << 14  # at a time: beyond the cache they take three times as long


def blocks(keys: Words, nonce: bytes, count: int) -> Words:
    """The first `count` key-stream blocks of each key.

    Args:
        keys: [keys, 8] 256-bit keys as little-endian words.
        nonce: 12 bytes, the same for all keys.
        count: number of 64-byte blocks for each key.

    Returns:
        [keys, 16 * count] words.
    """
    if len(keys) <= _FEW_KEYS:
        return _few(keys, nonce, count)
    together = max(_FEW_KEYS, _BLOCKS // max(count, 1))
    if len(keys) <= together:
        return _many(keys, nonce, count)
    streams = np.empty((len(keys), 16 * count), np.uint32)
    for start in range(0, len(keys), together):
        streams[start : start + together] = _many(keys[start : start + together], nonce, count)
    return streams


def _many(keys: Words, nonce: bytes, count: int) -> Words:
    states = np.empty((4, 4, len(keys), count), np.uint32)
    states[0] = _CONSTANTS[:, None, None]
    states[1] = keys.T[:4, :, None]
    states[2] = keys.T[4:, :, None]
    states[3, 0] = np.arange(count, dtype=np.uint32)
    states[3, 1:] = np.frombuffer(nonce, dtype="<u4")[:, None, None]
    mixed = states.copy()
    for _ in range(10):
        _quarter_rounds(mixed)
        _turn(mixed, 1)
        _quarter_rounds(mixed)
        _turn(mixed, -1)
    mixed += states
    return mixed.reshape(16, len(keys), count).transpose(1, 2, 0).reshape(len(keys), 16 * count)


class KeyStream:
    """The key streams of one key, by OpenSSL. Reuse it: setting up a key is most of the cost.

    Args:
        key: [8] words.
    """

    def __init__(self, key: Words) -> None:
        cipher = Cipher(ChaCha20(key.astype("<u4").tobytes(), bytes(16)), mode=None)
        self._encryptor = cipher.encryptor()

    def blocks(self, nonce: bytes, count: int) -> bytes:
        """The first `count` blocks of 64 bytes."""
        # OpenSSL takes the 32-bit block counter in front of the nonce.
        self._encryptor.reset_nonce(bytes(4) + nonce)
        return self._encryptor.update(bytes(64 * count))


def _few(keys: Words, nonce: bytes, count: int) -> Words:
    streams = b"".join(KeyStream(key).blocks(nonce, count) for key in keys)
    return np.frombuffer(streams, "<u4").astype(np.uint32).reshape(len(keys), 16 * count)


def _quarter_rounds(state: Words) -> None:
    """Four quarter rounds side by side: rows a, b, c, d of the state, columns in parallel."""
    a, b, c, d = state
    for x, y, z, shift in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x += y
        z ^= x
        low = z >> np.uint32(32 - shift)
        z <<= np.uint32(shift)
        z |= low


def _turn(state: Words, direction: int) -> None:
    """Shift row r by r columns: diagonals become columns, or columns diagonals again."""
    for row in (1, 2, 3):
        state[row] = state[row, _COLUMNS[direction * row % 4]]
