"""Both groups behind the same five methods, against the curve in plain integers; and the choice."""

import pytest
from tests.plain_curve import CURVES

from lumos.crypto import entropy
from lumos.crypto.groups import ED25519, GROUPS, SECP256K1, Group, check_group, choose_group
from lumos.errors import UsageError


@pytest.fixture(params=GROUPS.names())
def group(request: pytest.FixtureRequest) -> Group:
    return GROUPS[request.param]


@pytest.fixture
def known(monkeypatch, stream):
    """The same entropy for the group and for a second reader."""
    monkeypatch.setattr(entropy, "draw", stream("lumos known answers"))
    return stream("lumos known answers")


def test_the_five_methods_agree_with_the_group(group):
    a, A, T = group.key()
    b, bG = group.pair()
    assert group.multiply(a, A) == T
    assert group.multiply(a, bG) == group.multiply(b, A)
    assert group.subtract(group.add(A, bG), bG, 1) == [A]
    assert group.add(A, group.identity) == A
    double = group.add(A, A)
    assert group.subtract(group.add(double, A), A, 2) == [double, A]
    assert group.subtract(T, A, 0) == []


def test_all_methods_against_plain_integers(group, known):
    curve = CURVES[group.name]
    plus, times, encode = curve.plus, curve.times, curve.encode
    for _ in range(3):
        a, A, T = group.key()
        b, B = group.pair()
        numbers = [curve.scalar(known) for _ in range(2)]
        written = [scalar[::-1] if group is ED25519 else scalar for scalar in (a, b)]
        assert [int.from_bytes(scalar, "big") for scalar in written] == numbers
        plain_A, plain_B = (times(number, curve.base) for number in numbers)
        plain_T = times(numbers[0], plain_A)
        assert (encode(plain_A), encode(plain_B), encode(plain_T)) == (A, B, T)
        assert group.multiply(a, B) == encode(times(numbers[0], plain_B))
        assert group.add(A, B) == encode(plus(plain_A, plain_B))
        assert group.add(A, A) == encode(plus(plain_A, plain_A))
        listed = [plus(plain_B, times(curve.order - n, plain_T)) for n in range(1, 16)]
        assert group.subtract(B, T, 15) == [encode(point) for point in listed]


def test_received_bytes_are_as_good_as_computed_points(group):
    # A group may keep more than the bytes of points that it computed itself.
    a, A, T = group.key()
    _, B = group.pair()
    copies = [bytes(bytearray(point)) for point in (A, B, T)]
    assert [type(copy) for copy in copies] == [bytes] * 3
    assert group.multiply(a, copies[1]) == group.multiply(a, B)
    assert group.add(copies[0], copies[1]) == group.add(A, B)
    assert group.subtract(copies[1], copies[2], 3) == group.subtract(B, T, 3)


def test_points_have_the_declared_size(group):
    a, A, T = group.key()
    _, B = group.pair()
    computed = [A, T, B, group.multiply(a, B), group.add(A, B), *group.subtract(B, A, 3)]
    assert {len(point) for point in [*computed, group.identity]} == {group.point_bytes}
    assert GROUPS[group.name] is group


def test_keys_are_fresh(group):
    assert len({group.key() for _ in range(20)} | {group.pair() for _ in range(20)}) == 40


def test_simulations_take_the_quick_group_and_devices_the_one_in_constant_time():
    assert choose_group("auto", simulated=True) is SECP256K1
    assert choose_group("auto", simulated=False) is ED25519
    for name in GROUPS:
        for simulated in (True, False):
            assert choose_group(name, simulated=simulated).name == name


@pytest.mark.parametrize("name", ["", "ristretto", "Ed25519", "none", "p256"])
def test_a_wrong_name_lists_the_right_ones(name):
    for use in (check_group, lambda name: choose_group(name, simulated=True)):
        with pytest.raises(UsageError, match="auto, ed25519") as caught:
            use(name)
        assert "secp256k1" in str(caught.value)
