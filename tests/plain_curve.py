"""edwards25519, secp256k1 and CRC-8 in plain integers, sharing no code with the protocols."""

from typing import Any


class Curve:
    """A curve with a base point of prime order."""

    P: int
    order: int
    base: Any
    zero: Any

    def plus(self, left, right):
        raise NotImplementedError

    def encode(self, point):
        raise NotImplementedError

    def scalar(self, draw):
        """As the group of that name draws it."""
        raise NotImplementedError

    def times(self, scalar, point):
        total = self.zero
        while scalar:
            if scalar & 1:
                total = self.plus(total, point)
            point = self.plus(point, point)
            scalar >>= 1
        return total


class Edwards25519(Curve):
    """-x² + y² = 1 + dx²y² modulo 2^255 - 19."""

    P = 2**255 - 19
    D = -121665 * pow(121666, -1, P) % P
    order = 2**252 + 27742317777372353535851937790883648493
    zero = (0, 1)

    def __init__(self):
        y = 4 * pow(5, -1, self.P) % self.P
        self.base = (self.recover(y), y)

    def recover(self, y):
        P = self.P
        ratio = (y * y - 1) * pow(self.D * y * y + 1, -1, P) % P
        x = pow(ratio, (P + 3) // 8, P)
        if (x * x - ratio) % P:
            x = x * pow(2, (P - 1) // 4, P) % P
        return x if x % 2 == 0 else P - x

    def plus(self, left, right):
        (x1, y1), (x2, y2), P = left, right, self.P
        both = self.D * x1 * x2 * y1 * y2 % P
        x = (x1 * y2 + x2 * y1) * pow(1 + both, -1, P) % P
        return x, (y1 * y2 + x1 * x2) * pow(1 - both, -1, P) % P

    def encode(self, point):
        return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")

    def scalar(self, draw):
        return int.from_bytes(draw(64), "little") % self.order


class Secp256k1(Curve):
    """y² = x³ + 7 modulo 2^256 - 2^32 - 977 (SEC 2, version 2, section 2.4.1)."""

    P = 2**256 - 2**32 - 977
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    base = (
        0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
        0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
    )
    zero = None  # the point at infinity

    def plus(self, left, right):
        if left is None or right is None:
            return left or right
        (x1, y1), (x2, y2), P = left, right, self.P
        if x1 == x2 and (y1 + y2) % P == 0:
            return None
        if left == right:
            slope = 3 * x1 * x1 * pow(2 * y1, -1, P)
        else:
            slope = (y2 - y1) * pow(x2 - x1, -1, P)
        x = (slope * slope - x1 - x2) % P
        return x, (slope * (x1 - x) - y1) % P

    def encode(self, point):
        return bytes([2 + point[1] % 2]) + point[0].to_bytes(32, "big")

    def scalar(self, draw):
        drawn = int.from_bytes(draw(32), "big")
        assert 0 < drawn < self.order
        return drawn


CURVES: dict[str, Curve] = {"ed25519": Edwards25519(), "secp256k1": Secp256k1()}
"""By the name of their group in `lumos.crypto.groups.GROUPS`."""


def crc(data):
    state = 0
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state << 1 ^ 0x107 if state & 0x80 else state << 1) & 0xFF
    return state
