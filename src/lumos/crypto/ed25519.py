"""The group `ed25519`: libsodium's edwards25519 through PyNaCl, in constant time.

It is the subgroup of prime order L = 2^252 + 27742317777372353535851937790883648493. `multiply`
refuses the identity, points of small or mixed order, points off the curve and encodings that are
not canonical.
"""

from collections.abc import Callable
from importlib import import_module
from itertools import accumulate, islice, repeat

from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_scalar_mul,
    crypto_core_ed25519_scalar_reduce,
    crypto_core_ed25519_sub,
    crypto_scalarmult_ed25519_base_noclamp,
    crypto_scalarmult_ed25519_noclamp,
)

from lumos.crypto import entropy
from lumos.crypto.group import BadPoint

POINT = 32
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

    name = "ed25519"
    point_bytes = POINT
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
