"""Algorithms 1, 2 and 3 as printed, in plain Python, and brute force: what the tests compare with.

Nothing here imports the tree constructor. A state is a tuple of frozensets: N_0, N_1, …
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from lumos.graph import Graph

State = tuple[frozenset[int], ...]
Neighbours = list[list[int]]


def graph_of(devices: int, edges: list[tuple[int, int]]) -> Graph:
    return Graph.from_edges(np.array(edges, np.int64).reshape(-1, 2), devices=devices)


def random_graph(devices: int, chance: float, seed: int) -> Graph:
    """Each pair with the given chance, and some devices much better connected than others."""
    randomness = np.random.default_rng(seed)
    weight = randomness.random(devices) ** 2 * 2
    pairs = list(combinations(range(devices), 2))
    return graph_of(
        devices,
        [(u, v) for u, v in pairs if randomness.random() < chance * (weight[u] + weight[v])],
    )


def path(devices: int) -> Graph:
    return graph_of(devices, [(u, u + 1) for u in range(devices - 1)])


def cycle(devices: int) -> Graph:
    return graph_of(devices, [(u, (u + 1) % devices) for u in range(devices)])


def star(devices: int) -> Graph:
    return graph_of(devices, [(0, u) for u in range(1, devices)])


def clique(devices: int) -> Graph:
    return graph_of(devices, list(combinations(range(devices), 2)))


def bipartite(left: int, right: int) -> Graph:
    """Everybody on the left knows everybody on the right."""
    return graph_of(left + right, [(u, left + v) for u in range(left) for v in range(right)])


SHAPES: dict[str, Callable[[], Graph]] = {
    "one device": lambda: graph_of(1, []),
    "no edges": lambda: graph_of(5, []),
    "one edge": lambda: path(2),
    "isolated devices": lambda: graph_of(6, [(1, 2), (2, 4)]),
    "path": lambda: path(9),
    "star": lambda: star(12),
    "clique": lambda: clique(8),
    "bipartite": lambda: bipartite(20, 3),
    "two cliques and a bridge": lambda: graph_of(
        10, [*combinations(range(5), 2), *combinations(range(5, 10), 2), (4, 5)]
    ),
}


@st.composite
def graphs(draw: st.DrawFn, most: int = 9, most_edges: int | None = None) -> Graph:
    """Any simple graph of 1 to `most` devices."""
    devices = draw(st.integers(1, most))
    pairs = list(combinations(range(devices), 2))
    drawn: list[tuple[int, int]] = []
    if pairs:
        drawn = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=most_edges))
    return graph_of(devices, drawn)


def neighbours_of(graph: Graph) -> Neighbours:
    return [
        graph.neighbours[graph.offsets[u] : graph.offsets[u + 1]].tolist()
        for u in range(graph.devices)
    ]


def state_of(graph: Graph, keep: npt.NDArray[np.bool_]) -> State:
    """Flags over the neighbour array as sets."""
    kept = [
        graph.neighbours[a:b][keep[a:b]].tolist()
        for a, b in zip(graph.offsets[:-1], graph.offsets[1:], strict=True)
    ]
    return tuple(frozenset(row) for row in kept)


def algorithm_1(neighbours: Neighbours) -> State:
    """Line 4: u keeps v if round(ln deg(v)) ≥ round(ln deg(u))."""
    degree = [len(row) for row in neighbours]
    return tuple(
        frozenset(v for v in row if round(math.log(degree[v])) >= round(math.log(degree[u])))
        for u, row in enumerate(neighbours)
    )


@dataclass
class Counted:
    """How often the printed Algorithm 3 compares."""

    comparisons: int = 0


def algorithm_3(neighbours: Neighbours, workload: list[int], counted: Counted) -> list[int]:
    """All devices that the printed algorithm may return: every pair compares, nothing is kept.

    Every device asks each of its neighbours, and every candidate each other candidate; one
    comparison serves both ends of a pair. A device without neighbours is no candidate.
    """
    candidates = []
    for u, row in enumerate(neighbours):
        counted.comparisons += sum(u < v for v in row)
        if row and all(workload[v] <= workload[u] for v in row):
            candidates.append(u)
    counted.comparisons += len(candidates) * (len(candidates) - 1) // 2
    return [u for u in candidates if all(workload[v] <= workload[u] for v in candidates)]


def largest_step(kept: int) -> int:
    return max(1, round(math.log(kept)))


def step(state: State, u: int, given: list[int]) -> State:
    """N_u loses `given`; each of them has u in its set afterwards (once)."""
    sets = [set(row) for row in state]
    for v in given:
        sets[u].discard(v)
        sets[v].add(u)
    return tuple(frozenset(row) for row in sets)


def largest(state: State) -> int:
    return max(len(row) for row in state)


def transitions(neighbours: Neighbours, state: State) -> dict[State, float]:
    """One step of Algorithm 2, exactly: every next state and its probability."""
    after: dict[State, float] = {}
    f = largest(state)
    heaviest = algorithm_3(neighbours, [len(row) for row in state], Counted())
    for u in heaviest:
        most = largest_step(len(state[u]))
        for k in range(1, most + 1):
            ways = list(combinations(sorted(state[u]), k))
            for given in ways:
                chance = 1 / len(heaviest) / most / len(ways)
                tried = step(state, u, list(given))
                accept = min(1.0, math.exp(f - largest(tried)))
                after[tried] = after.get(tried, 0.0) + chance * accept
                after[state] = after.get(state, 0.0) + chance * (1 - accept)
    return after


@dataclass
class Chain:
    """A run of Algorithm 2, step by step."""

    states: list[State] = field(default_factory=list)
    """The state before each step, and the last one."""
    accepted: list[bool] = field(default_factory=list)
    counted: Counted = field(default_factory=Counted)

    def history(self) -> list[tuple[int, int]]:
        """(iteration, largest workload) whenever it changed."""
        found: list[tuple[int, int]] = []
        for iteration, state in enumerate(self.states):
            if not found or found[-1][1] != largest(state):
                found.append((iteration, largest(state)))
        return found


@dataclass
class Draws:
    """Where a run of Algorithm 2 takes its randomness from.

    Args:
        choose: an index below its argument: the server "randomly selects one".
        propose: (u, |N_u|, iteration) to (r, k, k places in the sorted N_u).
    """

    choose: Callable[[int], int]
    propose: Callable[[int, int, int], tuple[float, int, list[int]]]


def algorithm_2(neighbours: Neighbours, iterations: int, draws: Draws) -> Chain:
    """The printed algorithm; r decides as Metropolis and Hastings do: accept iff r < e^(f - f')."""
    chain = Chain(states=[algorithm_1(neighbours)])
    for iteration in range(iterations):
        state = chain.states[-1]
        heaviest = algorithm_3(neighbours, [len(row) for row in state], chain.counted)
        if not heaviest:
            break
        u = heaviest[draws.choose(len(heaviest))]
        r, _, places = draws.propose(u, len(state[u]), iteration)
        row = sorted(state[u])
        tried = step(state, u, [row[place] for place in places])
        after = algorithm_3(neighbours, [len(row) for row in tried], chain.counted)
        draws.choose(len(after))  # the server names one of the heaviest to evaluate the step
        accepted = r < math.exp(largest(state) - largest(tried))
        chain.accepted.append(accepted)
        chain.states.append(tried if accepted else state)
    return chain


def assignments(graph: Graph) -> npt.NDArray[np.int64]:
    """[2^edges, devices]: the workloads of every way to give each edge to one of its ends."""
    first, second = graph.edge_list().T
    chosen = (np.arange(2**graph.edges)[:, None] >> np.arange(graph.edges)) & 1
    ends = np.eye(graph.devices, dtype=np.int64)
    workloads: npt.NDArray[np.int64] = (1 - chosen) @ ends[first] + chosen @ ends[second]
    return workloads


def cuts(devices: int) -> Iterator[list[int]]:
    """Every non-empty set of devices."""
    for size in range(1, devices + 1):
        for chosen in combinations(range(devices), size):
            yield list(chosen)
