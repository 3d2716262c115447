"""The prime-order group of the oblivious transfers, behind five methods.

`Ed25519` is the subgroup of prime order L = 2^252 + 27742317777372353535851937790883648493 of
edwards25519, as libsodium computes it. `multiply` is the only method that takes a received point:
it refuses the identity, points of small or mixed order, points off the curve and encodings that
are not canonical. `add` and `subtract` check next to nothing, so they are given only points that
passed `multiply` or were computed here.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_scalar_mul,
    crypto_core_ed25519_scalar_reduce,
    crypto_core_ed25519_sub,
    crypto_scalarmult_ed25519_base_noclamp,
    crypto_scalarmult_ed25519_noclamp,
)

from lumos.crypto import entropy
from lumos.errors import ProtocolError

POINT = 32
"""Bytes of a point."""

Combine = Callable[[bytes, bytes], bytes]


class BadPoint(ProtocolError):
    """A received point is off the curve, of small or mixed order, or not canonical."""


class Group(Protocol):
    """A group of prime order with generator G, its elements as bytes of fixed length."""

    identity: bytes

    def key(self) -> tuple[bytes, bytes, bytes]:
        """A fresh scalar a with A = aG and T = aA."""

    def pair(self) -> tuple[bytes, bytes]:
        """A fresh scalar b with bG."""

    def multiply(self, scalar: bytes, point: bytes) -> bytes:
        """The scalar times a received point, which is checked; raises `BadPoint`."""

    def add(self, left: bytes, right: bytes) -> bytes:
        """The sum of two points that are known to be good."""

    def subtract(self, left: bytes, right: bytes) -> bytes:
        """The difference of two points that are known to be good."""


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
        point = sodium.ffi.typeof(f"unsigned char[{POINT}]")
    except (ImportError, AttributeError):
        return checked

    def combine(left: bytes, right: bytes) -> bytes:
        # libsodium reads 32 bytes of each, however many there are.
        if len(left) != POINT or len(right) != POINT:
            raise BadPoint("a point does not have 32 bytes")
        result = new(point)
        if function(result, left, right) != 0:
            raise BadPoint("a point is not on the curve")
        combined: bytes = buffer(result)[:]
        return combined

    return combine


class Ed25519:
    """libsodium's edwards25519 through PyNaCl."""

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
    subtract = staticmethod(_bare("crypto_core_ed25519_sub", crypto_core_ed25519_sub))


ED25519 = Ed25519()
