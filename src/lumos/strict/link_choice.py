"""The choice between candidate scores of links, from noisy histograms of validation pairs."""

from collections.abc import Mapping

import numpy as np

from lumos.strict.link_schedule import BINS, CANDIDATES
from lumos.typing import Doubles, Flags, Ints

REACH = 12.0
"""Scores are binned between -REACH and REACH."""


def histograms(scores: Mapping[str, Doubles], rows: Ints, edge: Flags, hosted: int) -> Doubles:
    """[hosted, candidates, 2, bins] each device's validation pairs by range of score.

    Args:
        scores: [pairs] by each candidate.
        rows: [pairs] position of the asker.
        edge: [pairs] whether the pair is an edge.
    """
    counts = np.zeros((hosted, len(CANDIDATES), 2, BINS))
    for number, name in enumerate(CANDIDATES):
        counts[rows, number, edge.astype(np.int64), ranges(scores[name], BINS)] = 1
    return counts


def choose(counts: Doubles, noise: float = 0.0) -> int:
    """The best candidate, if its AUC beats that of own features by more than one standard error.

    Args:
        counts: [candidates, 2, bins] validation pairs by range of score: strangers, then edges.
        noise: standard deviation of the noise in each count.
    """
    areas = [auc_of_ranges(edges, strangers, noise) for strangers, edges in counts]
    best = int(np.argmax([area for area, _ in areas]))
    return best if areas[best][0] - areas[0][0] > areas[best][1] else 0


def ranges(scores: Doubles, bins: int) -> Ints:
    """[pairs] index of the score's range, of `bins` equal ones; the first and last are open."""
    place = np.floor((scores + REACH) / (2 * REACH) * bins).astype(np.int64)
    return np.clip(place, 0, bins - 1)


def auc_of_ranges(edges: Doubles, strangers: Doubles, noise: float) -> tuple[float, float]:
    """AUC from noisy counts of scores by range, and its standard error.

    The error has two parts: of a finite sample of pairs (Hanley and McNeil 1982), and of noise of
    standard deviation `noise` in every count.
    """
    edges, strangers = np.maximum(edges, 0), np.maximum(strangers, 0)
    many, others = edges.sum(), strangers.sum()
    if many < 1 or others < 1:
        return 0.5, 1.0
    below = (np.cumsum(strangers) - strangers / 2) / others
    above = (edges[::-1].cumsum()[::-1] - edges / 2) / many
    area = float(edges @ below / many)
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    sampling = area * (1 - area) + (many - 1) * (q1 - area**2) + (others - 1) * (q2 - area**2)
    noisy = ((below - area) ** 2).sum() / many**2 + ((above - area) ** 2).sum() / others**2
    return area, float(np.sqrt(max(sampling, 0) / (many * others) + noise**2 * noisy))
