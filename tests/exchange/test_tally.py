"""Counts per row, however they are fed."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lumos.exchange import counts
from lumos.exchange.counts import Tally, each_row


@pytest.mark.parametrize("flush", [3, 1 << 18])
def test_counts_are_those_of_bincount(flush: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "_FLUSH_ROWS", flush)
    rng = np.random.default_rng(0)
    counted, expected = Tally(7), np.zeros(7, np.int64)
    for _ in range(60):
        rows = np.arange(7) if rng.random() < 0.4 else rng.integers(0, 7, rng.integers(0, 12))
        counted.add(rows)
        expected += np.bincount(rows, minlength=7)
        rows[:] = 0  # the caller may reuse its array
        if rng.random() < 0.5:
            assert_array_equal(counted.counts(), expected)
    assert_array_equal(counted.counts(), expected)


def test_every_row_alike_is_one_number() -> None:
    counted = Tally(5)
    assert counted.counts_or_one() == 0
    counted.add(np.arange(5))
    counted.add(np.arange(5))
    assert counted.counts_or_one() == 2
    counted.add(np.array([3]))
    assert_array_equal(np.asarray(counted.counts_or_one()), [2, 2, 2, 3, 2])


def test_only_all_rows_in_their_order_are_each_row() -> None:
    assert each_row(np.arange(4), 4)
    assert each_row(np.arange(0), 0)
    for rows in ([0, 2, 1, 3], [0, 1, 1, 3], [0, 0, 3, 3], [1, 2, 3, 4]):
        assert not each_row(np.array(rows), 4)
