"""What a reader of a run of `classify` should know, and what would help: one sentence each.

Every sentence follows from public and noisy numbers: settings, how many devices train and validate,
and opened sums. So real devices can print them too.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from lumos.strict.classify.stages import ENCODER, ClassifySchedule
from lumos.strict.feature_scaling import CLEAR, SIZES, WINDOW
from lumos.strict.vote import Vote
from lumos.strict.wording import round_up

WEAK = 0.4
"""Strength r of a randomized label below which a run warns."""
WIDE = 0.05
"""Standard error of the voted accuracy above which a run warns."""
FEW = 25.0
"""Training devices of a class, as many as their randomized labels are worth, below which one warns:
a label of strength r is worth r² labels."""
MISLED = 2.0
"""Standard errors below nothing from which on neighbours are said to mislead."""
ALIKE = 0.9
"""Squared norm of the mean row above which rows of norm 1 hardly differ."""
DROWNED = 0.7
"""Mean size of one feature in rows of norm 1 above which it hides all others."""


class Found(NamedTuple):
    """What a run found out in its noisy sums."""

    features: int
    """d"""
    width: int
    """Numbers in an update of the own encoder."""
    vote: Vote
    scaled: bool = True
    """Whether sizes of features could be learnt, where they had to be."""
    largest: float = 0.0
    """Mean size of the largest feature in rows of norm 1."""
    alike: float = 0.0
    """Squared norm of the mean sizes of all features in such rows; 1: all rows are the same."""


def cautions(schedule: ClassifySchedule, found: Found) -> list[str]:
    """All that apply, the most important first."""
    return [
        *_features(schedule, found),
        *_noise(schedule, found),
        *_labels(schedule),
        *_validation(schedule, found.vote),
        *_neighbours(schedule, found.vote),
    ]


def _features(schedule: ClassifySchedule, found: Found) -> Iterator[str]:
    noise = schedule[SIZES].noise() if schedule.first_stages else None
    if not found.scaled and noise is not None:
        # Most of the devices must stand out of the noise of the octaves that they share.
        most = CLEAR * math.sqrt(WINDOW * found.features) * noise.total / 0.75
        yield (
            f"features were not brought to one scale: {schedule.training:,} training devices are "
            f"too few to learn the scales of {found.features:,} features under this noise, about "
            f"{round_up(most):,} would do; public bounds of the features (`feature_bounds`) need "
            "none"
        )
        return
    remedy = "`scaling='standard'` or public bounds (`feature_bounds`) would help"
    if schedule.first_stages:
        remedy = "public bounds (`feature_bounds`) would help"
    if found.largest > DROWNED and found.features > 1:
        yield (
            f"one feature makes up {100 * found.largest**2:.0f} % of a device's features in the "
            f"mean, so the others hardly count; {remedy}"
        )
    elif found.alike > ALIKE and found.features > 1:
        yield (
            "features of all devices are nearly alike, as an offset or a few large features make "
            f"them, so what differs hardly counts; {remedy}"
        )
    elif not schedule.bounded and not schedule.first_stages:
        yield (
            "features go beyond -1 and 1 and were used as they are; where their scales differ, "
            f"{remedy}"
        )


def _noise(schedule: ClassifySchedule, found: Found) -> Iterator[str]:
    noise = schedule[ENCODER].noise()
    if noise is None:
        return
    # A sum of vectors has a norm of at most n · C, its noise one of about σ · C · √width.
    needed = noise.sigma * math.sqrt(found.width)
    if needed > schedule.training:
        yield (
            f"{schedule.training:,} training devices are too few for {found.width:,} weights under "
            f"this noise, about {round_up(needed):,} would do; fewer features or a larger "
            "`update_epsilon` would help"
        )


def _labels(schedule: ClassifySchedule) -> Iterator[str]:
    if schedule.strength < WEAK:
        yield (
            f"at `epsilon={schedule.strict.sums_epsilon:g}` a label of {schedule.classes} classes "
            "is mostly noise; a larger `epsilon` or fewer classes would help"
        )
    elif schedule.training * schedule.strength**2 < FEW * schedule.classes:
        needed = round_up(FEW * schedule.classes / schedule.strength**2)
        yield (
            f"few labels: {schedule.training:,} training devices for {schedule.classes} classes, "
            f"about {needed:,} would do; more of them, or a larger `epsilon`, would help"
        )


def _validation(schedule: ClassifySchedule, vote: Vote) -> Iterator[str]:
    error = vote.accuracy[1]
    if error > WIDE:
        needed = round_up(schedule.validation * (error / WIDE) ** 2)
        yield (
            f"{schedule.validation:,} validation devices are few: their vote measures accuracy "
            f"with a standard error of {100 * error:.0f} points; about {needed:,}, or a larger "
            "`epsilon`, would help"
        )


def _neighbours(schedule: ClassifySchedule, vote: Vote) -> Iterator[str]:
    net, error = vote.gain
    if vote.choice or math.isnan(net):
        return
    points = 100 / max(1, schedule.validation) / schedule.strength
    measured = f"{net * points:+.1f} ± {error * points:.1f} points of accuracy in the vote"
    if net < -MISLED * error:
        yield (
            f"neighbours mislead here ({measured}), so the run predicts by own features alone: "
            "edges seem to join devices of different classes"
        )
    else:
        yield (
            f"what neighbours add cannot be told from noise ({measured}), so the run predicts by "
            "own features alone; more labelled devices or a larger `epsilon` would help, if edges "
            "say anything"
        )
