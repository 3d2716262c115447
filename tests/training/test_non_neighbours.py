"""Non-neighbours: uniform over those who are no neighbours, the same in any shard."""

import numpy as np
import pytest
from scipy import stats

from lumos import Graph, load
from lumos.device.shard import cut
from lumos.paper.tasks import NonNeighbours


def drawn(graph: Graph, counts: np.ndarray, shards: int = 1, step: int = 0) -> list[list[int]]:
    """By device, the non-neighbours it drew."""
    found: list[list[int]] = [[] for _ in range(graph.devices)]
    for shard in cut(graph, shards, 5):
        rows, peers = NonNeighbours(shard).draw(counts[shard.devices], "test", step)
        assert (np.diff(rows) >= 0).all()
        for device, peer in zip(shard.devices[rows].tolist(), peers.tolist(), strict=True):
            found[device].append(peer)
    return found


def neighbours(graph: Graph, device: int) -> set[int]:
    return set(graph.neighbours[graph.offsets[device] : graph.offsets[device + 1]].tolist())


@pytest.mark.parametrize("shards", [1, 2, 7, 60])
def test_never_oneself_nor_a_neighbour_and_as_many_as_wanted(shards: int, sixty: Graph) -> None:
    counts = np.arange(60) % 19
    found = drawn(sixty, counts, shards)
    for device, mine in enumerate(found):
        assert len(mine) == counts[device]
        assert all(0 <= peer < 60 for peer in mine)
        assert not {*mine} & ({device} | neighbours(sixty, device))
    assert found == drawn(sixty, counts)


def test_uniform_over_the_rest(sixty: Graph) -> None:
    """χ² for each of five devices, the best and the least connected among them; p = 1e-6 in all."""
    order = np.argsort(sixty.degrees)
    wanted = np.zeros(60, np.int64)
    some = order[[0, 1, 30, 58, 59]]
    wanted[some] = 4000
    found = drawn(sixty, wanted)
    for device in some.tolist():
        free = sorted({*range(60)} - {device} - neighbours(sixty, device))
        counts = np.bincount(found[device], minlength=60)[free]
        assert counts.sum() == 4000
        assert stats.chisquare(counts).pvalue > 2e-7


def test_consecutive_draws_are_independent(sixty: Graph) -> None:
    wanted = np.full(60, 2)
    pairs = [drawn(sixty, wanted, step=step) for step in range(80)]
    same = [mine[0] == mine[1] for epoch in pairs for mine in epoch]
    chance = float(np.mean(1 / (59 - sixty.degrees)))
    assert abs(np.mean(same) - chance) < 5 * np.sqrt(chance / len(same))
    assert pairs[0] != pairs[1]


def test_none_where_everybody_is_a_neighbour() -> None:
    star = Graph.from_edges([[0, leaf] for leaf in range(1, 6)])
    found = drawn(star, np.full(6, 3))
    assert found[0] == []
    assert all(len(mine) == 3 for mine in found[1:])
    complete = Graph.from_edges([[0, 1], [0, 2], [1, 2]])
    assert drawn(complete, np.full(3, 2)) == [[], [], []]


def test_the_only_non_neighbour_is_found() -> None:
    edges = [[u, v] for u in range(5) for v in range(u) if (u, v) not in {(4, 0), (3, 2)}]
    found = drawn(Graph.from_edges(edges), np.full(5, 8))
    assert found == [[4] * 8, [], [3] * 8, [2] * 8, [0] * 8]


def test_without_edges_everybody_else_is_a_non_neighbour() -> None:
    empty = Graph.from_edges(np.empty((0, 2), np.int64), devices=4)
    found = drawn(empty, np.full(4, 200))
    assert [set(mine) for mine in found] == [{0, 1, 2, 3} - {device} for device in range(4)]


def test_randomness_of_a_device_do_not_depend_on_how_many_others_want() -> None:
    graph = load("demo:60")
    wanted = np.full(60, 3)
    more = wanted.copy()
    more[7] = 40
    left, right = drawn(graph, wanted), drawn(graph, more)
    assert [mine for device, mine in enumerate(left) if device != 7] == [
        mine for device, mine in enumerate(right) if device != 7
    ]
