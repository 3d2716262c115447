"""The own encoder: a linear softmax on a device's own features. Its output stays on the device.

Linear, because the norm of the noise in a sum grows with the number of weights.
"""

from typing import Any

import numpy as np
from scipy.sparse import issparse

from lumos.aggregate.noise import clip_factors
from lumos.strict.feature_rows import FeatureRows, dense
from lumos.typing import Doubles, Ints

LOSS_SCALE = 0.02
"""The loss is in the same sum as the gradient, scaled down so that it adds little to the norm."""
LOSS_LIMIT = 5.0


class Encoder:
    """Gradients of the hosted devices' encoders.

    Args:
        rows: the devices' features.
        labels: [hosted].
        classes: k.
    """

    def __init__(self, rows: FeatureRows, labels: Ints, classes: int) -> None:
        self._rows = rows
        self._labels = labels[rows.train]
        self.classes = classes
        training: Any = rows.training
        squares = training.power(2) if issparse(rows.training) else training**2
        self._norms = np.sqrt(np.asarray(squares.sum(axis=1), np.float64).ravel() + 1)

    @property
    def weights(self) -> int:
        """Number of weights: a column for each feature and the bias, for each class."""
        return (self._rows.width + 1) * self.classes

    def logits(self, weights: Doubles) -> Doubles:
        """[hosted, k]"""
        return self._apply(self._rows.all, weights)

    def update(self, weights: Doubles, clip: float, *, each: bool) -> Doubles:
        """Clipped gradient and loss of the training devices: [hosted, …] each, or their sum.

        Norms are those of the whole vector, in closed form: a gradient is an outer product.
        """
        slope, loss = softmax_slope(self._apply(self._rows.training, weights), self._labels)
        scaled_loss = LOSS_SCALE * np.minimum(loss, LOSS_LIMIT)
        norms = np.sqrt((np.linalg.norm(slope, axis=1) * self._norms) ** 2 + scaled_loss**2)
        factor = clip_factors(norms, clip)
        slope *= factor[:, None]
        scaled_loss *= factor
        if not each:
            table = np.asarray(self._rows.training.T @ slope)
            return np.concatenate([table.ravel(), slope.sum(axis=0), [scaled_loss.sum()]])
        vectors = np.zeros((self._rows.all.shape[0], self.weights + 1))
        outer = np.einsum("nd,nk->ndk", dense(self._rows.training), slope)
        vectors[self._rows.train] = np.concatenate(
            [outer.reshape(len(slope), -1), slope, scaled_loss[:, None]], axis=1
        )
        return vectors

    def _apply(self, rows: Any, weights: Doubles) -> Doubles:
        table = weights.reshape(-1, self.classes)
        product: Doubles = np.asarray(rows @ table[:-1]) + table[-1]
        return product


def softmax_slope(logits: Doubles, labels: Ints) -> tuple[Doubles, Doubles]:
    """Softmax minus one-hot [rows, k], and the cross-entropy [rows]."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    total = exponentials.sum(axis=1, keepdims=True)
    here = np.arange(len(labels))
    loss: Doubles = np.log(total[:, 0]) - shifted[here, labels]
    slope: Doubles = exponentials / total
    slope[here, labels] -= 1
    return slope, loss
