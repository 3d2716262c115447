"""Labels: names to numbers and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos.errors import InputError
from lumos.graph.io import ReadOptions
from lumos.graph.labels import encode, encode_array


@given(st.lists(st.none() | st.text("abc12", min_size=1, max_size=2)))
def test_every_label_is_found_again_and_unknown_stays_unknown(names: list[str | None]) -> None:
    labels, classes = encode(names)
    assert [None if index < 0 else classes[index] for index in labels] == names
    assert len(set(classes)) == len(classes)


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_numbers_are_sorted_as_numbers(values: list[int]) -> None:
    _, classes = encode(map(str, values))
    assert classes == tuple(map(str, sorted(set(values))))


def test_text_is_sorted_as_text() -> None:
    assert encode(["b", "10", "9", None])[1] == ("10", "9", "b")


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_an_array_may_have_one_column(shape: tuple[int, ...]) -> None:
    values = np.array([4, -1, 2]).reshape(shape)
    found = encode_array(values, "y", ReadOptions())
    assert found.labels.tolist() == [1, -1, 0]
    assert found.classes == ("2", "4")


def test_truth_values_are_two_classes() -> None:
    found = encode_array(np.array([True, False]), "y", ReadOptions())
    assert (found.labels.tolist(), found.classes) == ([1, 0], ("False", "True"))


def test_columns_of_other_than_zeros_and_ones_are_no_labels() -> None:
    with pytest.raises(InputError, match="columns of zeros and ones"):
        encode_array(np.array([[2, 0]]), "y", ReadOptions(multilabel="first"))
