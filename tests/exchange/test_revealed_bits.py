"""What answers reveal: counted by the number of possible ones, at neighbours and non-neighbours."""

import math

import numpy as np
import pytest

from lumos.device import cut
from lumos.exchange.counts import ANSWER_BITS, AnswerCounts
from lumos.graph import Graph


def path_of_three() -> AnswerCounts:
    graph = Graph.from_edges(np.array([[0, 1], [1, 2]]), devices=3)
    return AnswerCounts(cut(graph, 1, seed=0)[0])


def test_an_answer_reveals_the_logarithm_of_the_possible_ones() -> None:
    assert {ways: math.log2(ways) for ways in range(2, 9)} == ANSWER_BITS


def test_every_number_of_ways_is_counted() -> None:
    """Devices 0 and 1 are neighbours (slots 0 and 1), 0 and 2 non-neighbours."""
    counts = path_of_three()
    for ways in range(8, 1, -1):
        counts.add(np.array([0, 1]), np.array([0, 1]), ways)
    counts.add_non_neighbours(np.array([0, 2]), np.array([2, 0]), 5)
    total = math.log2(math.factorial(8))
    assert counts.totals() == {**dict.fromkeys(range(2, 9), 2), 5: 4}
    assert np.allclose(counts.device_bits(), [total + math.log2(5), total, math.log2(5)])
    ends, bits = counts.pairs()
    assert dict(zip(map(tuple, ends.tolist()), bits.tolist(), strict=True)) == pytest.approx(
        {(0, 1): total, (0, 2): math.log2(5)}
    )
    of_pairs = counts.pair_bits(np.array([0, 0, 1]), np.array([0, -1, 2]), np.array([1, 2, 2]))
    assert of_pairs.tolist() == pytest.approx([total, math.log2(5), 0.0])


def test_nothing_was_counted_yet() -> None:
    counts = path_of_three()
    ends, bits = counts.pairs()
    assert (ends.shape, bits.shape) == ((0, 2), (0,))
    assert counts.totals() == {}
    assert counts.device_bits().tolist() == [0, 0, 0]


@pytest.mark.parametrize("ways", [1, 9])
def test_answers_of_other_numbers_of_ways_are_refused(ways: int) -> None:
    with pytest.raises(ValueError, match="one of 2 to 8"):
        path_of_three().add(np.array([0]), np.array([0]), ways)
