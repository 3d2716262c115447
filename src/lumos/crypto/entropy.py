"""The only source of cryptographic randomness: scalars, nonces, masks, device secrets.

It is the operating system's generator, in simulations too: no seed, argument or setting replaces
it. (Known-answer tests patch `draw`.) A real device that has to come back after a restart expands
32 bytes of it (`Expanded`), which it keeps on its disk, and draws from that `within` its programs.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from lumos.crypto.in_memory import InMemoryOnly

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


_EXPANDED: ContextVar[Expanded | None] = ContextVar("expanded", default=None)


def draw(count: int) -> bytes:
    """`count` fresh bytes from the operating system; or the next ones, `within` an expanded key."""
    expanded = _EXPANDED.get()
    return secrets.token_bytes(count) if expanded is None else expanded.draw(count)


def bits(count: int) -> list[int]:
    """`count` fresh uniform bits, each 0 or 1."""
    pool = int.from_bytes(draw((count + 7) // 8), "little")
    return [pool >> position & 1 for position in range(count)]


@contextmanager
def within(expanded: Expanded) -> Iterator[None]:
    """Meanwhile everything is drawn from an expanded key."""
    token = _EXPANDED.set(expanded)
    try:
        yield
    finally:
        _EXPANDED.reset(token)
