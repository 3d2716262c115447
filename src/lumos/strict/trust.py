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
from lumos.strict.short_rows import ROWS, row_sums
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
        self._inputs = [centred, *evidence]
        self._selected: tuple[Ints, list[Doubles]] = (np.arange(len(own)), self._inputs)

    @staticmethod
    def start(inputs: int, classes: int) -> Doubles:
        """The initial weights: one for each input, and a bias for each class."""
        return np.concatenate([START[:inputs], np.zeros(classes)])

    def logits(self, weights: Doubles) -> Doubles:
        """[hosted, k] all inputs, combined."""
        return _combined(weights, self._inputs)

    def update(self, weights: Doubles, labels: NoisyLabels, rows: Ints, clip: float) -> Doubles:
        """[rows, weights + 1] clipped gradients and losses of the devices `rows`."""
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
        """The inputs of some devices: those of the last call are kept."""
        if not np.array_equal(rows, self._selected[0]):
            self._selected = rows, [values[rows] for values in self._inputs]
        return self._selected[1]


def _combined(weights: Doubles, inputs: list[Doubles]) -> Doubles:
    """[rows, k] inputs [rows, k] times their weights, and the bias of each class."""
    combined = np.zeros(inputs[0].shape) + weights[len(inputs) :]
    for weight, values in zip(weights, inputs, strict=False):
        combined += weight * values
    return combined
