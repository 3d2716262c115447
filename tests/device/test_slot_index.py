"""The hash table of slots, against a dictionary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos.device.shard import SlotIndex

KEYS = st.lists(st.integers(0, 2**62), unique=True, max_size=200)


@given(keys=KEYS, others=st.lists(st.integers(0, 2**62), max_size=20))
def test_finds_what_a_dictionary_finds(keys: list[int], others: list[int]) -> None:
    place = {key: number for number, key in enumerate(keys)}
    asked = [*keys, *others]
    found = SlotIndex(np.array(keys, np.int64)).find(np.array(asked, np.int64))
    assert found.tolist() == [place.get(key, -1) for key in asked]


@pytest.mark.parametrize("stride", [1, 22_470, 2**31])
def test_regular_keys_find_room(stride: int) -> None:
    keys = np.arange(5000) * stride
    assert np.array_equal(SlotIndex(keys).find(keys), np.arange(5000))
