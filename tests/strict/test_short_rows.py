"""Sums and maxima of short rows: NumPy's, bit by bit."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lumos.strict.features import row_maxima, row_sums


@pytest.mark.parametrize("columns", range(1, 12))
@pytest.mark.parametrize("rows", [0, 1, 500])
def test_sums_and_maxima_are_numpys(rows: int, columns: int) -> None:
    rng = np.random.default_rng(columns)
    values = rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-9, 9, (rows, columns))
    assert_array_equal(row_sums(values), values.sum(axis=1))
    assert_array_equal(row_maxima(values), values.max(axis=1))


def test_no_columns_add_up_to_nothing() -> None:
    assert_array_equal(row_sums(np.empty((3, 0))), np.zeros(3))
