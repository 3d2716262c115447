"""The tree network of the strict profile, as a residual on the logits so far.

**Table of leaves.** With two layers a leaf depends on the two leaves of its branch only (errata
8d). Here both have randomized labels, so there are k² different branches. Weights are public, and a
device has its neighbours' randomized labels. So it computes all of its leaves locally, and pooling
needs no message. A device's tree has a branch for every message that it received. On its own side
of the branch it uses the class that its local classifier predicts, which never leaves it.

**Head.** It reads the logits so far (local classifier and evidence) and the pooled embedding,
scaled by the number of messages. Its output is added to those logits, and starts at 0.

**Gradients** are those of the table of leaves. Every device propagates their sum back through the
tree network, which is post-processing.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lumos.model import ModelSettings
from lumos.model.network import TreeNetwork
from lumos.model.tree_tensors import Trees
from lumos.secagg.noise import clip_factors
from lumos.strict.classify.encoder import LOSS_LIMIT, LOSS_SCALE
from lumos.strict.classify.labels import NoisyLabels
from lumos.strict.features import row_products
from lumos.typing import Doubles, Ints


class LeafTable:
    """The tree network on pairs of randomized labels; its parameters as one vector.

    Args:
        settings: backbone and widths; two layers.
        randomized_labels: number of values on a device's own side of a branch, k.
        alphabet: number of values on its neighbour's side; usually the same.
        generator: public randomness for the start.
    """

    def __init__(
        self,
        settings: ModelSettings,
        randomized_labels: int,
        alphabet: int,
        generator: np.random.Generator,
    ) -> None:
        self.shape = (randomized_labels, alphabet, settings.output)
        self._network = TreeNetwork(settings, max(randomized_labels, alphabet))
        self._network.initialise(generator)
        pair = torch.arange(randomized_labels * alphabet)
        eye = torch.eye(max(randomized_labels, alphabet))
        self._trees = Trees(
            owner=pair, workload=torch.ones(len(pair), dtype=torch.int64), virtual_nodes=True
        )
        self._inputs = eye[pair // alphabet].contiguous(), eye[pair % alphabet].contiguous()

    @property
    def width(self) -> int:
        """Width of a leaf."""
        return self.shape[2]

    @property
    def size(self) -> int:
        """Number of elements of the table."""
        return int(np.prod(self.shape))

    def vector(self) -> Doubles:
        """Return [weights] of the tree network."""
        flat = torch.nn.utils.parameters_to_vector(self._network.parameters())
        return flat.detach().numpy().astype(np.float64)

    def load(self, vector: Doubles) -> None:
        """Set all weights."""
        flat = torch.from_numpy(vector.astype(np.float32))
        torch.nn.utils.vector_to_parameters(flat, self._network.parameters())

    def table(self) -> Doubles:
        """Return [k, alphabet, width] the leaf for each pair of own and neighbour's value."""
        with torch.no_grad():
            leaves = self._leaves().numpy().astype(np.float64)
        return leaves.reshape(self.shape)

    def backward(self, total: Doubles) -> Doubles:
        """Return [weights] the gradient of the weights, from that of the table."""
        table = self._leaves()
        slope = torch.from_numpy(total.astype(np.float32)).view_as(table)
        parameters = list(self._network.parameters())
        gradients = torch.autograd.grad(
            table, parameters, slope, allow_unused=True, materialize_grads=True
        )
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients]).numpy()
        return flat.astype(np.float64)

    def _leaves(self) -> Tensor:
        leaves: Tensor = self._network(self._trees, *self._inputs).own
        return leaves


HIDDEN = 16
PRIOR = 3.0
"""Number of messages at which the pooled embedding has half of its weight."""


class ResidualInput(NamedTuple):
    """The inputs of the residual head. They stay on the device."""

    base: Doubles
    """[hosted, k] logits so far."""
    predicted: Ints
    """[hosted] class by the local classifier: the device's side of every branch."""
    frequencies: Doubles
    """[hosted, alphabet] frequencies of the values in messages of all kinds."""
    received: Doubles
    """[hosted] number of messages."""

    def of(self, rows: Ints) -> "ResidualInput":
        """Return the inputs of some devices."""
        return ResidualInput(
            self.base[rows], self.predicted[rows], self.frequencies[rows], self.received[rows]
        )


class ResidualHead:
    """The network that all devices share; its parameters as one vector.

    Args:
        settings: backbone and widths; two layers.
        classes: k.
        alphabet: number of values that messages of all kinds may name.
        generator: public randomness for the start.
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
        bound = np.sqrt(6 / (head_inputs + HIDDEN))  # Glorot and Bengio 2010
        first = generator.uniform(-bound, bound, (head_inputs, HIDDEN))
        self._shapes = [(head_inputs, HIDDEN), (HIDDEN,), (HIDDEN, classes), (classes,)]
        start = [first, np.zeros(HIDDEN), np.zeros((HIDDEN, classes)), np.zeros(classes)]
        self._head = np.concatenate([np.ravel(part) for part in start])

    @property
    def width(self) -> int:
        """Width of one device's update: table, head, loss."""
        return self._leaves.size + len(self._head) + 1

    def vector(self) -> Doubles:
        """Return [weights] of the tree network, then of the head."""
        return np.concatenate([self._leaves.vector(), self._head])

    def load(self, vector: Doubles) -> None:
        """Set all weights."""
        count = len(vector) - len(self._head)
        self._leaves.load(vector[:count])
        self._head = vector[count:].copy()

    def gradient(self, total: Doubles) -> Doubles:
        """Return the gradient of all weights from a sum of updates, by backpropagation."""
        size = self._leaves.size
        return np.concatenate([self._leaves.backward(total[:size]), total[size:-1]])

    def logits(self, inputs: ResidualInput) -> Doubles:
        """Return [hosted, k] the logits so far plus the residual."""
        hidden, _, _ = self._forward(inputs)
        _, _, out, bias = self._parts()
        logits: Doubles = inputs.base + row_products(hidden, out) + bias
        return logits

    def update(
        self, inputs: ResidualInput, labels: NoisyLabels, rows: Ints, clip: float
    ) -> Doubles:
        """Return [rows, width] clipped updates of the devices `rows`."""
        selected, many = inputs.of(rows), len(rows)
        hidden, head_inputs, scales = self._forward(selected)
        first, _, out, bias = self._parts()
        slope, loss = labels.slopes(selected.base + row_products(hidden, out) + bias, rows)
        below = row_products(slope, out.T) * (hidden > 0)
        back = row_products(below, first.T)[:, self.classes : -1]
        to_leaf = back[:, : self._width] * scales[0] + back[:, self._width :] * scales[1]
        tables = np.zeros((many, *self._leaves.shape))
        tables[np.arange(many), selected.predicted] = _outer(selected.frequencies, to_leaf)
        parts = [
            tables,
            _outer(head_inputs, below),
            below,
            _outer(hidden, slope),
            slope,
            LOSS_SCALE * np.minimum(loss, LOSS_LIMIT),
        ]
        flat = [part.reshape(many, math.prod(part.shape[1:])) for part in parts]
        updates = np.concatenate(flat, axis=1)
        updates *= clip_factors(np.sqrt((updates**2).sum(axis=1)), clip)[:, None]
        return updates

    def _forward(self, inputs: ResidualInput) -> tuple[Doubles, Doubles, tuple[Doubles, Doubles]]:
        """Return hidden layer, inputs of the head, and the two scales of the pooled embedding."""
        leaves = self._leaves.table()[inputs.predicted]
        # Every device by itself: a product of many rows may round each of them differently.
        mean = np.matmul(inputs.frequencies[:, None, :], leaves)[:, 0]
        received = inputs.received[:, None]
        scales = received / (received + PRIOR), received / np.sqrt(received + 1) / 3
        probabilities = np.exp(inputs.base - inputs.base.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        head_inputs = np.concatenate(
            [probabilities, mean * scales[0], mean * scales[1], np.log1p(received) / 5], axis=1
        )
        first, bias = self._parts()[:2]
        return np.maximum(0, row_products(head_inputs, first) + bias), head_inputs, scales

    def _parts(self) -> list[Doubles]:
        """Return the head's weights: first layer, its bias, second layer, its bias."""
        sizes = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]
        return [
            part.reshape(shape)
            for part, shape in zip(np.split(self._head, sizes), self._shapes, strict=True)
        ]


def _outer(rows: Doubles, slopes: Doubles) -> Doubles:
    """Return [rows, i, j] the outer product of each row and slope."""
    outer: Doubles = rows[:, :, None] * slopes[:, None, :]
    return outer
