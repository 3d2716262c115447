"""edwards25519: one door that lets no bad point through, with real vectors."""

import pytest
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_is_valid_point,
    crypto_core_ed25519_sub,
    crypto_scalarmult_ed25519_base_noclamp,
)

from lumos.crypto.groups import ED25519, BadPoint, _bare, _minus

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493

# The eight points of small order, in their canonical encodings: order 1, 2, 4, 4, 8, 8, 8, 8.
SMALL_ORDER = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]
TORSION = [bytes.fromhex(point) for point in SMALL_ORDER]
NOT_CANONICAL = [(P + y | sign << 255).to_bytes(32, "little") for y in range(19) for sign in (0, 1)]


def scalar(value: int) -> bytes:
    return (value % ORDER).to_bytes(32, "little")


def off_curve() -> list[bytes]:
    # y is on the curve when (y² − 1)/(d·y² + 1) is a square.
    d = -121665 * pow(121666, -1, P) % P
    found = []
    for y in range(2, 60):
        ratio = (y * y - 1) * pow(d * y * y + 1, -1, P) % P
        if pow(ratio, (P - 1) // 2, P) == P - 1:
            found.append(y.to_bytes(32, "little"))
    return found


def test_the_identity_is_a_difference_like_any_other():
    _, A, _ = ED25519.key()
    minus = ED25519.subtract(ED25519.identity, A, 1)
    assert ED25519.subtract(A, A, 2) == [ED25519.identity, *minus]


def test_the_vectors_are_what_they_claim():
    # Eight times a point of small order is the identity: added three times to itself.
    for point in TORSION:
        for _ in range(3):
            point = crypto_core_ed25519_add(point, point)
        assert point == ED25519.identity
    assert len(set(TORSION)) == 8
    assert len(off_curve()) > 20


@pytest.mark.parametrize("point", TORSION, ids=range(8))
def test_small_order_is_refused(point):
    with pytest.raises(BadPoint):
        ED25519.multiply(scalar(7), point)


@pytest.mark.parametrize("torsion", TORSION[1:], ids=range(1, 8))
def test_mixed_order_is_refused(torsion):
    # A good point plus torsion: on the curve and canonical, but outside the prime-order group.
    for secret in (1, 2, 12345, ORDER - 1):
        good = crypto_scalarmult_ed25519_base_noclamp(scalar(secret))
        mixed = crypto_core_ed25519_add(good, torsion)
        assert crypto_core_ed25519_is_valid_point(good)
        assert not crypto_core_ed25519_is_valid_point(mixed)
        ED25519.multiply(scalar(7), good)
        with pytest.raises(BadPoint):
            ED25519.multiply(scalar(7), mixed)
        # Also where the scalar kills the torsion, and the product would look good.
        with pytest.raises(BadPoint):
            ED25519.multiply(scalar(8), mixed)


@pytest.mark.parametrize("point", off_curve() + NOT_CANONICAL, ids=lambda point: point.hex()[:6])
def test_off_curve_and_not_canonical_are_refused(point):
    with pytest.raises(BadPoint):
        ED25519.multiply(scalar(7), point)


def test_addition_alone_would_not_refuse():
    # Why every received point goes through multiply first.
    _, good = ED25519.pair()
    for point in TORSION + NOT_CANONICAL[:4]:
        ED25519.add(good, point)


def test_bare_additions_are_the_wrapped_ones():
    for _ in range(20):
        (_, left), (_, right) = ED25519.pair(), ED25519.pair()
        assert ED25519.add(left, right) == crypto_core_ed25519_add(left, right)
        assert ED25519.subtract(left, right, 1) == [crypto_core_ed25519_sub(left, right)]


def test_bare_additions_refuse_what_is_no_point():
    _, good = ED25519.pair()
    for bad in (b"", good[:31], good + b"\0", off_curve()[0]):
        for combine in (ED25519.add, _minus):
            with pytest.raises(BadPoint):
                combine(good, bad)
            with pytest.raises(BadPoint):
                combine(bad, good)


def test_without_the_bare_functions_the_wrapped_ones_serve():
    assert _bare("crypto_no_such_function", crypto_core_ed25519_add) is crypto_core_ed25519_add
