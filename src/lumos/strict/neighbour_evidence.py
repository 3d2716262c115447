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

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln

from lumos.encode.label_form import LabelForm
from lumos.strict.noisy_labels import NoisyLabels
from lumos.strict.own_classifier import Rounding
from lumos.strict.short_rows import row_sums
from lumos.typing import Bytes, Doubles, Ints

PSEUDO_COUNT = 3.0
"""A device adds counts/(received + PSEUDO_COUNT) to a matrix: one more message moves it by at most
1/(1 + PSEUDO_COUNT)."""
CONCENTRATION = 8.0
"""κ of the Pólya distribution: how many messages of one device's neighbours are as good as
independent. Chosen on validation devices of Facebook, Twitch and demo."""
LEAST = 1.0
"""Numbers of a matrix below this count as this: no probability is 0."""
_MESSAGES = 1 << 16  # read at a time
_DEVICES = 1 << 14  # whose evidence is computed at a time


class MessageCounts:
    """Counts of the messages of one kind that the hosted devices received.

    Args:
        support: [messages, alphabet] what each message names, as 0 or 1 for each value.
        receiver: [messages] position of the device that received it.
        hosted: number of hosted devices.
    """

    def __init__(self, support: Doubles, receiver: Ints, hosted: int) -> None:
        self.counts: Doubles = _shares(support, receiver, hosted)
        """[hosted, alphabet]"""
        self.received: Doubles = np.bincount(receiver, minlength=hosted).astype(np.float64)
        """[hosted]"""

    @classmethod
    def of_messages(
        cls, bodies: Bytes, read: Callable[[Bytes], Doubles], receiver: Ints, hosted: int
    ) -> "MessageCounts":
        """The same from messages as they came, of which only a part is read at a time.

        Args:
            bodies: [messages, bytes].
            read: from messages to what they name.
            receiver: [messages] not decreasing.
        """
        counted = cls(read(bodies[:0]), receiver[:0], hosted)
        counted.received = np.bincount(receiver, minlength=hosted).astype(np.float64)
        # Whole devices at a time: every device adds up its messages in the order of the senders.
        ends = np.cumsum(counted.received).astype(np.int64)
        first, start = 0, 0
        while start < len(receiver):
            last = max(int(np.searchsorted(ends, start + _MESSAGES, side="right")), first + 1)
            end = int(ends[last - 1])
            counted.counts[first:last] = _shares(
                read(bodies[start:end]), receiver[start:end] - first, last - first
            )
            first, start = last, end
        return counted

    def damped(self, rows: Ints) -> Doubles:
        """[rows, alphabet] of norm below 1: one message more moves it by 1/4 at most."""
        damped: Doubles = self.counts[rows] / (self.received[rows] + PSEUDO_COUNT)[:, None]
        return damped

    def matrix_vectors(self, labels: NoisyLabels, rows: Ints) -> Doubles:
        """[rows, values · alphabet] what each of the devices `rows` adds to the matrix."""
        vectors = np.zeros((len(rows), labels.form.alphabet, self.counts.shape[1]))
        vectors[np.arange(len(rows)), labels.values[rows]] = self.damped(rows)
        return vectors.reshape(len(rows), labels.form.alphabet * self.counts.shape[1])

    def matrix_sum(self, labels: NoisyLabels, rows: Ints, rounded: Rounding) -> Doubles:
        """[values · alphabet] the sum of `matrix_vectors`, every number rounded by itself."""
        values, alphabet = labels.values[rows], labels.form.alphabet
        columns = rounded(self.damped(rows)).T
        sums = np.stack([np.bincount(values, one, alphabet) for one in columns], axis=1)
        return sums.ravel().astype(np.float64)

    def evidence(self, total: Doubles, form: LabelForm) -> Doubles:
        """[hosted, k] log-likelihood of the counts, less its mean over the classes.

        O(hosted · values · alphabet).

        Args:
            total: the noisy sum of all devices' vectors.
        """
        table = np.maximum(total.reshape(form.alphabet, -1), LEAST)
        pseudo = CONCENTRATION * table / table.sum(axis=1, keepdims=True)
        by_value = np.empty((len(self.counts), len(pseudo)))
        for start in range(0, len(self.counts), _DEVICES):
            likelihood = _log_likelihood(self.counts[start : start + _DEVICES])
            for value, row in enumerate(pseudo):
                by_value[start : start + _DEVICES, value] = row_sums(likelihood(row))
        by_class = np.zeros((len(self.counts), form.size))
        every = np.arange(form.size)
        for place in range(form.places):  # the digit of each class at this place
            by_class += by_value[:, form.at(every, np.full(form.size, place))]
        centred: Doubles = by_class - by_class.mean(axis=1, keepdims=True)
        return centred


def _shares(support: Doubles, receiver: Ints, hosted: int) -> Doubles:
    """[hosted, alphabet] a message that names several values is a share of each."""
    alphabet = support.shape[1]
    message, value = np.nonzero(support)
    shares = (support / np.maximum(row_sums(support), 1)[:, None])[message, value]
    places = receiver[message] * alphabet + value
    counts = np.bincount(places, shares, hosted * alphabet)
    return counts.reshape(hosted, alphabet).astype(np.float64)  # of no message, they are integers


def _log_likelihood(counts: Doubles) -> Callable[[Doubles], Doubles]:
    """[devices, alphabet] log Γ(count + row) - log Γ(row), given a row.

    By a table, where counts are whole numbers.
    """
    whole = counts.astype(np.int64)
    most, alphabet = int(whole.max(initial=0)), counts.shape[1]
    if most >= len(counts) or not np.array_equal(whole, counts):
        return lambda row: gammaln(counts + row) - gammaln(row)
    numbers, places = np.arange(most + 1.0)[:, None], whole * alphabet + np.arange(alphabet)
    return lambda row: (gammaln(numbers + row) - gammaln(row)).ravel()[places]
