"""secp256k1: what parsing refuses, and every place where the point at infinity could appear."""

import subprocess
import sys

import pytest
from tests.plain_curve import CURVES

from lumos.crypto import entropy, groups
from lumos.crypto.groups import SECP256K1, BadPoint
from lumos.twoparty.comparison import Receiver, Sender, Spec
from lumos.twoparty.lookup import Lookup, Query, SenderKeys

CURVE = CURVES["secp256k1"]
P, N = CURVE.P, CURVE.order
G = CURVE.encode(CURVE.base)
DIGIT = Query(Lookup((4,), 1), b"\x04\x00", 0)


def scalar(value: int) -> bytes:
    return (value % N).to_bytes(32, "big")


def on_curve(x: int) -> bool:
    return pow(x**3 + 7, (P - 1) // 2, P) in (0, 1)


def off_curve() -> list[bytes]:
    numbers = [x for x in range(60) if not on_curve(x)]
    return [bytes([sign]) + x.to_bytes(32, "big") for x in numbers for sign in (2, 3)]


def not_canonical() -> list[bytes]:
    """x and x + p are one number modulo p; only the smaller one is an encoding."""
    small = [x for x in range(977) if on_curve(x)][:20]
    return [bytes([sign]) + (P + x).to_bytes(32, "big") for x in small for sign in (2, 3)]


def uncompressed(first: int = 4) -> bytes:
    x, y = CURVE.base
    return bytes([first]) + x.to_bytes(32, "big") + y.to_bytes(32, "big")


MALFORMED = {
    "empty": b"",
    "the identity": SECP256K1.identity,
    "infinity as SEC 1 has it": b"\0",
    "infinity, padded": b"\2" + bytes(32),
    "no sign": b"\0" + G[1:],
    "sign of an uncompressed point": b"\4" + G[1:],
    "sign of a hybrid point": b"\6" + G[1:],
    "x without sign": G[1:],
    "short": G[:-1],
    "long": G + b"\0",
    "uncompressed": uncompressed(),
    "hybrid": uncompressed(6),
    "all ones": b"\xff" * 33,
    "x is p": b"\2" + P.to_bytes(32, "big"),
}


@pytest.mark.parametrize("point", MALFORMED.values(), ids=MALFORMED)
def test_malformed_points_are_refused(point):
    _, good = SECP256K1.pair()
    with pytest.raises(BadPoint):
        SECP256K1.multiply(scalar(7), point)
    # Additions parse what they did not compute, too.
    with pytest.raises(BadPoint):
        SECP256K1.add(point, good)
    with pytest.raises(BadPoint):
        SECP256K1.subtract(good, point, 1)
    with pytest.raises(BadPoint):
        SECP256K1.subtract(point, good, 1)


def test_off_curve_and_not_canonical_are_refused():
    assert len(off_curve()) > 40
    for point in off_curve() + not_canonical():
        with pytest.raises(BadPoint):
            SECP256K1.multiply(scalar(7), point)


def test_what_is_on_the_curve_is_in_the_group():
    # There is no cofactor: n times any point is infinity, so (n - 1)·Q = -Q.
    for x in [x for x in range(1, 60) if on_curve(x)][:8]:
        point = b"\2" + x.to_bytes(32, "big")
        assert SECP256K1.multiply(scalar(-1), point) == b"\3" + point[1:]


@pytest.mark.parametrize("bad", [bytes(32), N.to_bytes(32, "big"), b"\xff" * 32, b"", bytes(31)])
def test_scalars_out_of_range_are_refused(bad):
    with pytest.raises(BadPoint):
        SECP256K1.multiply(bad, G)


def test_a_draw_out_of_range_is_drawn_again(monkeypatch):
    drawn = [bytes(32), N.to_bytes(32, "big"), b"\xff" * 32, scalar(5)]
    monkeypatch.setattr(entropy, "draw", lambda count: drawn.pop(0))
    assert SECP256K1.pair() == (scalar(5), CURVE.encode(CURVE.times(5, CURVE.base)))
    assert drawn == []


def test_an_infinite_sum_is_an_error():
    _, A, _ = SECP256K1.key()
    minus = SECP256K1.multiply(scalar(-1), A)
    for call in (
        lambda: SECP256K1.add(A, minus),
        lambda: SECP256K1.subtract(A, A, 1),
        lambda: SECP256K1.subtract(SECP256K1.add(A, A), A, 15),
    ):
        with pytest.raises(BadPoint, match="infinity"):
            call()


@pytest.mark.parametrize("value", range(1, 16))
def test_a_receiver_without_b_learns_nothing(value):
    # B = vA, that is b = 0: one of S's pads would be that of the point at infinity.
    keys = SenderKeys(SECP256K1)
    keys.bind(b"s" * 32)
    B = keys.A
    for _ in range(value - 1):
        B = SECP256K1.add(B, keys.A)
    with pytest.raises(BadPoint, match="infinity"):
        keys.pads(DIGIT, 0, bytes(B))


def test_a_sender_closes_on_such_a_point_whatever_its_value():
    said = set()
    for x in (0, 7, 15):
        sender = Sender(3, 8, group=SECP256K1)
        sender.begin([(Spec(4), x)])
        opening = sender.step() or b""
        with pytest.raises(BadPoint) as caught:
            sender.step(bytes(16) + opening[16:])
        said.add(str(caught.value))
        assert "closed" in repr(sender)
    assert len(said) == 1


@pytest.mark.parametrize("point", MALFORMED.values(), ids=MALFORMED)
def test_parties_refuse_malformed_points(point):
    point = point[:33].ljust(33, b"\0")
    if point == G:
        return
    receiver = Receiver(8, 3, group=SECP256K1)
    receiver.begin([(Spec(4), 5)])
    with pytest.raises(BadPoint):
        receiver.step(bytes(16) + point)
    sender = Sender(3, 8, group=SECP256K1)
    sender.begin([(Spec(4), 5)])
    sender.step()
    with pytest.raises(BadPoint):
        sender.step(bytes(16) + point)


def test_adding_the_identity_takes_a_sum_too(monkeypatch):
    # Whether R's digit is 0 must not show in the number of sums.
    sums = []
    real = groups._sum

    def counted(left, right):
        sums.append(1)
        return real(left, right)

    monkeypatch.setattr(groups, "_sum", counted)
    _, A, _ = SECP256K1.key()
    SECP256K1.add(A, A)
    SECP256K1.add(A, SECP256K1.identity)
    assert len(sums) == 2


def test_parsed_points_are_not_written_to():
    # Structs of received points are shared between calls.
    _, A, _ = SECP256K1.key()
    received, seven = bytes(bytearray(A)), scalar(7)
    first = SECP256K1.multiply(seven, received)
    SECP256K1.subtract(received, received[:1] + G[1:], 1)
    SECP256K1.subtract(G, received, 1)
    assert SECP256K1.multiply(seven, received) == first


def test_the_module_says_nothing_when_it_is_imported():
    code = "import lumos.crypto.groups as g; g.GROUPS['secp256k1'].key()"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
