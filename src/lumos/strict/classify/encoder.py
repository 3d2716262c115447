"""The local classifier: a linear softmax on a device's features. Its output stays on the device.

Linear, because the norm of the noise in a sum grows with the number of weights. Few sums and large
steps: the noise of all sums together is the same for any number of them, and large steps with
clipped gradients get through in a dozen.

**Counts.** One sum of rows estimates how often each feature occurs; features are then weighted by
max(count, 3·noise)^-0.375, so that rare ones count more, but not those that are lost in noise.
**Bias.** A column of 0.05: a column of 1 beside a row of norm 1 would spend half of the squared
sensitivity on k numbers.
**Mean row.** Rows with many features have a large part in common, along which the loss is far more
curved than elsewhere: steps would overshoot there, and undo each other. Classes do not differ in
it. So gradients are used without their part along the mean row, which the counts tell.
**All devices.** Where few devices train (`participation`), the others add gradients too: each for
the propagated label that it has sent, corrected for how often these are right. It is public what
was sent, so this costs an edge nothing further. Features have equal weights then: rare ones would
be lost in noise. If these labels are not shown to be right more often than by chance, the local
classifier is that of the labelled devices alone.
**Rate.** The length of all steps together is RATE · r · μ · n / change: then the noise that ends up
in a weight is about the same for any number of devices n and any budget μ, so one setting serves
all graphs. `LONGEST` bounds it for large federations and for exact sums.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from lumos.ldp.bounds import unit_rows
from lumos.secagg.noise import clip_factors
from lumos.strict.classify.labels import NoisyLabels, forward_slopes
from lumos.strict.features import FeatureRows, OuterVectors, dense, row_products, row_sums, within
from lumos.typing import Arrays, Doubles, Ints

if TYPE_CHECKING:
    from lumos.strict.classify.stages import ClassifySchedule


LOSS_SCALE = 0.02
"""The loss is in the same sum as the gradient, scaled down so that it adds little to the norm."""
LOSS_LIMIT = 5.0
BIAS = 0.05
RARE, DAMPING = 3.0, 0.375
RATE, MOMENTUM = 2.8, 0.5
LONGEST = 40_000.0
_ROWS, _SPARSE_ROWS = 256, 1 << 12  # devices whose products are rounded at a time

Rounding = Callable[[Doubles], Doubles]
"""Rounds numbers as a sum encodes them."""


class Encoder:
    """The hosted devices' part in training the encoder.

    Args:
        rows: the devices' features, of norm 1, and who trains.
        labels: the devices' randomized labels.
        schedule: everything public.
        rounded: rounds one device's numbers as a sum does.
    """

    def __init__(
        self,
        rows: FeatureRows,
        labels: NoisyLabels,
        schedule: "ClassifySchedule",
        rounded: Rounding,
    ) -> None:
        self._base = rows
        self._labels = labels
        self._schedule = schedule
        self._rounded = rounded
        self.classes = schedule.classes
        self.feature_weights = np.ones(rows.width)
        """[d]"""
        self.mean_sizes = np.zeros(rows.width)
        """[d] mean sizes in unit rows of the features above the noise of their counts, else 0."""
        others = np.ones(rows.all.shape[0], np.bool_)
        others[rows.train] = False
        self._others = np.flatnonzero(others & schedule.all_take_part)
        self._likelihood = np.ones((len(self._others), self.classes))
        """[others, k] of the propagated label that a device without a training label sent."""
        self._part = 0.0
        """Norm of its vectors, as a share of that of a training device."""
        self._num_adding = schedule.adding
        """Number of devices that add gradients, in all shards."""
        self.weights = np.zeros((rows.width + 1, self.classes))
        """[d + 1, k] with the bias in the last row."""
        self.velocity = np.zeros_like(self.weights)
        self._use_weights()

    @property
    def width(self) -> int:
        """Width of one device's update: table, bias, loss."""
        return self.weights.size + 1

    def _use_weights(self) -> None:
        """Weight the features, and scale every row to norm 1 again."""
        rows: Any = self._base.all
        weights, sparse = self.feature_weights, bool(issparse(rows))
        if sparse:
            weighted = rows.copy()
            weighted.data = weighted.data * weights[weighted.indices]
        else:
            weighted = rows * weights
        self.rows: Any = unit_rows(weighted)
        """[hosted, d] weighted features of norm 1."""
        self._adding: Any = self.rows[self.adding]
        exact = self._adding.astype(np.float64)
        squares = exact.power(2) if sparse else exact**2
        self._squares = np.asarray(squares.sum(axis=1)).ravel() + BIAS**2

    @property
    def adding(self) -> Ints:
        """Positions of the devices that add gradients: those that train come first."""
        return np.concatenate([self._base.train, self._others])

    def use_propagated_labels(self, likelihood: Doubles, strength: float) -> None:
        """Let devices without a training label use the propagated label that they have sent.

        Args:
            likelihood: [hosted, k] of that label given each class, with two values in a row.
            strength: r = p - q of it; a device's vector shrinks by it, as with a randomized label.
        """
        self._likelihood = likelihood[self._others]
        self._part = min(self._schedule.others_part, strength / self._schedule.strength)

    def leave_out_others(self) -> None:
        """Train as if labelled devices only took part: the vectors of the others are zero."""
        schedule = self._schedule
        if self._num_adding == schedule.training:
            return
        self._others, self._num_adding = self._others[:0], schedule.training
        self._likelihood = self._likelihood[:0]
        self._weight_features(self.mean_sizes * max(1, schedule.training))
        self._use_weights()

    def logits(self) -> Doubles:
        """Return [hosted, k] logits."""
        return self._apply(self.rows)

    def counts(self, *, each: bool) -> Doubles:
        """Return absolute features of the training devices: [hosted, d] each, or their sum."""
        rows = self.count_vectors().rows
        if each:
            vectors = np.zeros((self._base.all.shape[0], self._base.width))
            vectors[self._base.train] = dense(rows)
            return vectors
        sparse: bool = issparse(rows)
        if sparse:
            sizes = self._rounded(rows.data.astype(np.float64))
            return _totals(rows.indices, sizes, self._base.width)
        total: Doubles = self._rounded(rows.astype(np.float64)).sum(axis=0)
        return total

    def learn_counts(self, total: Doubles) -> None:
        """Weight the features by a sum of counts, and remember their mean sizes."""
        schedule = self._schedule
        if not schedule.all_take_part:
            self._weight_features(total)
        sizes = np.where(total > self._least_count(), total, 0.0) / max(1, schedule.training)
        self.mean_sizes = np.minimum(sizes, 1.0)
        self._use_weights()

    def _weight_features(self, counts: Doubles) -> None:
        self.feature_weights = np.maximum(counts, self._least_count()) ** -DAMPING

    def _least_count(self) -> float:
        """Return the count below which a feature is lost in noise."""
        noise = self._schedule["counts"].noise()
        return max(1e-6, RARE * noise.total) if noise is not None else 1.0

    def largest_feature(self) -> float:
        """Return the mean size of the largest feature in unit rows, from the noisy counts."""
        return float(self.mean_sizes.max(initial=0.0))

    def alike(self) -> float:
        """Return the squared norm of the mean sizes of all features above the noise."""
        return min(1.0, float((self.mean_sizes**2).sum()))

    def count_vectors(self) -> OuterVectors:
        """Return the training devices' parts of the counts: a row, and nothing else."""
        rows = abs(within(self._base.training, self._schedule["counts"].limit(self._base.width)))
        devices = len(self._base.train)
        return OuterVectors(rows, np.ones((devices, 1)), np.empty((devices, 0)))

    def gradients(self) -> OuterVectors:
        """Return clipped gradients and losses of the devices that add.

        Norms are those of the whole vector, in closed form: a gradient is an outer product.
        """
        training = self._base.train
        logits = self._apply(self._adding)
        first, loss = self._labels.slopes(logits[: len(training)], training)
        rest, _ = forward_slopes(logits[len(training) :], self._likelihood)
        slope = np.concatenate([first, rest])
        scaled_loss = np.zeros(len(slope))  # that of training devices
        scaled_loss[: len(loss)] = (
            LOSS_SCALE * self._schedule.strength * np.minimum(loss, LOSS_LIMIT)
        )
        norms = np.sqrt(row_sums(slope**2) * self._squares + scaled_loss**2)
        stage = self._schedule["encoder"]
        factor = clip_factors(norms, stage.limit(self.width))
        factor[len(training) :] = clip_factors(
            norms[len(training) :], stage.limit(self.width, self._part)
        )
        slope *= factor[:, None]
        scaled_loss *= factor
        last = np.concatenate([BIAS * slope, scaled_loss[:, None]], axis=1)
        return OuterVectors(self._adding, slope, last)

    def update(self, *, each: bool) -> Doubles:
        """Return clipped gradients and losses: [hosted, …] each, or their sum."""
        gradients = self.gradients()
        if each:
            vectors = np.zeros((self._base.all.shape[0], self.width))
            vectors[self.adding] = gradients.dense()
            return vectors
        rest = self._rounded(gradients.rest).sum(axis=0)
        return np.concatenate([self._outer_sum(gradients.slope).ravel(), rest])

    def learn(self, total: Doubles, step: int) -> None:
        """Take one step along a sum of gradients."""
        schedule = self._schedule
        gradient = total[:-1].reshape(self.weights.shape) / max(1, self._num_adding)
        self.velocity *= MOMENTUM
        self.velocity += self._without_mean(gradient)
        share = schedule.falling(step) / schedule.total_falling
        self.weights -= self._length() * share * (1 - MOMENTUM) * self.velocity

    def _without_mean(self, gradient: Doubles) -> Doubles:
        """Return a gradient without its part along the mean row, for features without signs."""
        mean = self.mean_sizes * self.feature_weights
        norm = float(np.sqrt((mean**2).sum()))
        if self._schedule.signed or not norm:
            return gradient
        mean /= norm
        along = (mean[:, None] * gradient[:-1]).sum(axis=0)
        rest: Doubles = gradient.copy()
        rest[:-1] -= mean[:, None] * along
        return rest

    def mean_loss(self, total: Doubles) -> float:
        """Return the mean loss in a sum of updates."""
        scale = LOSS_SCALE * self._schedule.strength * max(1, self._schedule.training)
        return float(total[-1] / scale)

    def state_dict(self) -> Arrays:
        """Return everything that the next steps depend on."""
        return {
            "feature_weights": self.feature_weights,
            "mean_sizes": self.mean_sizes,
            "encoder": self.weights,
            "velocity": self.velocity,
        }

    def load_state_dict(self, state: Arrays) -> None:
        """Go on from a state, or use the weights of an earlier run."""
        self.feature_weights = state["feature_weights"].copy()
        self.mean_sizes = state.get("mean_sizes", self.mean_sizes).copy()
        self.weights = state["encoder"].copy()
        self.velocity = state.get("velocity", np.zeros_like(self.weights)).copy()
        self._use_weights()

    def _length(self) -> float:
        """Return the total length of all steps, in gradients of a mean loss."""
        schedule = self._schedule
        free = RATE * schedule.whole_mu * self._num_adding / schedule.features_change
        return min(free, LONGEST) * schedule.strength

    def _outer_sum(self, slope: Doubles) -> Doubles:
        """Return [d, k] the sum of rounded outer products of row and slope; exact in any order."""
        rows, width = self._adding, self._base.width
        sparse: bool = issparse(rows)
        if sparse:
            columns = np.zeros((self.classes, width))
            for start in range(0, rows.shape[0], _SPARSE_ROWS):
                here = slice(start, start + _SPARSE_ROWS)
                ends = rows.indptr[start : start + _SPARSE_ROWS + 1]
                data = rows.data[ends[0] : ends[-1]].astype(np.float64)
                places, held = rows.indices[ends[0] : ends[-1]], np.diff(ends)
                for label, column in enumerate(columns):
                    products = data * np.repeat(slope[here, label], held)
                    column += _totals(places, self._rounded(products), width)
            return np.ascontiguousarray(columns.T)
        total = np.zeros((width, self.classes))
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS].astype(np.float64)
            outer = part[:, :, None] * slope[start : start + _ROWS, None, :]
            total += self._rounded(outer).sum(axis=0)
        return total

    def _apply(self, rows: Any) -> Doubles:
        """Return [rows, k] logits."""
        shifted: Doubles = row_products(rows, self.weights[:-1]) + BIAS * self.weights[-1]
        return shifted


def _totals(places: Ints, values: Doubles, width: int) -> Doubles:
    """Return [width] the sum of the values at each place."""
    totals: Doubles = np.bincount(places, values, width).astype(np.float64)
    return totals
