"""The systems, models and measures of the evaluation, and what tables call them."""

from typing import NamedTuple

from lumos.training.profile import PAPER, STRICT

BACKBONES = ("gcn", "gat")
EVALUATED_BALANCERS = ("none", "greedy", "mcmc", "optimal")
EVALUATED_PROFILES = (PAPER, STRICT)
LETTER = "letter"
"""The paper's profile with its recovery of features to the letter."""
TRUE_LABELS = "true labels"
"""The strict profile with true labels in its sums."""
VARIANT_PROFILES = {LETTER: PAPER, TRUE_LABELS: STRICT}
"""The profile of each variant that is none itself."""
ONE_SCORE = {(STRICT, "link")}
"""Profiles and tasks that have no backbone, and no ε of a release: one score."""
SYSTEM_NAMES = {
    PAPER: "Lumos paper",
    LETTER: "Lumos paper, recovery to the letter",
    STRICT: "Lumos strict",
    TRUE_LABELS: "Lumos strict, true labels in sums",
    "centralized": "centralized",
    "lpgnn": "LPGNN",
    "naive": "naive FedGNN",
    "own": "own features only",
}


class Measure(NamedTuple):
    """The test score of a task."""

    name: str
    """What tables call it."""
    field: str
    """Its name in a result."""
    scale: float
    """Factor from a result to a table."""
    digits: int
    """Decimal places."""


MEASURES = {
    "classify": Measure("accuracy, %", "test_accuracy", 100.0, 2),
    "link": Measure("ROC-AUC", "test_auc", 1.0, 4),
}
"""By task."""
