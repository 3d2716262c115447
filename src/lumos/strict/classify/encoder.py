"""The local classifier: a linear softmax on a device's features. Its output stays on the device.

Linear, because the norm of the noise in a sum grows with the number of weights. Few sums and large
steps: the noise of all sums together is the same for any number of them, and large steps with
clipped gradients get through in a dozen.

**Counts.** One sum of rows estimates how often each feature occurs; features are then weighted by
max(count, 3·noise)^-0.375, so that rare ones count more, but not those that are lost in noise.
**Bias.** A column of 0.05: a column of 1 beside a row of norm 1 would spend half of the squared
sensitivity on k numbers.
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
from lumos.strict.classify.labels import NoisyLabels
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
        rows: the devices' features, of norm 1.
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
        self._training: Any = self.rows[self._base.train]
        exact = self._training.astype(np.float64)
        squares = exact.power(2) if sparse else exact**2
        self._squares = np.asarray(squares.sum(axis=1)).ravel() + BIAS**2

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
        """Weight the features by a sum of counts."""
        noise = self._schedule["counts"].noise()
        least = max(1e-6, RARE * noise.total) if noise is not None else 1.0
        self.feature_weights = np.maximum(total, least) ** -DAMPING
        self._use_weights()

    def largest_feature(self) -> float:
        """Return the mean size of the largest feature in unit rows, from the noisy counts."""
        return float(self._mean_sizes().max(initial=0.0))

    def alike(self) -> float:
        """Return the squared norm of the mean sizes of all features above the noise."""
        return min(1.0, float((self._mean_sizes() ** 2).sum()))

    def _mean_sizes(self) -> Doubles:
        """Return mean sizes in unit rows of the features above the noise of their counts."""
        weights = self.feature_weights
        clear = weights[weights < weights.max(initial=0.0)]  # all others have the same weight
        sizes: Doubles = clear ** (-1 / DAMPING) / max(1, self._schedule.training)
        return np.minimum(sizes, 1.0)

    def count_vectors(self) -> OuterVectors:
        """Return the training devices' parts of the counts: a row, and nothing else."""
        rows = abs(within(self._base.training, self._schedule["counts"].limit(self._base.width)))
        devices = len(self._base.train)
        return OuterVectors(rows, np.ones((devices, 1)), np.empty((devices, 0)))

    def gradients(self) -> OuterVectors:
        """Return clipped gradients and losses of the training devices.

        Norms are those of the whole vector, in closed form: a gradient is an outer product.
        """
        train = self._base.train
        slope, loss = self._labels.slopes(self._apply(self._training), train)
        scaled_loss = LOSS_SCALE * self._schedule.strength * np.minimum(loss, LOSS_LIMIT)
        norms = np.sqrt(row_sums(slope**2) * self._squares + scaled_loss**2)
        factor = clip_factors(norms, self._schedule["encoder"].limit(self.width))
        slope *= factor[:, None]
        scaled_loss *= factor
        rest = np.concatenate([BIAS * slope, scaled_loss[:, None]], axis=1)
        return OuterVectors(self._training, slope, rest)

    def update(self, *, each: bool) -> Doubles:
        """Return clipped gradients and losses: [hosted, …] each, or their sum."""
        gradients = self.gradients()
        if each:
            vectors = np.zeros((self._base.all.shape[0], self.width))
            vectors[self._base.train] = gradients.dense()
            return vectors
        rest = self._rounded(gradients.rest).sum(axis=0)
        return np.concatenate([self._outer_sum(gradients.slope).ravel(), rest])

    def learn(self, total: Doubles, step: int) -> None:
        """Take one step along a sum of gradients."""
        schedule = self._schedule
        self.velocity *= MOMENTUM
        self.velocity += total[:-1].reshape(self.weights.shape) / max(1, schedule.training)
        share = schedule.falling(step) / schedule.total_falling
        self.weights -= self._length() * share * (1 - MOMENTUM) * self.velocity

    def mean_loss(self, total: Doubles) -> float:
        """Return the mean loss in a sum of updates."""
        scale = LOSS_SCALE * self._schedule.strength * max(1, self._schedule.training)
        return float(total[-1] / scale)

    def state_dict(self) -> Arrays:
        """Return everything that the next steps depend on."""
        return {
            "feature_weights": self.feature_weights,
            "encoder": self.weights,
            "velocity": self.velocity,
        }

    def load_state_dict(self, state: Arrays) -> None:
        """Go on from a state, or use the weights of an earlier run."""
        self.feature_weights = state["feature_weights"].copy()
        self.weights = state["encoder"].copy()
        self.velocity = state.get("velocity", np.zeros_like(self.weights)).copy()
        self._use_weights()

    def _length(self) -> float:
        """Return the total length of all steps, in gradients of a mean loss."""
        schedule = self._schedule
        if not schedule.noisy:
            return LONGEST * schedule.strength
        free = RATE * schedule.whole_mu * schedule.training / schedule.features_change
        return min(free, LONGEST) * schedule.strength

    def _outer_sum(self, slope: Doubles) -> Doubles:
        """Return [d, k] the sum of rounded outer products of row and slope; exact in any order."""
        rows, width = self._training, self._base.width
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
