"""Messages: what is written is read back, and nothing else is accepted."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos.device.randomness import PrivateRandomness, simulated_secrets
from lumos.errors import ProtocolError
from lumos.ldp import EncoderSettings, Messages, Released, joined, parts_for, read, release, write


def some(width: int, receivers: list[int], *, noisy: bool) -> Released:
    encoder = EncoderSettings(epsilon=2.0 if noisy else math.inf, bins=True)
    features = np.random.default_rng(width).random((len(receivers), width), np.float32)
    secrets = simulated_secrets(0, np.arange(len(receivers)))
    return release(features, np.array(receivers), encoder, PrivateRandomness(secrets))


def same(one: Released, other: Released) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("width", "offsets", "codes", "largest", "values")
    )


@given(
    st.integers(1, 90), st.lists(st.integers(0, 30), min_size=1, max_size=4), st.booleans(),
    st.sampled_from([1, 50, 1 << 22]),
)  # fmt: skip
@settings(deadline=None)
def test_what_is_written_is_read(
    width: int, receivers: list[int], noisy: bool, at_once: int
) -> None:
    released = some(width, receivers, noisy=noisy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lumos.ldp.wire._BYTES_AT_ONCE", at_once)
        assert same(read(write(released), width, noisy=noisy), released)


def test_wide_features_have_numbers_of_four_bytes() -> None:
    released = some(70_000, [3000], noisy=True)
    assert same(read(write(released), 70_000, noisy=True), released)


def test_the_bytes_of_one_message_by_hand() -> None:
    released = Released(
        width=20,
        offsets=np.array([0, 1, 4]),
        codes=np.array([19, 0, 23, 17], np.int32),  # element 3 of the second has bit 0
        largest=np.array([3, 3]),
    )
    messages = write(released)
    assert messages.lengths.tolist() == [8 + 2 + 1, 8 + 3 + 1]
    listed = [3, 0, 0, 0, 1, 0, 0, 0, 19, 0, 1]
    mapped = [3, 0, 0, 0, 3, 0, 0, 0, 0b1001, 0, 0b10, 0b101]
    assert messages.data.tolist() == listed + mapped


@pytest.mark.parametrize("part", [1, 7, 4096])
def test_messages_travel_in_parts(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lumos.ldp.wire.PART", part)
    released = some(40, [1, 0, 30, 3], noisy=False)
    messages = write(released)
    parts = [messages.part(number) for number in range(parts_for(40, noisy=False))]
    assert sum(int(lengths.sum()) for _, _, lengths in parts) == len(messages.data)
    assert all(body.shape[1] <= part for _, body, _ in parts)
    whole = joined(parts, released.messages)
    np.testing.assert_array_equal(whole.data, messages.data)
    assert same(read(whole, 40, noisy=False), released)


@pytest.mark.parametrize("noisy", [True, False])
@pytest.mark.parametrize("width", [1, 8, 128, 4714])
def test_the_number_of_parts_is_enough_for_any_message(width: int, noisy: bool) -> None:
    longest = max(write(some(width, [rho], noisy=noisy)).lengths.max() for rho in (1, 2, width))
    assert -(-int(longest) // 4096) <= parts_for(width, noisy=noisy)
    assert parts_for(4714, noisy=True) == 1


def forged(data: list[int]) -> Messages:
    return Messages(offsets=np.array([0, len(data)]), data=np.array(data, np.uint8))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([3, 0, 0, 0], "shorter than its header"),
        ([21, 0, 0, 0, 21, 0, 0, 0], "more elements than there are"),
        ([1, 0, 0, 0, 2, 0, 0, 0, 0b11, 0, 0, 0], "more than the largest bin"),
        ([0, 0, 0, 0, 0, 0, 0, 0], "largest bin is impossible"),
        ([3, 0, 0, 0, 1, 0, 0, 0, 19, 0], "length does not fit"),
        ([3, 0, 0, 0, 1, 0, 0, 0, 20, 0, 0], "does not exist"),
        ([3, 0, 0, 0, 3, 0, 0, 0, 0b11, 0, 0, 0], "bitmap does not fit"),
        ([3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0b10000000, 0], "does not exist"),
    ],
)
def test_forged_messages_are_refused(data: list[int], why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        read(forged(data), 20, noisy=True)


def test_elements_that_do_not_increase_are_refused() -> None:
    data = [2, 0, 0, 0, 2, 0, 0, 0, 5, 0, 5, 0, 0]
    with pytest.raises(ProtocolError, match="do not increase"):
        read(forged(data), 300, noisy=True)


def test_values_that_are_no_numbers_are_refused() -> None:
    released = some(4, [1], noisy=False)
    assert released.values is not None
    released.values[2] = np.nan
    with pytest.raises(ProtocolError, match="finite"):
        read(write(released), 4, noisy=False)


@given(st.binary(min_size=0, max_size=30), st.booleans())
def test_random_bytes_are_read_or_refused(data: bytes, noisy: bool) -> None:
    array: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8)
    message = Messages(offsets=np.array([0, len(array)]), data=array)
    try:
        again = write(read(message, 20, noisy=noisy))
    except ProtocolError:
        return
    assert len(again.data) == len(data)
