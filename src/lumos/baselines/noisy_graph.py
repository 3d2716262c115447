"""A graph whose devices flip every entry of their neighbour list, without ever building n × n.

Each entry above the diagonal is flipped with probability q = 1/(e^ε + 1), which is ε-LDP for one
entry of the list. Which pairs are flipped is drawn by the gaps between them (geometric), exactly;
the noisy graph is the symmetric difference of the flips and the edges.
"""

import math

import numpy as np

from lumos.errors import UsageError
from lumos.typing import Ints

LARGEST = 200_000_000
"""Most noisy edges that a server is asked to hold; each takes about 16 bytes."""


def flip_probability(epsilon: float) -> float:
    """q = 1/(e^ε + 1)."""
    return math.exp(-epsilon) / (1 + math.exp(-epsilon))


def noisy_edges(edges: Ints, devices: int, epsilon: float, generator: np.random.Generator) -> Ints:
    """[noisy edges, 2] pairs u < v, ascending: O(noisy edges), whatever n².

    Args:
        edges: [edges, 2] pairs u < v, ascending.
    """
    if math.isinf(epsilon):
        return edges
    possible, chance = devices * (devices - 1) // 2, flip_probability(epsilon)
    expected = possible * chance + len(edges) * (1 - 2 * chance)
    if expected > LARGEST:
        raise UsageError(
            f"`epsilon={epsilon:g}` turns {len(edges):,} edges into about {expected:,.0f}; "
            f"this server holds at most {LARGEST:,}"
        )
    starts = _row_starts(devices)
    true = starts[edges[:, 0]] + edges[:, 1] - edges[:, 0] - 1
    flips = _flips(possible, chance, generator)
    place = np.searchsorted(flips, true)
    inside = np.zeros(len(true), np.bool_)
    within = place < len(flips)
    inside[within] = flips[place[within]] == true[within]
    # A flipped edge is gone; an edge that was not flipped goes where it belongs.
    noisy = np.insert(flips, place[~inside], true[~inside])
    gone = np.searchsorted(noisy, true[inside])
    noisy = np.delete(noisy, gone)
    low = np.searchsorted(starts, noisy, side="right") - 1
    return np.stack([low, noisy - starts[low] + low + 1], axis=1)


def _row_starts(devices: int) -> Ints:
    """[devices] the number of the pair (u, u + 1), counting pairs u < v row by row."""
    u = np.arange(devices, dtype=np.int64)
    return u * (devices - 1) - u * (u - 1) // 2


def _flips(possible: int, chance: float, generator: np.random.Generator) -> Ints:
    """Ascending numbers below `possible`, each there with probability `chance`, independently."""
    parts: list[Ints] = []
    last = -1
    while last < possible:
        mean = (possible - last) * chance
        gaps = generator.geometric(chance, int(mean + 4 * math.sqrt(mean) + 16))
        part = last + np.cumsum(np.minimum(gaps, possible + 1))  # a larger gap says no more
        parts.append(part)
        last = int(part[-1])
    flips = np.concatenate(parts)
    return flips[: np.searchsorted(flips, possible)]
