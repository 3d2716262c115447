"""The vote of validation devices: own features, or with neighbours; and what it tells of accuracy.

Each validation device adds whether its randomized label agrees with the own encoder, and for every
other candidate whether it *gains* (agrees where the own encoder does not) or *loses*. One edge can
move the gains and losses only, so the vote costs an edge little.

Neighbours count only if they win by more than one standard error: never worse than own features
only, up to that.

Agreement with a randomized label is a mixed accuracy: q + r · accuracy. Un-mixed, it estimates the
accuracy without any true label, with a standard error. Labels written as digits are harder to
un-mix: a wrong class may have the right digit. Wrong classes are then taken to do so by chance.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lumos.encode.mechanisms import COIN
from lumos.strict.noisy_labels import NoisyLabels
from lumos.typing import Doubles, Ints

if TYPE_CHECKING:
    from lumos.strict.classify.stages import ClassifySchedule


def vote_vectors(candidates: list[Doubles], labels: NoisyLabels, rows: Ints) -> Doubles:
    """[rows, 2 · candidates - 1] own agrees; then gains and losses of every other candidate."""
    own, *others = (labels.agrees(logits[rows].argmax(axis=1), rows) for logits in candidates)
    columns = [own]
    for other in others:
        columns += [other & ~own, own & ~other]
    return np.stack(columns, axis=1).astype(np.float64)


class Vote(NamedTuple):
    """The counted vote."""

    choice: int
    """Number of the chosen candidate; 0 is the own encoder."""
    accuracy: tuple[float, float]
    """Of the chosen one, estimated from the vote alone; and its standard error."""
    own: tuple[float, float]
    """The same of the own encoder."""
    gain: tuple[float, float] = (math.nan, math.nan)
    """How many more validation devices the best other candidate agrees with than the own encoder;
    and its standard error."""

    @staticmethod
    def nobody() -> "Vote":
        """Before the vote."""
        nothing = (math.nan, math.nan)
        return Vote(0, nothing, nothing)

    @staticmethod
    def of(total: Doubles, schedule: "ClassifySchedule") -> "Vote":
        """Count the noisy sum of all vectors."""
        spread = schedule["vote"].spread()
        gains, losses = total[1::2], total[2::2]
        best = 1 + int(np.argmax(gains - losses))
        net, moved = gains[best - 1] - losses[best - 1], gains[best - 1] + losses[best - 1]
        error = math.sqrt(max(1.0, moved) + 2 * spread**2)
        choice = best if net > error else 0
        agreed = total[0] + (net if choice else 0.0)
        noises = 3 if choice else 1
        return Vote(
            choice,
            _unmixed(float(agreed), spread * math.sqrt(noises), schedule),
            _unmixed(float(total[0]), spread, schedule),
            (float(net), error),
        )

    def estimates(self) -> dict[str, float]:
        """By name, for results."""
        return {
            "voted_accuracy": self.accuracy[0],
            "voted_accuracy_error": self.accuracy[1],
            "own_voted_accuracy": self.own[0],
            "own_voted_accuracy_error": self.own[1],
        }


def _unmixed(agreed: float, spread: float, schedule: "ClassifySchedule") -> tuple[float, float]:
    """Accuracy and its standard error, from the number of devices that agree."""
    form, epsilon = schedule.label_form, schedule.strict.sums_epsilon
    judges = max(1, schedule.validation)
    share = min(1.0, max(0.0, agreed / judges))
    other, strength = form.other(epsilon) / COIN, form.strength(epsilon)
    by_chance = 0.0 if form.places == 1 else 1 / form.base
    scale = 1 / strength / (1 - by_chance)
    accuracy = ((agreed / judges - other) / strength - by_chance) / (1 - by_chance)
    error = scale * math.sqrt(share * (1 - share) / judges + (spread / judges) ** 2)
    return accuracy, error
