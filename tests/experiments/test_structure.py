"""Figures of trees: their distribution in few points."""

import numpy as np

from lumos.experiments.tree_results import CDF_POINTS, cdf_points


def test_a_distribution_in_few_points() -> None:
    values, counts = np.arange(1000), np.ones(1000, np.int64)
    points = cdf_points(values, counts)
    assert len(points) <= CDF_POINTS
    assert points[0] == [0, 1]
    assert points[-1] == [999, 1000]
    assert [value for value, _ in points[:100]] == list(range(100))
    assert cdf_points(values[:200], counts[:200]) == [[n, n + 1] for n in range(200)]
    assert all(up_to == value + 1 for value, up_to in points)
    assert cdf_points(np.array([3, 8]), np.array([2, 1])) == [[3, 2], [8, 3]]
