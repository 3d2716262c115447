"""Arcs that go through files come out as the neighbour lists of the whole graph."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from lumos.graph.arrays import neighbour_lists
from lumos.graph.parts.part_source import ArcBuckets, lists_of


@pytest.mark.parametrize("bounds", [[0, 50], [0, 1, 2, 30, 50], [*range(51)]])
def test_neighbour_lists_in_parts(bounds: list[int], tmp_path: Path) -> None:
    pairs = np.random.default_rng(0).integers(0, 50, (400, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    arcs = ArcBuckets(tmp_path, "arcs", np.array(bounds))
    for some in np.array_split(pairs, 5):
        arcs.add(some[:, 0], some[:, 1])
        arcs.add(some[:, 1], some[:, 0])
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in tmp_path.iterdir())
    whole = neighbour_lists(pairs, 50)
    for number, (low, high) in enumerate(pairwise(bounds)):
        offsets, neighbours = lists_of(arcs.take(number), high - low, 50)
        np.testing.assert_array_equal(offsets, whole.offsets[low : high + 1] - whole.offsets[low])
        inside = slice(whole.offsets[low], whole.offsets[high])
        np.testing.assert_array_equal(neighbours, whole.neighbours[inside])
    assert not [*tmp_path.iterdir()]
