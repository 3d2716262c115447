"""The labels of a run: randomized once, before anything else happens, and never read again.

Guarantee: everything that leaves a device, in this run and in all others with the same book,
depends on its label only through the draws in `lumos.ldp.labels`. So against neighbours,
non-neighbours and the coordinator together, a label has the pure ε of the label that sums use, for
any two values and any number of sums and runs. With `label_epsilon=inf` sums use the true label,
and only their noise protects it.

Losses are corrected for the known noise (forward correction, Patrini et al. 2017): the likelihood
of ỹ is that of R applied to the predicted probabilities.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lumos.device.shard import Shard
from lumos.ldp.labels import LabelDraws, LabelForm
from lumos.strict.book import ReleaseBook
from lumos.strict.features import ROWS, row_maxima, row_sums
from lumos.typing import Doubles, Flags, Ints

if TYPE_CHECKING:
    from lumos.strict.classify.stages import ClassifySchedule


NO_LABEL = -1


class NoisyLabels(NamedTuple):
    """Randomized labels of the hosted devices. No true label can be reached from here."""

    form: LabelForm
    """Encoding of the values."""
    values: Ints
    """[hosted] the value that sums use; `NO_LABEL` where a device has none."""
    randomized_labels: Ints
    """[hosted] the value that a training device releases; `NO_LABEL` where there is none."""
    paid: Doubles
    """[hosted] ε that the draws cost in this run."""
    likelihood: Doubles
    """[k, alphabet] probability of the value's digit, given class and place."""

    def slopes(self, logits: Doubles, rows: Ints) -> tuple[Doubles, Doubles]:
        """Return [rows, k] gradients by the logits and [rows] losses -log P(ỹ), noise-corrected."""
        by_value = np.ascontiguousarray(self.likelihood.T)
        slopes, loss = np.empty(logits.shape), np.empty(len(rows))
        for start in range(0, len(rows), ROWS):
            here = slice(start, start + ROWS)
            likelihood = by_value[self.values[rows[here]]]
            slopes[here], loss[here] = forward_slopes(logits[here], likelihood)
        return slopes, loss

    def agrees(self, classes: Ints, rows: Ints) -> Flags:
        """Return [rows] whether a class is that of the value, or has its digit."""
        return self.form.agrees(classes, self.values[rows])


def forward_slopes(logits: Doubles, likelihood: Doubles) -> tuple[Doubles, Doubles]:
    """Return gradient [rows, k] and value [rows] of -log Σ_c softmax(z)_c · likelihood_c.

    Args:
        logits: [rows, k].
        likelihood: [rows, k] of what was observed, given each class.
    """
    chances = logits - row_maxima(logits)[:, None]
    np.exp(chances, out=chances)
    chances /= row_sums(chances)[:, None]
    joint = chances * likelihood
    total = np.maximum(row_sums(joint), 1e-300)
    joint /= total[:, None]
    chances -= joint
    return chances, -np.log(total)


def draw_labels(
    shard: Shard,
    labels: Ints,
    schedule: "ClassifySchedule",
    book: ReleaseBook | None,
    participants: Flags,
) -> NoisyLabels:
    """Randomize the labels of training and validation devices, or take them from the book.

    The only function of this profile that sees a true label.

    Args:
        labels: [hosted].
        participants: [hosted] whether the device trains or validates.
    """
    form, strict = schedule.randomized_form, schedule.strict
    rows = np.flatnonzero(participants)
    exact = math.isinf(strict.sums_epsilon)
    levels = (strict.epsilon,) if exact else (strict.epsilon, strict.sums_epsilon)
    paid = np.zeros(len(shard))
    if book is None:
        drawn = LabelDraws.first(form, labels[rows], shard.randomness, rows).at(*levels)
        paid[rows] = max(levels)
    else:
        drawn, paid[rows] = book.labels(
            form,
            shard.devices[rows],
            labels[rows],
            levels,
            randomness=shard.randomness,
            rows=rows,
            classes=schedule.class_names,
        )
    randomized_labels, values = np.full((2, len(shard)), NO_LABEL, np.int64)
    randomized_labels[rows] = drawn[0]
    values[rows] = labels[rows] if exact else drawn[-1]
    of_sums = schedule.label_form
    likelihood = of_sums.table(strict.sums_epsilon) * of_sums.places
    return NoisyLabels(of_sums, values, randomized_labels, paid, likelihood)
