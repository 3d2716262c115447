"""All of it is the operating system's, and bits are its bytes."""

import secrets
from collections.abc import Callable

import pytest

from lumos.crypto import entropy


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Byte counts that were asked of the operating system."""
    counts: list[int] = []
    system: Callable[[int], bytes] = secrets.token_bytes

    def counting(count: int) -> bytes:
        counts.append(count)
        return system(count)

    monkeypatch.setattr("lumos.crypto.entropy.secrets.token_bytes", counting)
    return counts


def test_bytes_are_the_operating_systems(requests: list[int]) -> None:
    assert len(entropy.draw(33)) == 33
    assert requests == [33]


@pytest.mark.parametrize(("count", "needed"), [(0, 0), (1, 1), (8, 1), (9, 2), (64, 8)])
def test_bits_need_no_more_bytes_than_they_fill(
    requests: list[int], count: int, needed: int
) -> None:
    bits = entropy.bits(count)
    assert len(bits) == count
    assert set(bits) <= {0, 1}
    assert requests == [needed]


def test_bits_are_the_bits_of_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropy, "draw", lambda count: bytes([0b10110001, 0b00000010])[:count])
    assert entropy.bits(10) == [1, 0, 0, 0, 1, 1, 0, 1, 0, 1]


def test_fresh_each_time() -> None:
    assert len({entropy.draw(16) for _ in range(50)}) == 50
