"""Ranges side by side, against ranges one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lumos.graph.spans import spans


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=8))
def test_equals_ranges_one_by_one(rows: list[tuple[int, int]]) -> None:
    pairs = np.array(rows, np.int64).reshape(-1, 2)
    expected = [place for start, count in rows for place in range(start, start + count)]
    assert spans(pairs[:, 0], pairs[:, 1]).tolist() == expected
