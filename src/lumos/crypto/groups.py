"""The prime-order groups of the oblivious transfers, behind five methods.

| group | library | point | time depends on secrets |
|---|---|---|---|
| `ed25519` | libsodium through PyNaCl | 32 bytes | no |
| `secp256k1` | libsecp256k1 through coincurve | 33 bytes | yes: for simulations |

Points are bytes of fixed length. `multiply` is the only method that takes a received point, and it
refuses what is not in the group. `add` and `subtract` check next to nothing, so they are given only
points that passed `multiply` or were computed here.
"""

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from itertools import accumulate, islice, repeat
from typing import Any, Protocol

from coincurve.context import GLOBAL_CONTEXT
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_scalar_mul,
    crypto_core_ed25519_scalar_reduce,
    crypto_core_ed25519_sub,
    crypto_scalarmult_ed25519_base_noclamp,
    crypto_scalarmult_ed25519_noclamp,
)

from lumos.crypto import entropy
from lumos.errors import ProtocolError, one_of
from lumos.registry import Registry

AUTO = "auto"
"""The choice that depends on where randomness comes from."""
NO_GROUP = "none"
"""In reports: no point was sent, nor booked."""


class BadPoint(ProtocolError):
    """A received point is not in the group, or its encoding is not canonical."""


class Group(Protocol):
    """A group of prime order with generator G, its elements as bytes of fixed length."""

    name: str
    """As it is registered in `GROUPS`."""
    point_bytes: int
    """Bytes of a point."""
    identity: bytes
    """The neutral element. It is never sent."""

    def key(self) -> tuple[bytes, bytes, bytes]:
        """A fresh scalar a with A = aG and T = aA."""

    def pair(self) -> tuple[bytes, bytes]:
        """A fresh scalar b with bG."""

    def multiply(self, scalar: bytes, point: bytes) -> bytes:
        """The scalar times a received point, which is checked; raises `BadPoint`."""

    def add(self, left: bytes, right: bytes) -> bytes:
        """The sum of two points that are known to be good."""

    def subtract(self, left: bytes, right: bytes, times: int) -> list[bytes]:
        """Left minus right, minus 2·right, … minus `times`·right, of points known to be good."""


GROUPS: Registry[Group] = Registry(
    "group",
    {
        "ed25519": "lumos.crypto.groups:ED25519",
        "secp256k1": "lumos.crypto.groups:SECP256K1",
    },
)
"""The groups by name, imported when they are first asked for."""


def check_group(name: str) -> None:
    """Raise `UsageError` unless `name` is that of a group, or `auto`."""
    one_of("group", name, (AUTO, *GROUPS.names()))


def choose_group(name: str, *, simulated: bool) -> Group:
    """The group of a run.

    Args:
        name: of `GROUPS`; or `auto`: the quick one where devices are simulated, so that all secrets
            are in one process anyway, the one in constant time where devices are real.
        simulated: whether device secrets come from the run seed.
    """
    check_group(name)
    if name == AUTO:
        name = "secp256k1" if simulated else "ed25519"
    return GROUPS[name]


# The group `ed25519`: libsodium's edwards25519 through PyNaCl, in constant time.
#
# It is the subgroup of prime order L = 2^252 + 27742317777372353535851937790883648493. `multiply`
# refuses the identity, points of small or mixed order, points off the curve and encodings that are
# not canonical.

ED25519_POINT = 32
"""Bytes of a point."""

Combine = Callable[[bytes, bytes], bytes]


def _scalar() -> bytes:
    # 512 uniform bits modulo L are uniform to within 2^-259.
    return crypto_core_ed25519_scalar_reduce(entropy.draw(64))


def _bare(name: str, checked: Combine) -> Combine:
    """libsodium's function without PyNaCl's wrapper, or the wrapper where there is no other way.

    A comparison of 8 bits has thirty of these at 16 µs each; the wrapper adds 2 µs to each.
    """
    try:
        sodium = import_module("nacl._sodium")
        function, new, buffer = getattr(sodium.lib, name), sodium.ffi.new, sodium.ffi.buffer
        point = sodium.ffi.typeof(f"unsigned char[{ED25519_POINT}]")
    except (ImportError, AttributeError):
        return checked

    def combine(left: bytes, right: bytes) -> bytes:
        # libsodium reads 32 bytes of each, however many there are.
        if len(left) != ED25519_POINT or len(right) != ED25519_POINT:
            raise BadPoint("a point does not have 32 bytes")
        result = new(point)
        if function(result, left, right) != 0:
            raise BadPoint("a point is not on the curve")
        combined: bytes = buffer(result)[:]
        return combined

    return combine


class Ed25519:
    """libsodium's edwards25519 through PyNaCl."""

    name = "ed25519"
    point_bytes = ED25519_POINT
    identity = b"\x01" + bytes(31)

    def key(self) -> tuple[bytes, bytes, bytes]:
        """A fresh scalar a with A = aG and T = aA."""
        a = _scalar()
        # T = aA = a²G: the fixed-base multiplication costs a fifth of the general one.
        square = crypto_core_ed25519_scalar_mul(a, a)
        return (
            a,
            crypto_scalarmult_ed25519_base_noclamp(a),
            crypto_scalarmult_ed25519_base_noclamp(square),
        )

    def pair(self) -> tuple[bytes, bytes]:
        """A fresh scalar b with bG."""
        b = _scalar()
        return b, crypto_scalarmult_ed25519_base_noclamp(b)

    def multiply(self, scalar: bytes, point: bytes) -> bytes:
        """The scalar times a received point, which is checked; raises `BadPoint`."""
        try:
            return crypto_scalarmult_ed25519_noclamp(scalar, point)
        except RuntimeError:
            raise BadPoint("a received point is not in the group") from None

    add = staticmethod(_bare("crypto_core_ed25519_add", crypto_core_ed25519_add))

    def subtract(self, left: bytes, right: bytes, times: int) -> list[bytes]:
        """Left minus right, minus 2·right, … minus `times`·right, of points known to be good."""
        return list(islice(accumulate(repeat(right, times), _minus, initial=left), 1, None))


_minus = _bare("crypto_core_ed25519_sub", crypto_core_ed25519_sub)


ED25519 = Ed25519()
"""The group, one for all sessions: it has no state."""


# The group `secp256k1`: libsecp256k1 through coincurve. Quick, and meant for simulations.
#
# The curve y² = x³ + 7 over a field of 2^256 - 2^32 - 977 elements has prime order n: every point
# but the point at infinity generates the group, and there is no cofactor to clear. Points travel in
# 33 bytes, the parity of y and x. Parsing refuses what is not on the curve and what is not
# canonical.
#
# *Timing.* Multiples of G, with the scalar, are computed in constant time. `multiply`, `add` and
# `subtract` are not: their time depends on the scalar and on the points. Whoever can measure them
# finely, another process of the machine or a peer on a quiet network, may learn bits of a and b,
# and with them the digits of a value. In a simulation one process has all secrets anyway. A real
# device uses `ed25519`.
#
# *The point at infinity* has no encoding. `identity` stands for it as a summand. It cannot be
# parsed, so it is refused where it is received, and an infinite sum is an error:
# - R's bG + cA is infinite where b = -ca, for one of n values of b.
# - S's aB - vT = a(B - vA) is infinite where B = vA, because n is prime and a is not 0. An honest R
#   sends such a B for one of n values of b. A dishonest one knows beforehand that it does, so the
#   error tells it nothing about a or x.

SECP256K1_POINT = 33
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
_ENCODED = _secp.ffi.typeof(f"unsigned char[{SECP256K1_POINT}]")
_LENGTH = _new("size_t *", SECP256K1_POINT)
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
    if len(encoded) != SECP256K1_POINT or not _secp.lib.secp256k1_ec_pubkey_parse(
        _context, struct, encoded, SECP256K1_POINT
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
    point_bytes = SECP256K1_POINT
    identity = bytes(SECP256K1_POINT)

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
