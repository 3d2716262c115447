"""The group `secp256k1`: libsecp256k1 through coincurve. Quick, and meant for simulations.

The curve y² = x³ + 7 over a field of 2^256 - 2^32 - 977 elements has prime order n: every point but
the point at infinity generates the group, and there is no cofactor to clear. Points travel in 33
bytes, the parity of y and x. Parsing refuses what is not on the curve and what is not canonical.

*Timing.* Multiples of G, with the scalar, are computed in constant time. `multiply`, `add` and
`subtract` are not: their time depends on the scalar and on the points. Whoever can measure them
finely, another process of the machine or a peer on a quiet network, may learn bits of a and b, and
with them the digits of a value. In a simulation one process has all secrets anyway. A real device
uses `ed25519`.

*The point at infinity* has no encoding. `identity` stands for it as a summand. It cannot be parsed,
so it is refused where it is received, and an infinite sum is an error:
- R's bG + cA is infinite where b = -ca, for one of n values of b.
- S's aB - vT = a(B - vA) is infinite where B = vA, because n is prime and a is not 0. An honest R
  sends such a B for one of n values of b. A dishonest one knows beforehand that it does, so the
  error tells it nothing about a or x.
"""

from functools import lru_cache
from importlib import import_module
from typing import Any

from coincurve.context import GLOBAL_CONTEXT

from lumos.crypto import entropy
from lumos.crypto.group import BadPoint

POINT = 33
"""Bytes of a point."""
_SCALAR = 32

# The wrapper of coincurve parses and encodes at each operation: a sum takes 14 µs instead of 5.
_secp: Any = import_module("coincurve._libsecp256k1")
_new, _buffer = _secp.ffi.new, _secp.ffi.buffer
_create = _secp.lib.secp256k1_ec_pubkey_create
_combine = _secp.lib.secp256k1_ec_pubkey_combine
_encode = _secp.lib.secp256k1_ec_pubkey_serialize
_STRUCT = _secp.ffi.typeof("secp256k1_pubkey *")
_TWO = _secp.ffi.typeof("secp256k1_pubkey *[2]")
_ENCODED = _secp.ffi.typeof(f"unsigned char[{POINT}]")
_LENGTH = _new("size_t *", POINT)
_COMPRESSED = _secp.lib.SECP256K1_EC_COMPRESSED
_context = GLOBAL_CONTEXT.ctx
_INFINITE = "a sum is the point at infinity, which has no encoding"

# A struct of libsecp256k1 that holds no point makes the library end the process. So structs reach
# it only after a call that filled them, and never as input and output of one call.
_Struct = Any


class _Point(bytes):
    """An encoding together with the struct that it was made from: no sum has to parse it."""

    struct: _Struct


def _point(struct: _Struct) -> _Point:
    encoded = _new(_ENCODED)
    _encode(_context, encoded, _LENGTH, struct, _COMPRESSED)
    point = _Point(_buffer(encoded))
    point.struct = struct
    return point


@lru_cache(maxsize=256)  # R multiplies and adds the same A again and again; it is public
def _parsed(encoded: bytes) -> _Struct:
    """The struct of a received point. It is shared: nobody may write to it."""
    struct = _new(_STRUCT)
    # Of 65 bytes the library would take other encodings.
    if len(encoded) != POINT or not _secp.lib.secp256k1_ec_pubkey_parse(
        _context, struct, encoded, POINT
    ):
        raise BadPoint("a received point is not in the group")
    return struct


def _struct_of(point: bytes) -> _Struct:
    return point.struct if type(point) is _Point else _parsed(point)


def _sum(left: _Struct, right: _Struct) -> _Point:
    total = _new(_STRUCT)
    if not _combine(_context, total, _new(_TWO, (left, right)), 2):
        raise BadPoint(_INFINITE)
    return _point(total)


class Secp256k1:
    """libsecp256k1 through coincurve."""

    name = "secp256k1"
    point_bytes = POINT
    identity = bytes(POINT)

    def key(self) -> tuple[bytes, bytes, bytes]:
        """A fresh scalar a with A = aG and T = aA."""
        a, A = self.pair()
        # T = aA = a²G, a multiple of G: quicker, and in constant time.
        square = _new("unsigned char[32]", a)
        T = _new(_STRUCT)
        if not _secp.lib.secp256k1_ec_seckey_tweak_mul(_context, square, a) or not _create(
            _context, T, square
        ):
            raise BadPoint("a scalar is not in range")  # a² mod n is neither 0 nor n
        return a, A, _point(T)

    def pair(self) -> tuple[bytes, bytes]:
        """A fresh scalar b with bG."""
        struct = _new(_STRUCT)
        while True:
            # Uniform over 1 … n - 1: all else, one of 2^128 draws, is drawn again.
            b = entropy.draw(_SCALAR)
            if _create(_context, struct, b):
                return b, _point(struct)

    def multiply(self, scalar: bytes, point: bytes) -> bytes:
        """The scalar times a received point, which is checked; raises `BadPoint`."""
        if len(scalar) != _SCALAR:
            raise BadPoint("a scalar does not have 32 bytes")
        product = _new(_STRUCT, _struct_of(point)[0])
        if not _secp.lib.secp256k1_ec_pubkey_tweak_mul(_context, product, scalar):
            raise BadPoint("a scalar is not in range")
        return _point(product)

    def add(self, left: bytes, right: bytes) -> bytes:
        """The sum of two points that are known to be good."""
        if right == self.identity:
            # As much work as for any other point: which multiple of A is added is a secret of R.
            _sum(_struct_of(left), _GENERATOR)
            return left
        return _sum(_struct_of(left), _struct_of(right))

    def subtract(self, left: bytes, right: bytes, times: int) -> list[bytes]:
        """Left minus right, minus 2·right, … minus `times`·right, of points known to be good."""
        negated = _new(_STRUCT, _struct_of(right)[0])
        _secp.lib.secp256k1_ec_pubkey_negate(_context, negated)
        summands = _new(_TWO, (_struct_of(left), negated))
        total, spare, encoded = _new(_STRUCT), _new(_STRUCT), _new(_ENCODED)
        differences = []
        for _ in range(times):
            if not _combine(_context, total, summands, 2):
                raise BadPoint(_INFINITE)
            _encode(_context, encoded, _LENGTH, total, _COMPRESSED)
            differences.append(_buffer(encoded)[:])
            summands[0] = total
            total, spare = spare, total
        return differences


_GENERATOR = _parsed(
    bytes.fromhex("0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798")
)

SECP256K1 = Secp256k1()
"""The group, one for all sessions."""
