"""What tests of sessions put in the place of entropy and of the group."""

import hashlib

from lumos.crypto import entropy


class Stream:
    """A repeatable stream of bytes in place of the operating system's."""

    def __init__(self, seed: str) -> None:
        self._seed = seed.encode()
        self._block = 0
        self._pool = b""

    def __call__(self, count: int) -> bytes:
        while len(self._pool) < count:
            label = self._seed + self._block.to_bytes(8, "little")
            self._pool += hashlib.shake_256(label).digest(1 << 16)
            self._block += 1
        drawn, self._pool = self._pool[:count], self._pool[count:]
        return drawn


class Toy:
    """The integers modulo a prime under addition: the right distributions, no hardness.

    It lets statistical tests run many sessions. What they test lies above the group; that
    logarithms are hard in edwards25519 is an assumption no sample can test.
    """

    name = "toy"
    point_bytes = 32
    identity = bytes(32)
    order = 2**255 - 19
    generator = 0x9E3779B97F4A7C15F39CC0605CEDC834

    def _point(self, value: int) -> bytes:
        return (value % self.order).to_bytes(32, "little")

    def _draw(self) -> int:
        return int.from_bytes(entropy.draw(40), "little") % self.order

    def key(self) -> tuple[bytes, bytes, bytes]:
        a = self._draw()
        return self._point(a), self._point(a * self.generator), self._point(a * a * self.generator)

    def pair(self) -> tuple[bytes, bytes]:
        b = self._draw()
        return self._point(b), self._point(b * self.generator)

    def multiply(self, scalar: bytes, point: bytes) -> bytes:
        product = int.from_bytes(scalar, "little") * int.from_bytes(point, "little")
        return self._point(product)

    def add(self, left: bytes, right: bytes) -> bytes:
        return self._point(int.from_bytes(left, "little") + int.from_bytes(right, "little"))

    def subtract(self, left: bytes, right: bytes, times: int) -> list[bytes]:
        whole, part = int.from_bytes(left, "little"), int.from_bytes(right, "little")
        return [self._point(whole - n * part) for n in range(1, times + 1)]
