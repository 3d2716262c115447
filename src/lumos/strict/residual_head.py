"""The residual head: a tree network on symbols and a small head, added to the logits so far.

**Leaves** come from a table (`leaf_table`): one for each own symbol and each that a neighbour may
release. On its own side of the branch a device uses the class that its own encoder predicts, which
never leaves.

**The head** reads the logits so far (own encoder and log-likelihood) and the pooled embedding,
scaled by the number of neighbours. Its output is added to those logits, and starts at 0.

**Gradients** are clipped device by device in closed form: the gradient with respect to the table of
leaves is an outer product too.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.aggregate.noise import clip_factors
from lumos.model.settings import ModelSettings
from lumos.strict.leaf_table import LeafTable, pooled, table_gradient
from lumos.strict.own_classifier import LOSS_LIMIT, LOSS_SCALE, softmax_slope
from lumos.typing import Doubles, Ints

HIDDEN = 16
PRIOR = 3.0
"""Number of neighbours at which the pooled embedding counts half."""


class ResidualInput(NamedTuple):
    """The inputs of the residual head. They stay on the device."""

    base: Doubles
    """[hosted, k] logits so far."""
    predicted: Ints
    """[hosted] class by the own encoder: the device's side of every branch."""
    frequencies: Doubles
    """[hosted, alphabet] of its neighbours' symbols."""
    degree: Doubles
    """[hosted] number of neighbours."""


class ResidualHead:
    """The network that all devices share; its parameters as one vector.

    Args:
        settings: backbone and widths; two layers.
        classes: k.
        alphabet: number of symbols that a neighbour may release.
        generator: public coins for the start.
    """

    def __init__(
        self,
        settings: ModelSettings,
        classes: int,
        alphabet: int,
        generator: np.random.Generator,
    ) -> None:
        self.classes = classes
        self._leaves = LeafTable(settings, classes, alphabet, generator)
        self._width = self._leaves.width
        head_inputs = classes + 2 * self._width + 1
        reach = np.sqrt(6 / (head_inputs + HIDDEN))
        first = generator.uniform(-reach, reach, (head_inputs, HIDDEN))
        self._shapes = [(head_inputs, HIDDEN), (HIDDEN,), (HIDDEN, classes), (classes,)]
        start = [first, np.zeros(HIDDEN), np.zeros((HIDDEN, classes)), np.zeros(classes)]
        self._head = np.concatenate([np.ravel(part) for part in start])

    @property
    def width(self) -> int:
        """Numbers in one device's update: table, head, loss."""
        return self._leaves.size + len(self._head) + 1

    def vector(self) -> Doubles:
        """[weights] tree network, then head."""
        return np.concatenate([self._leaves.vector(), self._head])

    def load(self, vector: Doubles) -> None:
        """Set all weights."""
        count = len(vector) - len(self._head)
        self._leaves.load(vector[:count])
        self._head = vector[count:].copy()

    def gradient(self, total: Doubles) -> Doubles:
        """From a sum of updates to the gradient of all weights: back through the tree network."""
        size = self._leaves.size
        return np.concatenate([self._leaves.backward(total[:size]), total[size:-1]])

    def logits(self, inputs: ResidualInput) -> Doubles:
        """[hosted, k] the logits so far plus the residual."""
        hidden, _, _ = self._forward(inputs)
        _, _, out, bias = self._parts()
        logits: Doubles = inputs.base + hidden @ out + bias
        return logits

    def update(
        self,
        inputs: ResidualInput,
        labels: Ints,
        train: npt.NDArray[np.bool_],
        clip: float,
        *,
        each: bool,
    ) -> Doubles:
        """Clipped updates of the training devices: [hosted, width] each, or their sum [width]."""
        training = np.flatnonzero(train)
        selected = ResidualInput(
            base=inputs.base[training],
            predicted=inputs.predicted[training],
            frequencies=inputs.frequencies[training],
            degree=inputs.degree[training],
        )
        hidden, head_inputs, scales = self._forward(selected)
        first, _, out, bias = self._parts()
        slope, loss = softmax_slope(selected.base + hidden @ out + bias, labels[training])
        scaled_loss = LOSS_SCALE * np.minimum(loss, LOSS_LIMIT)
        below = (slope @ out.T) * (hidden > 0)
        back = (below @ first.T)[:, self.classes : -1]
        to_leaf = back[:, : self._width] * scales[0] + back[:, self._width :] * scales[1]
        squares = (
            _square(slope) * (_square(hidden) + 1)
            + _square(below) * (_square(head_inputs) + 1)
            + _square(to_leaf) * _square(selected.frequencies)
            + scaled_loss**2
        )
        factor = clip_factors(np.sqrt(squares), clip)[:, None]
        slope, below, to_leaf = slope * factor, below * factor, to_leaf * factor
        scaled_loss = scaled_loss * factor[:, 0]
        if not each:
            table = table_gradient(self.classes, selected.predicted, selected.frequencies, to_leaf)
            parts = [table, head_inputs.T @ below, below.sum(axis=0), hidden.T @ slope]
            parts += [slope.sum(axis=0), scaled_loss.sum()]
            return np.concatenate([np.ravel(part) for part in parts])
        tables = np.zeros((len(training), *self._leaves.shape))
        tables[np.arange(len(training)), selected.predicted] = np.einsum(
            "nk,nw->nkw", selected.frequencies, to_leaf
        )
        rows = [
            tables,
            np.einsum("ni,nh->nih", head_inputs, below),
            below,
            np.einsum("nh,nk->nhk", hidden, slope),
            slope,
            scaled_loss,
        ]
        vectors = np.zeros((len(train), self.width))
        vectors[training] = np.concatenate([row.reshape(len(training), -1) for row in rows], axis=1)
        return vectors

    def _forward(self, inputs: ResidualInput) -> tuple[Doubles, Doubles, tuple[Doubles, Doubles]]:
        """Hidden layer, inputs of the head, and the two scales of the pooled embedding."""
        mean = pooled(self._leaves.table(), inputs.predicted, inputs.frequencies)
        degree = inputs.degree[:, None]
        scales = degree / (degree + PRIOR), degree / np.sqrt(degree + 1) / 3
        probabilities = np.exp(inputs.base - inputs.base.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        head_inputs = np.concatenate(
            [probabilities, mean * scales[0], mean * scales[1], np.log1p(degree) / 5], axis=1
        )
        first, bias = self._parts()[:2]
        return np.maximum(0, head_inputs @ first + bias), head_inputs, scales

    def _parts(self) -> list[Doubles]:
        """The head's weights: first layer, its bias, second layer, its bias."""
        sizes = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]
        return [
            part.reshape(shape)
            for part, shape in zip(np.split(self._head, sizes), self._shapes, strict=True)
        ]


def _square(rows: Doubles) -> Doubles:
    squares: Doubles = (rows**2).sum(axis=1)
    return squares
