"""What the neighbours' symbols add to a device's own answer: a tree network and a small head.

**Leaves** come from a table (`leaf_table`): one for each own symbol and each that a neighbour may
release. On its own side of the branch a device uses what its own encoder says, which never leaves.

**The head** reads what evidence has made of the own answer, and the pooled embedding, scaled by how
many neighbours speak. Its output is added to those logits, and starts at 0.

**Gradients** are clipped device by device in closed form: the gradient with respect to the table of
leaves is an outer product too.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.aggregate.noise import clip_factors
from lumos.model.settings import ModelSettings
from lumos.strict.encoder import LOSS_LIMIT, LOSS_SCALE, softmax_slope
from lumos.strict.leaf_table import LeafTable, pooled, table_gradient
from lumos.typing import Doubles, Ints

HIDDEN = 16
PRIOR = 3.0
"""With so many neighbours, half of what they say counts."""


class ResidualInput(NamedTuple):
    """What a device knows of its neighbours and of itself, at home."""

    own: Doubles
    """[hosted, k] logits so far."""
    said: Ints
    """[hosted] what its own encoder says: its side of every branch."""
    shares: Doubles
    """[hosted, alphabet] how its neighbours' symbols are spread."""
    degree: Doubles
    """[hosted] number of neighbours."""


class ResidualHead:
    """The network that all devices share; its parameters as one vector.

    Args:
        settings: backbone and widths; two layers.
        classes: k.
        alphabet: what neighbours may say.
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
        inputs = classes + 2 * self._width + 1
        reach = np.sqrt(6 / (inputs + HIDDEN))
        first = generator.uniform(-reach, reach, (inputs, HIDDEN))
        self._shapes = [(inputs, HIDDEN), (HIDDEN,), (HIDDEN, classes), (classes,)]
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
        return np.concatenate([self._leaves.back(total[:size]), total[size:-1]])

    def logits(self, known: ResidualInput) -> Doubles:
        """[hosted, k] the logits so far, corrected."""
        hidden, _, _ = self._forward(known)
        _, _, out, bias = self._parts()
        corrected: Doubles = known.own + hidden @ out + bias
        return corrected

    def update(
        self,
        known: ResidualInput,
        labels: Ints,
        train: npt.NDArray[np.bool_],
        clip: float,
        *,
        each: bool,
    ) -> Doubles:
        """Clipped updates of the training devices: [hosted, width] each, or their sum [width]."""
        some = np.flatnonzero(train)
        mine = ResidualInput(
            known.own[some], known.said[some], known.shares[some], known.degree[some]
        )
        hidden, inputs, scales = self._forward(mine)
        first, _, out, bias = self._parts()
        slope, loss = softmax_slope(mine.own + hidden @ out + bias, labels[some])
        told = LOSS_SCALE * np.minimum(loss, LOSS_LIMIT)
        below = (slope @ out.T) * (hidden > 0)
        back = (below @ first.T)[:, self.classes : -1]
        to_leaf = back[:, : self._width] * scales[0] + back[:, self._width :] * scales[1]
        squares = (
            _square(slope) * (_square(hidden) + 1)
            + _square(below) * (_square(inputs) + 1)
            + _square(to_leaf) * _square(mine.shares)
            + told**2
        )
        factor = clip_factors(np.sqrt(squares), clip)[:, None]
        slope, below, to_leaf = slope * factor, below * factor, to_leaf * factor
        told = told * factor[:, 0]
        if not each:
            table = table_gradient(self.classes, mine.said, mine.shares, to_leaf)
            parts = [table, inputs.T @ below, below.sum(axis=0), hidden.T @ slope]
            parts += [slope.sum(axis=0), told.sum()]
            return np.concatenate([np.ravel(part) for part in parts])
        tables = np.zeros((len(some), *self._leaves.shape))
        tables[np.arange(len(some)), mine.said] = np.einsum("nk,nw->nkw", mine.shares, to_leaf)
        rows = [
            tables,
            np.einsum("ni,nh->nih", inputs, below),
            below,
            np.einsum("nh,nk->nhk", hidden, slope),
            slope,
            told,
        ]
        vectors = np.zeros((len(train), self.width))
        vectors[some] = np.concatenate([row.reshape(len(some), -1) for row in rows], axis=1)
        return vectors

    def _forward(self, known: ResidualInput) -> tuple[Doubles, Doubles, tuple[Doubles, Doubles]]:
        """Hidden layer, inputs of the head, and how the pooled embedding was scaled, twice."""
        mean = pooled(self._leaves.table(), known.said, known.shares)
        degree = known.degree[:, None]
        scales = degree / (degree + PRIOR), degree / np.sqrt(degree + 1) / 3
        chances = np.exp(known.own - known.own.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        inputs = np.concatenate(
            [chances, mean * scales[0], mean * scales[1], np.log1p(degree) / 5], axis=1
        )
        first, bias = self._parts()[:2]
        return np.maximum(0, inputs @ first + bias), inputs, scales

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
