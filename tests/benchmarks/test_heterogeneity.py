"""The critical path of an epoch, against times that are worked out by hand and by a slow oracle."""

import heapq

import numpy as np
import pytest
from benchmarks.heterogeneity import Devices, Round, critical_path

import lumos

PATH = lumos.Graph.from_indices(np.array([[0, 1], [1, 2]]), np.arange(3))
"""0 – 1 – 2"""


def devices(
    slowness: list[float], delay: float = 0.0, up: float = 0.0, down: float = 0.0
) -> Devices:
    total = len(slowness)
    return Devices(np.array(slowness), *(np.full(total, value) for value in (delay, up, down)))


def test_a_round_between_neighbours_waits_for_neighbours_only() -> None:
    """Device 0 is done at 1; 1 waits for it and for 2, which is done at 5; 0 does not."""
    rounds = [
        Round("neighbours", np.array([1.0, 1.0, 5.0])),
        Round("receives", np.array([9.0, 1.0, 1.0])),
    ]
    assert critical_path(PATH, rounds, devices([1, 1, 1])) == 1 + 9
    rounds[0] = rounds[0]._replace(kind="all")
    assert critical_path(PATH, rounds, devices([1, 1, 1])) == 5 + 9


def test_slow_devices_and_links_count() -> None:
    rounds = [
        Round("receives", np.array([1.0, 2.0, 1.0]), np.array([10.0, 10.0, 30.0])),
        Round("sends", np.zeros(3), 0.0, np.array([10.0, 10.0, 10.0])),
    ]
    links = devices([1, 1, 3], delay=0.5, up=0.1, down=0.01)
    assert critical_path(PATH, rounds, links) == pytest.approx(3 + 0.5 + 3 + 0.5 + 0.1)
    assert critical_path(PATH, rounds, devices([1, 1, 1])) == 2


def by_events(graph: lumos.Graph, rounds: list[Round], speeds: np.ndarray) -> float:
    """The oracle: one device after another goes on, once it has what it waits for."""
    total = graph.devices
    neighbours = [
        set(graph.neighbours[graph.offsets[one] : graph.offsets[one + 1]].tolist())
        for one in range(total)
    ]
    sent: dict[tuple[int, int], float] = {}
    queue, end = [(0.0, one, 0) for one in range(total)], 0.0
    waiting: list[tuple[int, int]] = []
    while queue or waiting:
        for item in [*waiting]:
            one, place = item
            needed = neighbours[one] if rounds[place].kind == "neighbours" else set(range(total))
            if all((other, place) in sent for other in needed):
                waiting.remove(item)
                ready = max([sent[other, place] for other in (*needed, one)])
                heapq.heappush(queue, (ready, one, place + 1))
        now, one, place = heapq.heappop(queue)
        if place == len(rounds):
            end = max(end, now)
            continue
        sent[one, place] = now + float(speeds[one] * rounds[place].work[one])
        waiting.append((one, place))
    return end


@pytest.mark.parametrize("seed", range(5))
def test_the_path_is_that_of_devices_that_go_on_one_by_one(seed: int) -> None:
    randomness = np.random.default_rng(seed)
    graph = lumos.load("demo:12")
    kinds = randomness.choice(["neighbours", "all"], 5)
    rounds = [Round(str(kind), randomness.random(12)) for kind in kinds]
    drawn = Devices.drawn(12, (seed,), slow=True, links=False)
    assert sorted(drawn.slowness)[-2:] == [5.0, 5.0]
    assert critical_path(graph, rounds, drawn) == pytest.approx(
        by_events(graph, rounds, drawn.slowness)
    )
