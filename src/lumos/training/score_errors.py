"""How far scores on a test set may be off by the choice of the test set."""

import math

Z = 2.0
"""Standard errors that a difference must exceed to be more than the noise of the test set."""


def standard_error(score: float, tested: int, what: str) -> float:
    """Of an accuracy: √(p(1-p)/n). Of an AUC with n edges and n strangers: Hanley and McNeil.

    Q₁ = A/(2-A), Q₂ = 2A²/(1+A), variance (A(1-A) + (n-1)(Q₁ - A² + Q₂ - A²)) / n².
    """
    if not tested:
        return math.inf
    if what == "accuracy":
        return math.sqrt(score * (1 - score) / tested)
    first, second, square = score / (2 - score), 2 * score**2 / (1 + score), score**2
    pairs = (tested - 1) * (first - square + second - square)
    return math.sqrt(max(score * (1 - score) + pairs, 0.0)) / tested


def beyond_noise(one: float, other: float, tested: int, what: str) -> bool:
    """Whether two scores on a test set of this size differ by more than its noise."""
    errors = (standard_error(score, tested, what) for score in (one, other))
    return abs(one - other) > Z * math.hypot(*errors)
