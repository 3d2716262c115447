"""Evidence about a device's class from its neighbours' messages: computed, weighted, calibrated.

**Counts.** How often a device received each randomized label, and each propagated label; a message
that names several values counts as a share of each. They stay on the device.

**Matrix.** One sum for each kind of message learns P(value | class): a device adds
counts/(received + 3) in the row of its own randomized label. So homophily is not assumed, and a
message without information has a flat matrix. Rows belong to the *randomized* label; they need no
correction, because every device compares classes by the same rows.

**Evidence.** The log-likelihood of all counts under a Pólya distribution around each row: many
equal messages carry less information than as many independent ones. For labels written as digits,
the evidence of a class is the sum over its digits.

All of this is computed on the device; only its vectors in sums leave it.

**Evidence weights.** Final logits are the local classifier's logits, the evidence of randomized
labels and that of each propagated label, each times a weight, plus a bias for each class. Messages
of one device are not independent, and a propagated label repeats some of the information in
randomized labels: the weights learn how much. They are few, so noise in the sums hardly matters.

**Private model selection.** Each validation device adds whether its randomized label agrees with
the local classifier, and for every other candidate whether it *gains* (agrees where the local
classifier does not) or *loses*. One edge moves gains and losses only, so model selection costs an
edge little. The candidate that is right most often is chosen. Where noise decides, little is lost:
matrices of few devices are shrunk, and evidence without information is close to 0.

Agreement with a randomized label is a mixed accuracy: q + r · accuracy. Solved for the accuracy, it
is an estimate that needs no true label, with a standard error. With labels written as digits it is
that of a digit; digits are assumed to be right independently of one another. A candidate that is
chosen for its gain owes a part of it to noise, of which the expected size is subtracted.

**Temperature.** Each validation device adds the probability of its most likely class at a few
temperatures, a vector that depends on no label. Its mean over all devices is the confidence of the
run; model selection has estimated its accuracy. The temperature at which both agree best is chosen,
or 1 if they already agree within one standard error. Losses of randomized labels would hardly
distinguish temperatures: a label changed by noise costs as much as a wrong prediction.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln, ndtr

from lumos.ldp.labels import LabelForm
from lumos.ldp.mechanisms import COIN
from lumos.secagg.noise import clip_factors
from lumos.strict.classify.encoder import LOSS_LIMIT, LOSS_SCALE, Rounding
from lumos.strict.classify.labels import NoisyLabels
from lumos.strict.features import ROWS, row_maxima, row_sums
from lumos.typing import Bytes, Doubles, Ints

if TYPE_CHECKING:
    from lumos.strict.classify.stages import ClassifySchedule


PSEUDO_COUNT = 3.0
"""A device adds counts/(received + PSEUDO_COUNT) to a matrix: one more message moves it by at most
1/(1 + PSEUDO_COUNT)."""
CONCENTRATION = 16.0
"""κ of the Pólya distribution: the number of messages to one device that count as independent.
Chosen on Facebook and demo."""
LEAST = 1.0
"""Smallest number of a matrix, so that no probability is 0."""
DOUBT, MAX_ACCURACY = 0.5, 0.99
"""Standard errors by which the accuracy of propagated labels is lowered, and its largest value."""
SHOWN = 2.0
"""Standard errors above chance from which on the noisy agreement shows that propagated labels tell
something. Those that tell nothing pass in one run of 44."""
MIN_SHARE = 0.02
"""The same as a share of the mean number, where there are few devices."""
MARGIN_SIGMAS, MAX_SAME = 2.0, 0.98
"""Standard deviations of noise that are added to the margins of a matrix, and the largest h."""
DECIMALS = 9
"""Digits of evidence: classes about which messages tell nothing are tied, not told by rounding."""
_MESSAGES = 1 << 16  # read at a time
_DEVICES = 1 << 14  # whose evidence is computed at a time


class MessageCounts:
    """Counts of the messages of one kind that the hosted devices received.

    Args:
        support: [messages, alphabet] 1 for each value that a message names, otherwise 0.
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
        """Count messages as they were received, a part of them at a time.

        Args:
            bodies: [messages, bytes].
            read: decodes messages to `support`.
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
        """Return [rows, alphabet] damped counts of norm below 1; one message moves them by 1/4."""
        damped: Doubles = self.counts[rows] / (self.received[rows] + PSEUDO_COUNT)[:, None]
        return damped

    def matrix_vectors(self, labels: NoisyLabels, rows: Ints) -> Doubles:
        """Return [rows, values · alphabet] the vectors of the devices `rows` for the matrix."""
        vectors = np.zeros((len(rows), labels.form.alphabet, self.counts.shape[1]))
        vectors[np.arange(len(rows)), labels.values[rows]] = self.damped(rows)
        return vectors.reshape(len(rows), labels.form.alphabet * self.counts.shape[1])

    def matrix_sum(self, labels: NoisyLabels, rows: Ints, rounded: Rounding) -> Doubles:
        """Return [values · alphabet] the sum of `matrix_vectors`, every number rounded first."""
        values, alphabet = labels.values[rows], labels.form.alphabet
        columns = rounded(self.damped(rows)).T
        sums = np.stack([np.bincount(values, one, alphabet) for one in columns], axis=1)
        return sums.ravel().astype(np.float64)

    def evidence(self, matrix: Doubles, form: LabelForm) -> Doubles:
        """Return [hosted, k] the log-likelihood of the counts, less its mean over the classes.

        O(hosted · values · alphabet).

        Args:
            matrix: [values, alphabet] or flat, in proportion to P(value | class); above 0.
        """
        table = matrix.reshape(form.alphabet, -1)
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
        rounded: Doubles = np.round(centred, DECIMALS)
        return rounded


class SimpleMatrix(NamedTuple):
    """A matrix of one parameter beside its margins.

    A message is the receiver's own value with probability h, and otherwise independent of it.
    """

    same: float
    """h; it may be negative."""
    matrix: Doubles
    """[values, alphabet]"""

    @staticmethod
    def of(total: Doubles, noise: float, expected: float = 0.0) -> "SimpleMatrix":
        """Fit it to a noisy sum.

        Args:
            total: [values, alphabet].
            noise: standard deviation of each number.
            expected: h as expected beforehand. What the sum deviates from it is used as far as
                noise and chance do not explain it.
        """
        every = max(LEAST, float(total.sum()))
        margins = [
            np.maximum(
                LEAST, total.sum(axis=axis) + MARGIN_SIGMAS * noise * math.sqrt(total.shape[axis])
            )
            for axis in (1, 0)
        ]
        of_value, of_message = (margin / margin.sum() for margin in margins)
        independent = every * np.outer(of_value, of_message)
        values, alphabet = total.shape
        if values != alphabet:
            return SimpleMatrix(0.0, independent)
        by_chance = float(np.trace(independent))
        most = max(LEAST, every - by_chance)
        excess = float(np.trace(total)) - by_chance - expected * most
        excess *= _kept(excess**2, values * noise**2 + by_chance / 4)
        same = min(MAX_SAME, max(-1 / (values - 1), expected + excess / most))
        return SimpleMatrix(same, (1 - same) * independent + same * every * np.diag(of_value))


def shrunk_matrix(total: Doubles, noise: float, expected: float = 0.0) -> Doubles:
    """Return a matrix without the deviations that noise alone explains.

    What the sum deviates from a matrix of one parameter is kept as far as it exceeds what noise and
    chance explain (James and Stein 1961): of few devices only h remains, of many the whole matrix.
    Arguments as those of `SimpleMatrix.of`.
    """
    simple = SimpleMatrix.of(total, noise, expected).matrix
    every = float(simple.sum())
    rest = total - simple
    rest *= _kept(float((rest**2).sum()), total.size * noise**2 + every / 4)
    floor = min(LEAST, MIN_SHARE * every / total.size)
    shrunk: Doubles = np.maximum(simple + rest, floor)
    return shrunk


def _kept(square: float, explained: float) -> float:
    """Return the share of a deviation that noise does not explain."""
    return 1 - explained / max(explained, square)


def _shares(support: Doubles, receiver: Ints, hosted: int) -> Doubles:
    """Return [hosted, alphabet] counts; a message that names several values is a share of each."""
    alphabet = support.shape[1]
    message, value = np.nonzero(support)
    shares = (support / np.maximum(row_sums(support), 1)[:, None])[message, value]
    places = receiver[message] * alphabet + value
    counts = np.bincount(places, shares, hosted * alphabet)
    return counts.reshape(hosted, alphabet).astype(np.float64)  # of no message, they are integers


def _log_likelihood(counts: Doubles) -> Callable[[Doubles], Doubles]:
    """Return a function of a row: [devices, alphabet] log Γ(count + row) - log Γ(row).

    It uses a table if counts are whole numbers.
    """
    whole = counts.astype(np.int64)
    most, alphabet = int(whole.max(initial=0)), counts.shape[1]
    if most >= len(counts) or not np.array_equal(whole, counts):
        return lambda row: gammaln(counts + row) - gammaln(row)
    numbers, places = np.arange(most + 1.0)[:, None], whole * alphabet + np.arange(alphabet)
    return lambda row: (gammaln(numbers + row) - gammaln(row)).ravel()[places]


EVIDENCE_WEIGHTS_RATE = 0.06


class EvidenceWeights:
    """The inputs that evidence weights combine; they stay on the device.

    Args:
        own: [hosted, k] logits of the local classifier.
        evidence: of randomized labels and of each propagated label, [hosted, k] each.
    """

    def __init__(self, own: Doubles, evidence: list[Doubles]) -> None:
        centred = own - own.mean(axis=1, keepdims=True)
        self._inputs = [centred, *evidence]
        self._selected: tuple[Ints, list[Doubles]] = (np.arange(len(own)), self._inputs)

    def logits(self, weights: Doubles) -> Doubles:
        """Return [hosted, k] the combined inputs."""
        return _combined(weights, self._inputs)

    def update(self, weights: Doubles, labels: NoisyLabels, rows: Ints, clip: float) -> Doubles:
        """Return [rows, weights + 1] clipped gradients and losses of the devices `rows`."""
        inputs, many = self._of(rows), len(self._inputs)
        updates = np.empty((len(rows), len(weights) + 1))
        for start in range(0, len(rows), ROWS):
            here = slice(start, start + ROWS)
            some, part = [values[here] for values in inputs], updates[here]
            slope, loss = labels.slopes(_combined(weights, some), rows[here])
            for place, values in enumerate(some):
                part[:, place] = row_sums(values * slope)
            part[:, many:-1] = slope
            part[:, -1] = LOSS_SCALE * np.minimum(loss, LOSS_LIMIT)
            part *= clip_factors(np.sqrt((part**2).sum(axis=1)), clip)[:, None]
        return updates

    def _of(self, rows: Ints) -> list[Doubles]:
        """Return the inputs of some devices; those of the last call are cached."""
        if not np.array_equal(rows, self._selected[0]):
            self._selected = rows, [values[rows] for values in self._inputs]
        return self._selected[1]


def _combined(weights: Doubles, inputs: list[Doubles]) -> Doubles:
    """Return [rows, k] the weighted sum of the inputs, plus the bias of each class."""
    combined = np.zeros(inputs[0].shape) + weights[len(inputs) :]
    for weight, values in zip(weights, inputs, strict=False):
        combined += weight * values
    return combined


def selection_vectors(candidates: list[Doubles], labels: NoisyLabels, rows: Ints) -> Doubles:
    """Return [rows, 2 · candidates - 1] agreement, then gain and loss of each other candidate."""
    own, *others = (labels.agrees(logits[rows].argmax(axis=1), rows) for logits in candidates)
    columns = [own]
    for other in others:
        columns += [other & ~own, own & ~other]
    return np.stack(columns, axis=1).astype(np.float64)


class Selection(NamedTuple):
    """The result of private model selection."""

    choice: int
    """Number of the chosen candidate; 0 is the local classifier."""
    accuracy: tuple[float, float]
    """Estimated accuracy of the chosen candidate, and its standard error."""
    own: tuple[float, float]
    """The same for the local classifier."""
    gain: tuple[float, float] = (math.nan, math.nan)
    """Validation devices that the best other candidate gains over the local classifier, and the
    standard error."""

    @staticmethod
    def empty() -> "Selection":
        """Return the selection before anything was counted."""
        nothing = (math.nan, math.nan)
        return Selection(0, nothing, nothing)

    @staticmethod
    def of(total: Doubles, schedule: "ClassifySchedule") -> "Selection":
        """Choose a candidate by the noisy sum of all vectors."""
        spread = schedule["selection"].spread()
        gains, losses = total[1::2], total[2::2]
        best = 1 + int(np.argmax(gains - losses))
        net, moved = gains[best - 1] - losses[best - 1], gains[best - 1] + losses[best - 1]
        error = math.sqrt(max(1.0, moved) + 2 * spread**2)
        choice = best if net > 0 else 0
        agreed = total[0] + (net - _luck(net, error) if choice else 0.0)
        noises = 3 if choice else 1
        return Selection(
            choice,
            _accuracy(float(agreed), spread * math.sqrt(noises), schedule),
            _accuracy(float(total[0]), spread, schedule),
            (float(net), error),
        )

    def estimates(self) -> dict[str, float]:
        """Return the estimates by name, for results; none if nothing was counted.

        An accuracy lies between 0 and 1; noise alone would bring it beyond.
        """
        if math.isnan(self.accuracy[0]):
            return {}
        return {
            "selected_accuracy": min(1.0, max(0.0, self.accuracy[0])),
            "selected_accuracy_error": self.accuracy[1],
            "own_selected_accuracy": min(1.0, max(0.0, self.own[0])),
            "own_selected_accuracy_error": self.own[1],
        }


def _luck(net: float, error: float) -> float:
    """Return the mean error of a gain that is chosen if it is above 0, at a true gain of `net`.

    That of a normal number cut off at 0: σ φ(net/σ)/Φ(net/σ).
    """
    score = net / error
    return error * math.exp(-(score**2) / 2) / math.sqrt(2 * math.pi) / float(ndtr(score))


def _accuracy(agreed: float, spread: float, schedule: "ClassifySchedule") -> tuple[float, float]:
    """Return accuracy and its standard error, from the number of validation devices that agree.

    Sums do not show how often all digits of a class are right together. The accuracy is that of
    digits that are right independently of one another. Its error includes half of the distance to
    that of wrong classes whose digits are right by chance.
    """
    form = schedule.label_form
    digit, error = _unmixed(agreed, spread, schedule.validation, schedule)
    if form.places == 1:
        return digit, error
    chance = 1 / form.base
    digit = min(1.0, max(chance, digit))
    accuracy, otherwise = digit**form.places, (digit - chance) / (1 - chance)
    slope = form.places * digit ** (form.places - 1)
    return accuracy, math.hypot(slope * error, (otherwise - accuracy) / 2)


def _unmixed(
    agreed: float, spread: float, devices: float, schedule: "ClassifySchedule"
) -> tuple[float, float]:
    """Return how often a digit is right and its standard error, from the number of `devices` that
    agree; of a label in one place, that is the accuracy."""
    form, epsilon = schedule.label_form, schedule.strict.label_epsilon
    devices = max(1.0, devices)
    share = min(1.0, max(0.0, agreed / devices))
    other, strength = form.other(epsilon) / COIN, form.strength(epsilon)
    error = math.sqrt(share * (1 - share) / devices + (spread / devices) ** 2)
    return (agreed / devices - other) / strength, error / strength


def propagated_accuracy(total: Doubles, schedule: "ClassifySchedule") -> float | None:
    """Return how often a class in a propagated label is right, less `DOUBT` standard errors.

    None if it is not `SHOWN` to be right more often than by chance. Labels written as digits are
    compared where both are at the same place.

    Args:
        total: noisy numbers of validation devices whose label agrees with the class that they sent,
            and of those whose label does not.
    """
    form = schedule.label_form
    if form != schedule.propagated_label_form:  # labels that cannot be compared
        return 1 / schedule.propagated_label_form.base
    spread = form.places * schedule["agreement"].spread()
    agreed, devices = form.places * float(total[0]), float(total.sum())
    accuracy, error = _unmixed(agreed, spread, devices, schedule)
    if not accuracy - 1 / form.base > SHOWN * error:
        return None
    return min(MAX_ACCURACY, max(1 / form.base, accuracy - DOUBT * error))


def confidence_vectors(logits: Doubles, scales: Sequence[float], rows: Ints) -> Doubles:
    """Return [rows, scales] the probability of the most likely class of the devices `rows`."""
    shifted = logits[rows]
    shifted -= row_maxima(shifted)[:, None]
    sure = [1 / row_sums(np.exp(scale * shifted)) for scale in scales]  # the best class has e^0
    return np.stack(sure, axis=1)


def choose_scale(
    total: Doubles, scales: Sequence[float], selection: Selection, devices: int, noise: float
) -> float:
    """Return the factor for the final logits.

    Args:
        total: [scales] noisy sum of the devices' vectors; `scales` begin with 1.
        devices: number of devices in it.
        noise: standard deviation of its noise.
    """
    accuracy, error = selection.accuracy
    gaps = np.abs(total / max(1, devices) - accuracy)
    if not gaps[0] > math.hypot(error, noise / max(1, devices)):
        return 1.0
    return float(scales[int(np.argmin(gaps))])
