"""The result of a trained federation for the observer, whatever its profile."""

from collections.abc import Callable
from dataclasses import dataclass, field

from lumos.typing import Arrays, Doubles, Floats, Ints

MAIN, OWN, CONTROL, IDS = "run", "own", "control", "ids"
"""The arms: the run itself, own features only, releases that carry no information, and public marks
without any release (links of profiles that have such marks)."""

PairScores = Callable[[Ints], Doubles]
"""[pairs, 2] → scores of being an edge."""
Judged = Floats | PairScores
"""What is scored: [devices, classes] logits, or a function that scores pairs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """The result of one arm of a run."""

    embeddings: Floats = field(repr=False)
    """[devices, width]"""
    logits: Floats | None = field(repr=False)
    """[devices, classes], for classify."""
    judged: dict[str, Judged] = field(repr=False)
    """By arm: the run itself, and those that are part of it."""
    best_epoch: int
    exposed: str
    """What left the devices unprotected, to whom, in words."""
    promises: list[dict[str, str]] = field(repr=False)
    """The table of promises, row by row; empty where none is made."""
    choice: str = ""
    """Which of several candidates validation devices chose; empty where there is no choice."""
    caution: str = ""
    """What a reader of the scores should know."""
    estimates: dict[str, float] = field(default_factory=dict)
    """Scores that the run itself measured, without any true label; none in most profiles."""
    kept: Arrays = field(default_factory=dict, repr=False)
    """What a prediction needs beside the weights and embeddings."""
