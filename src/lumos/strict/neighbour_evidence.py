"""What the messages of neighbours say about a device's class.

**Counts.** How often a device received each symbol, and how often each opinion; a message that
names several values counts as a share of each. They stay on the device.

**Matrix.** P(value | class) is learnt by one sum for each kind of message: a device adds
counts/(received + 3) in the row of its own randomized label. So homophily is not assumed, and a
message without information has a flat matrix. Rows belong to the *randomized* label; they need no
correction, because every device compares classes by the same rows.

**Evidence.** The log-likelihood of all counts under a Pólya distribution around each row: many
equal messages say less than as many independent ones. For labels written as digits, the evidence of
a class is the sum of its digits'.

All of this is computed on the device; only its vectors in sums leave it.
"""

import numpy as np
from scipy.special import gammaln

from lumos.encode.label_form import LabelForm
from lumos.strict.classify_schedule import FEWER
from lumos.strict.noisy_labels import NoisyLabels
from lumos.typing import Doubles, Ints

CONCENTRATION = 8.0
"""κ of the Pólya distribution: how many messages of one device's neighbours are as good as
independent. Chosen on validation devices of Facebook, Twitch and demo."""
LEAST = 1.0
"""Numbers of a matrix below this count as this: no probability is 0."""


class MessageCounts:
    """Counts of the messages of one kind that the hosted devices received.

    Args:
        support: [messages, alphabet] what each message names, as 0 or 1 for each value.
        receiver: [messages] position of the device that received it.
        hosted: number of hosted devices.
    """

    def __init__(self, support: Doubles, receiver: Ints, hosted: int) -> None:
        named = support / np.maximum(support.sum(axis=1, keepdims=True), 1)
        columns = [np.bincount(receiver, column, hosted) for column in named.T]
        self.counts: Doubles = np.stack(columns, axis=1)
        """[hosted, alphabet]"""
        self.received: Doubles = np.bincount(receiver, minlength=hosted).astype(np.float64)
        """[hosted]"""

    def damped(self) -> Doubles:
        """[hosted, alphabet] of norm below 1: one message more moves it by 1/4 at most."""
        damped: Doubles = self.counts / (self.received + FEWER)[:, None]
        return damped

    def matrix_vectors(self, labels: NoisyLabels, rows: Ints) -> Doubles:
        """[hosted, values · alphabet] what each of `rows` adds to the matrix; zeros elsewhere."""
        vectors = np.zeros((len(self.counts), labels.form.alphabet, self.counts.shape[1]))
        vectors[rows, labels.values[rows]] = self.damped()[rows]
        return vectors.reshape(len(self.counts), labels.form.alphabet * self.counts.shape[1])

    def evidence(self, total: Doubles, form: LabelForm) -> Doubles:
        """[hosted, k] log-likelihood of the counts, less its mean over the classes.

        O(hosted · values · alphabet).

        Args:
            total: the noisy sum of all devices' vectors.
        """
        table = np.maximum(total.reshape(form.alphabet, -1), LEAST)
        pseudo = CONCENTRATION * table / table.sum(axis=1, keepdims=True)
        by_value = np.stack(
            [(gammaln(self.counts + row) - gammaln(row)).sum(axis=1) for row in pseudo], axis=1
        )
        by_class = np.zeros((len(self.counts), form.size))
        every = np.arange(form.size)
        for place in range(form.places):  # the digit of each class at this place
            by_class += by_value[:, form.at(every, np.full(form.size, place))]
        centred: Doubles = by_class - by_class.mean(axis=1, keepdims=True)
        return centred
