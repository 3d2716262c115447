"""What the observer of a simulation should know about its scores: one sentence each."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from lumos.training.score_errors import beyond_noise

LEAST_FALL = 0.01
"""Share of its value by which a loss must still fall for a run to be called unfinished."""
CLEAR = 2.0
"""Standard errors beyond which a difference is no accident."""


def still_falling(losses: Sequence[float | None]) -> tuple[float, float] | None:
    """The mean losses of the last two fifths of some epochs, where the later one is clearly lower.

    The standard error comes from the differences between successive epochs, so that a slope does
    not count as noise.
    """
    values = np.array([loss for loss in losses if loss is not None and math.isfinite(loss)])
    part = len(values) // 5
    if part < 2:
        return None
    before, after = values[-2 * part : -part], values[-part:]
    noise = float(np.abs(np.diff(values[-2 * part :])).mean()) / 1.128  # of two normal numbers
    fall, error = float(before.mean() - after.mean()), noise * math.sqrt(2 / part)
    clear = fall > CLEAR * error and fall > LEAST_FALL * abs(float(before.mean()))
    return (float(before.mean()), float(after.mean())) if clear else None


def unconverged(losses: Sequence[float | None], epochs: int) -> Iterator[str]:
    """Where the loss of the last stage of a run still falls at its end."""
    if (means := still_falling(losses)) is not None:
        yield (
            f"training was not finished: its loss still fell at the end, from {means[0]:.3g} to "
            f"{means[1]:.3g}; `epochs={2 * epochs}` would help"
        )


def below_own(score: float, own: float | None, cases: int, what: str) -> Iterator[str]:
    """Where own features alone did clearly better than the run.

    Args:
        cases: number of test devices or edges.
        what: accuracy or auc.
    """
    if own is not None and own > score and beyond_noise(score, own, cases, what):
        yield (
            f"own features alone did better on the test set, by {100 * (own - score):.1f} points: "
            "neighbours mislead here, or training was too short or too noisy"
        )


def no_better_than_control(
    score: float, control: float | None, cases: int, what: str
) -> Iterator[str]:
    """Where a control, whose messages carry no information, did as well as the run."""
    if control is not None and (score < control or not beyond_noise(score, control, cases, what)):
        yield (
            "the control did as well, up to the noise of this test set: what devices sent each "
            "other adds nothing that it could show"
        )
