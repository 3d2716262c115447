"""Trust: a few weights that combine the own logits with the evidence of neighbours' messages.

Final logits are own logits times a, plus the evidence of symbols and of each opinion times a weight
of its own, plus a bias for each class. Messages of one device are not independent, and an opinion
repeats some of what symbols say already: the weights learn by how much. So few of them hardly
suffer from noise in the sums.
"""

import numpy as np

from lumos.aggregate.noise import clip_factors
from lumos.strict.noisy_labels import NoisyLabels
from lumos.strict.own_classifier import LOSS_LIMIT, LOSS_SCALE
from lumos.typing import Doubles, Ints

START = (1.0, 1.0, 0.7, 0.5, 0.4)
"""Initial weights: own, symbols, first opinion, second, third."""
RATE = 0.06


class Trust:
    """The inputs of the hosted devices; they stay on the device.

    Args:
        own: [hosted, k] logits of the own encoder.
        evidence: of symbols and of each opinion, [hosted, k] each.
    """

    def __init__(self, own: Doubles, evidence: list[Doubles]) -> None:
        centred = own - own.mean(axis=1, keepdims=True)
        self._inputs = np.stack([centred, *evidence])
        self._classes = int(own.shape[1])

    @staticmethod
    def start(inputs: int, classes: int) -> Doubles:
        """The initial weights: one for each input, and a bias for each class."""
        return np.concatenate([START[:inputs], np.zeros(classes)])

    def logits(self, weights: Doubles) -> Doubles:
        """[hosted, k] all inputs, combined."""
        return _combined(weights, self._inputs)

    def update(self, weights: Doubles, labels: NoisyLabels, rows: Ints, clip: float) -> Doubles:
        """[hosted, weights + 1] clipped gradients and losses of `rows`; zeros elsewhere."""
        inputs = self._inputs[:, rows]
        slope, loss = labels.slopes(_combined(weights, inputs), rows)
        by_input = [(values * slope).sum(axis=1) for values in inputs]
        scaled_loss = LOSS_SCALE * np.minimum(loss, LOSS_LIMIT)
        updates = np.concatenate([np.stack(by_input, axis=1), slope, scaled_loss[:, None]], axis=1)
        updates *= clip_factors(np.sqrt((updates**2).sum(axis=1)), clip)[:, None]
        vectors = np.zeros((self._inputs.shape[1], updates.shape[1]))
        vectors[rows] = updates
        return vectors


def _combined(weights: Doubles, inputs: Doubles) -> Doubles:
    """[rows, k] inputs [inputs, rows, k] times their weights, and the bias of each class."""
    combined = np.zeros(inputs.shape[1:]) + weights[len(inputs) :]
    for weight, values in zip(weights, inputs, strict=False):
        combined += weight * values
    return combined
