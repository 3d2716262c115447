"""The own encoder: a linear softmax on a device's own features. Its answer stays home.

Rows are scaled to norm 1 at home, so that no device weighs more than another. Linear, because the
norm of the noise in a sum grows with the number of weights.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import diags_array, issparse

from lumos.aggregate.noise import clip_factors
from lumos.device.coins import PublicCoins
from lumos.encode.bounds import Features

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LOSS_SCALE = 0.02
"""The loss travels in the same sum as the gradient, so small that it hardly counts in the norm."""
LOSS_LIMIT = 5.0


class Encoder:
    """Inputs and gradients of the hosted devices' encoders.

    Args:
        features: [hosted, d].
        labels: [hosted].
        train: [hosted] whether the device trains.
        classes: k.
    """

    def __init__(
        self, features: Features, labels: Ints, train: npt.NDArray[np.bool_], classes: int
    ) -> None:
        self._train = np.flatnonzero(train)
        self._labels = labels[self._train]
        self.classes = classes
        self._use(unit_rows(features))

    def _use(self, rows: Any) -> None:
        self._rows = rows
        self._some = rows[self._train]
        squares = self._some.multiply(self._some) if issparse(rows) else self._some**2
        self._norms = np.sqrt(np.asarray(squares.sum(axis=1), np.float64).ravel() + 1)

    @property
    def weights(self) -> int:
        """Number of weights: a column for each feature and the bias, for each class."""
        return (int(self._rows.shape[1]) + 1) * self.classes

    def holders(self) -> Doubles:
        """[hosted, d] 1 where a training device has the feature: summed, the number of holders."""
        has = np.zeros((self._rows.shape[0], self._rows.shape[1]))
        has[self._train] = _dense(self._some) != 0
        return has

    def holder_counts(self) -> Doubles:
        """[d] the same, summed over the hosted devices."""
        counts = (self._some != 0).sum(axis=0)
        return np.asarray(counts, np.float64).ravel()

    def keep(self, columns: Ints) -> None:
        """Use these features only."""
        self._use(unit_rows(self._rows[:, columns]))

    def project(self, width: int, coins: PublicCoins) -> None:
        """Mix the features by a public random matrix of ±1."""
        signs = coins.generator("projection").integers(0, 2, (self._rows.shape[1], width))
        mixed = self._rows @ (2.0 * signs - 1).astype(np.float32)
        self._use(unit_rows(np.asarray(mixed, np.float32)))

    def logits(self, weights: Doubles) -> Doubles:
        """[hosted, k] what the encoders say."""
        return self._apply(self._rows, weights)

    def update(self, weights: Doubles, clip: float, *, each: bool) -> Doubles:
        """Clipped gradient and loss of the training devices: [hosted, …] each, or their sum.

        Norms are those of the whole vector, in closed form: a gradient is an outer product.
        """
        slope, loss = softmax_slope(self._apply(self._some, weights), self._labels)
        told = LOSS_SCALE * np.minimum(loss, LOSS_LIMIT)
        norms = np.sqrt((np.linalg.norm(slope, axis=1) * self._norms) ** 2 + told**2)
        factor = clip_factors(norms, clip)
        slope *= factor[:, None]
        told *= factor
        if not each:
            table = np.asarray(self._some.T @ slope)
            return np.concatenate([table.ravel(), slope.sum(axis=0), [told.sum()]])
        vectors = np.zeros((self._rows.shape[0], self.weights + 1))
        outer = np.einsum("nd,nk->ndk", _dense(self._some), slope)
        vectors[self._train] = np.concatenate(
            [outer.reshape(len(slope), -1), slope, told[:, None]], axis=1
        )
        return vectors

    def _apply(self, rows: Any, weights: Doubles) -> Doubles:
        table = weights.reshape(-1, self.classes)
        product: Doubles = np.asarray(rows @ table[:-1]) + table[-1]
        return product


def unit_rows(features: Any) -> Any:
    """Rows of norm 1; rows of zeros stay zero."""
    if issparse(features):
        matrix: Any = features
        squares = np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()
        return (diags_array(_inverse(np.sqrt(squares))) @ matrix).tocsr().astype(np.float32)
    dense = np.asarray(features, np.float32)
    return dense * _inverse(np.linalg.norm(dense, axis=1))[:, None].astype(np.float32)


def softmax_slope(logits: Doubles, labels: Ints) -> tuple[Doubles, Doubles]:
    """Softmax minus one-hot [rows, k], and the cross-entropy [rows]."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    chances = np.exp(shifted)
    total = chances.sum(axis=1, keepdims=True)
    here = np.arange(len(labels))
    loss: Doubles = np.log(total[:, 0]) - shifted[here, labels]
    slope: Doubles = chances / total
    slope[here, labels] -= 1
    return slope, loss


def _dense(rows: Any) -> Doubles:
    as_array: Any = getattr(rows, "toarray", None)
    return np.asarray(rows if as_array is None else as_array(), np.float64)


def _inverse(norms: Any) -> Doubles:
    return np.where(norms > 0, 1 / np.maximum(norms, 1e-30), 0.0)
