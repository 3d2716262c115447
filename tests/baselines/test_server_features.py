"""Features of a server: of one scale, as a server that sees them all would have them."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.strict.test_feature_scaling import communities

import lumos
from lumos.baselines.network import server_rows


def test_features_between_bounds_stay_as_they_are() -> None:
    for rows in (np.eye(3), -np.eye(3) / 2, np.tanh(np.arange(6.0)).reshape(2, 3)):
        made = np.asarray(server_rows(rows.astype(np.float32), unit=False))
        assert np.array_equal(made, rows.astype(np.float32))


def test_other_columns_get_mean_0_and_deviation_1() -> None:
    rows = np.random.default_rng(0).normal([5, -300, 0], [2, 40, 0.01], (500, 3))
    rows = np.column_stack([rows, np.full(500, 7.0)])
    made: Any = server_rows(rows.astype(np.float32), unit=False)
    assert np.allclose(made.mean(axis=0), 0, atol=1e-3)
    assert np.allclose(made.std(axis=0), [1, 1, 1, 0], atol=1e-3)


def test_zeros_of_sparse_features_stay_zero() -> None:
    rows = np.array([[0, 1000.0], [3, 0], [0, 0]])
    made: Any = server_rows(csr_array(rows.astype(np.float32)), unit=False)
    assert np.array_equal(made.toarray() != 0, rows != 0)
    assert np.allclose((made.toarray() ** 2).mean(axis=0), 1)


@pytest.mark.parametrize("system", ["own", "centralized"])
def test_a_large_column_does_not_ruin_the_comparison(system: str) -> None:
    graph = communities("one column in the thousands", devices=300)
    measured = lumos.baseline(graph, system=system, epochs=100)
    assert measured.metrics["test_accuracy"] > 0.9
