"""Linear readers that attackers fit on the devices whose truth they know, to judge the others."""

import numpy as np

from lumos.typing import Doubles, Flags

DECAY = 1e-2
"""Ridge, for standardised columns."""


def ridge_scores(columns: Doubles, wanted: Doubles, known: Flags) -> Doubles:
    """[others, targets] least squares with an intercept, fitted on the known rows.

    Args:
        columns: [cases, …] what attackers see.
        wanted: [cases, targets] the truth; that of others is not read.
        known: [cases] whose truth they know.
    """
    mean, spread = columns[known].mean(axis=0), columns[known].std(axis=0)
    ready = np.where(spread > 0, (columns - mean) / np.where(spread > 0, spread, 1), 0.0)
    middle = wanted[known].mean(axis=0)
    square = ready[known].T @ ready[known] / max(1, known.sum())
    along = ready[known].T @ (wanted[known] - middle) / max(1, known.sum())
    weights = np.linalg.solve(square + DECAY * np.eye(len(square)), along)
    scores: Doubles = ready[~known] @ weights + middle
    return scores
