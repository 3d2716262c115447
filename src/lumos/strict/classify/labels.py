"""The labels of a run: randomized once, before anything else happens, and never read again.

Guarantee: everything that leaves a device, in this run and in all others with the same account,
depends on its label only through the draws in `lumos.ldp.labels`. So against neighbours,
non-neighbours and the coordinator together, a label has the pure ε of its one randomized label,
for any two values and any number of sums and runs.

Losses are corrected for the known noise (forward correction, Patrini et al. 2017): the likelihood
of ỹ is that of R applied to the predicted probabilities.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lumos.device.shard import Shard
from lumos.ldp.account import PrivacyAccount
from lumos.ldp.labels import LabelDraws, LabelForm
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
    """[hosted] the randomized label; `NO_LABEL` where a device has none."""
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
    account: PrivacyAccount | None,
    participants: Flags,
) -> NoisyLabels:
    """Randomize the labels of training and validation devices, or repeat those of the account.

    The only function of this profile that sees a true label.

    Args:
        labels: [hosted].
        participants: [hosted] whether the device trains or validates.
    """
    form, epsilon = schedule.label_form, schedule.strict.label_epsilon
    rows = np.flatnonzero(participants)
    if account is None:
        drawn = LabelDraws.first(form, labels[rows], shard.randomness, rows).at(epsilon)
    else:
        seeded = schedule.config.train.randomness == "seeded"
        drawn = account.labels(
            form,
            shard.devices[rows],
            labels[rows],
            (epsilon,),
            randomness=shard.randomness if seeded else None,
            rows=rows if seeded else None,
            classes=schedule.class_names,
        )
    values = np.full(len(shard), NO_LABEL, np.int64)
    values[rows] = drawn[0]
    return NoisyLabels(form, values, form.table(epsilon) * form.places)
