"""Ids and their indices, against a dictionary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos.errors import InputError
from lumos.graph import Graph
from lumos.graph.arrays import MAX_ID, lookup, shown, unique_ids

distinct_ids = st.lists(st.integers(0, 40), unique=True, min_size=1)


@given(distinct_ids, st.lists(st.integers(-3, 45)))
def test_lookup_of_integers_is_a_dictionary(ids: list[int], wanted: list[int]) -> None:
    oracle = {name: index for index, name in enumerate(ids)}
    found = lookup(np.array(wanted, dtype=np.int64), np.array(ids, dtype=np.int64))
    assert found.tolist() == [oracle.get(name, -1) for name in wanted]


@given(st.integers(1, 20), st.lists(st.integers(-3, 25)))
def test_lookup_among_consecutive_ids(count: int, wanted: list[int]) -> None:
    found = lookup(np.array(wanted, dtype=np.int64), np.arange(count))
    assert found.tolist() == [name if 0 <= name < count else -1 for name in wanted]


@given(st.lists(st.text(max_size=3), unique=True, min_size=1), st.lists(st.text(max_size=3)))
def test_lookup_of_text_is_a_dictionary(ids: list[str], wanted: list[str]) -> None:
    oracle = {name: index for index, name in enumerate(ids)}
    # An object array, for NumPy's own text drops trailing NUL characters.
    found = lookup(np.array(wanted, dtype=object), tuple(ids))
    assert found.tolist() == [oracle.get(name, -1) for name in wanted]


def test_text_is_not_found_among_integers() -> None:
    assert lookup(np.array(["1"]), np.array([1])).tolist() == [-1]
    assert lookup(np.array([1]), np.array([], dtype=np.int64)).tolist() == [-1]


def test_ids_keep_their_order() -> None:
    assert unique_ids([3, 1, 2]).tolist() == [3, 1, 2]  # type: ignore[union-attr]
    assert unique_ids(["b", "a"]) == ("b", "a")


@given(st.text() | st.integers() | st.binary())
def test_what_is_shown_fits_into_a_line(value: object) -> None:
    text = shown(value)
    assert len(text) <= 60
    assert "\n" not in text


def test_an_id_is_not_as_long_as_a_book() -> None:
    """Ids are kept at the length of the longest: one device made files of gigabytes for all."""
    edges = [["a", "b" * MAX_ID]]
    assert Graph.from_edges(edges).devices == 2
    with pytest.raises(InputError, match="one has 1,001 characters"):
        Graph.from_edges([["a", "b" * (MAX_ID + 1)]])
