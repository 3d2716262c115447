"""Rows of a table of guarantees, and what (ε, δ) and μ mean as probabilities.

A row is a plain dict, as in JSON. `about` names the relation between the two cases that an attacker
tries to tell apart. Further keys are the numbers in `NUMBERS`; all others are columns of text.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from scipy.special import ndtr

NO_GUARANTEE = "no guarantee"
"""Beginning of a cell that guarantees nothing."""

LABEL_REPLACED = "label replaced"
FEATURES_REPLACED = "features replaced"
RECORD_REPLACED = "record replaced"
CONTRIBUTION_ZEROED = "contribution to the sums zeroed"
DEVICE_ABSENT = "device absent"
EDGE_ADDED_OR_REMOVED = "edge added or removed"
EDGE_REPLACED = "edge replaced at one end"
DEGREE = "degree"

ABOUT, AGAINST, TOLD_APART, WEAK = "about", "against", "told_apart", "weak"
TOLD_APART_FOR_LIFE = "told_apart_for_life"
NUMBERS = (AGAINST, TOLD_APART, TOLD_APART_FOR_LIFE, WEAK)
"""Keys of a row beside `about` and its columns: the adversary; the largest probability of telling
two equally likely alternatives apart in this run, and in all runs with an account; whether one of
them is weak. A probability is None where nothing is guaranteed."""
MAX_TOLD_APART = 0.9
"""Probability above which a guarantee is called weak."""


def guess_bound(epsilon: float, prior: float) -> float:
    """Return the largest probability of guessing a value that has pure ε.

    Args:
        prior: the probability of guessing it without the device.
    """
    return prior / (prior + (1 - prior) * math.exp(-epsilon))


def told_apart(epsilon: float, mu: float) -> float:
    """Return the largest probability of telling two equally likely alternatives apart.

    The worst case of pure ε is one bit under randomized response, that of sums one normal number.
    Of both together, the likelihood ratio decides: with a = e^ε/(1 + e^ε), it is right with
    probability a · Φ(μ/2 + ε/μ) + (1 - a) · Φ(μ/2 - ε/μ).

    Args:
        epsilon: pure ε of all randomized messages together.
        mu: μ of all Gaussian sums together.
    """
    likelier = guess_bound(epsilon, 0.5)
    if mu == 0 or math.isinf(epsilon):
        return likelier
    right = likelier * ndtr(mu / 2 + epsilon / mu) + (1 - likelier) * ndtr(mu / 2 - epsilon / mu)
    return float(right)


def worst(bounds: Iterable[float | None]) -> float | None:
    """Return the largest of some bounds; None where one of them is missing."""
    every = list(bounds)
    known = [bound for bound in every if bound is not None]
    return max(known, default=0.5) if len(known) == len(every) else None


def is_weak(*bounds: float | None) -> bool:
    """Return whether two equally likely alternatives may be told apart in more than 90 %."""
    return any(bound is not None and bound > MAX_TOLD_APART for bound in bounds)


def guarantees_something(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a row has a bound; rows without one name what is exposed."""
    return any(row[TOLD_APART] is not None for row in rows)


def cells_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the cells of a row by column: (ε, δ) or words, for each role or way out."""
    return {name: cell for name, cell in row.items() if name != ABOUT and name not in NUMBERS}


def shown_cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return all cells of a row by heading, as tables show them; amounts have no bound."""
    names = {TOLD_APART: "told apart", TOLD_APART_FOR_LIFE: "told apart, for life"}
    bounds = {
        heading: in_percent(row[name]) if row[AGAINST] else "–"
        for name, heading in names.items()
        if name in row
    }
    return {**cells_of(row), **bounds, AGAINST: row[AGAINST] or "–"}


def in_percent(bound: float | None) -> str:
    """Return a bound of a row in words, rounded up: no guarantee is printed too strong."""
    if bound is None:
        return NO_GUARANTEE
    share = math.ceil(1000 * bound - 1e-9) / 10
    if share >= 100:
        return "up to 100 % of cases (no useful bound)"
    return f"at most {share:g} % of cases" + " (weak)" * is_weak(bound)
