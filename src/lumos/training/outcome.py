"""The result of a trained federation for the observer, whatever its profile."""

from collections.abc import Callable
from dataclasses import dataclass, field

from lumos.typing import Arrays, Doubles, Floats, Ints

MAIN, OWN, CONTROL = "run", "own", "control"
"""The arms: the run itself, what a device knows alone, releases that carry no information."""

PairScores = Callable[[Ints], Doubles]
"""[pairs, 2] → [pairs] scores of being an edge, or [2, pairs]: as the first ends have them, and as
the second ends do."""
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
    cautions: list[str] = field(default_factory=list)
    """What a reader of the scores should know."""
    estimates: dict[str, float] = field(default_factory=dict)
    """Scores that the run itself measured, without any true label; none in most profiles."""
    kept: Arrays = field(default_factory=dict, repr=False)
    """What a prediction needs beside the weights and embeddings."""
