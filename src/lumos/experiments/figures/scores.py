"""Scores of one system by seed, and their differences."""

from collections.abc import Callable
from dataclasses import dataclass, field

NOT_DRAWN = "no difference is drawn from a run that was cut at {} epochs"


@dataclass(frozen=True)
class Scores:
    """A figure of one system, by seed."""

    by_seed: dict[int, float] = field(default_factory=dict)
    control: dict[int, float] = field(default_factory=dict)
    """Of the seeds that have one."""
    notes: tuple[str, ...] = ()
    cut: int = 0
    """Epochs at which its runs were cut; 0: they finished."""

    @staticmethod
    def single(value: float | None, *notes: str) -> "Scores":
        """A single figure, or none."""
        return Scores({} if value is None else {0: value}, {}, tuple(filter(None, notes)))


def points(one: Scores, other: Scores, scale: float = 1.0) -> Scores:
    """scale · (one - other), seed by seed; the control against the same."""
    return _pairwise(one, other, lambda a, b: scale * (a - b))


def relative(one: Scores, other: Scores) -> Scores:
    """100 · (one / other - 1), seed by seed; the control against the same."""
    nonzero = {seed: score for seed, score in other.by_seed.items() if score}
    notes = other.notes
    if len(nonzero) < len(other.by_seed):
        notes = ("nothing is relative to a score of 0", *notes)
    return _pairwise(one, Scores(nonzero, {}, notes, other.cut), lambda a, b: 100 * (a / b - 1))


def _pairwise(one: Scores, other: Scores, difference: Callable[[float, float], float]) -> Scores:
    """On the seeds that both have; notes on each of the two stand in its own row.

    Between runs of which one was cut there is no difference, only a note.
    """
    if one.cut or other.cut:
        return Scores.single(None, NOT_DRAWN.format(one.cut or other.cut))
    differences, controls = (
        {seed: difference(a, other.by_seed[seed]) for seed, a in given.items()
         if seed in other.by_seed}
        for given in (one.by_seed, one.control)
    )  # fmt: skip
    notes = () if differences else tuple(dict.fromkeys(one.notes + other.notes))
    most = max(len(one.by_seed), len(other.by_seed))
    if 0 < len(differences) < most:
        notes = (f"of the {len(differences)} of {most} seeds that both have",)
    return Scores(differences, controls, notes)
