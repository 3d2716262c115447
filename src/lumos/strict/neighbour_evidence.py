"""The log-likelihood of a device's class given its neighbours' symbols, and its weights.

**Matrix.** P(neighbour releases s | device is of class c) is learnt by one sum: every training
device adds the frequencies of its neighbours' symbols in the row of its own class, a vector of norm
at most 1. So homophily is not assumed: the meaning of a symbol is learnt.

**Trust.** Neighbours are not independent, so the log-likelihood of many must be damped. Final
logits are own logits times a, plus the log-likelihood E times b_j · degree^-γ_j for three γ_j, plus
a bias for each class: a handful of weights, which noise in a sum harms little.

All of this is computed on the device; only clipped updates leave it, inside sums.
"""

import numpy as np

from lumos.aggregate.noise import clip_factors
from lumos.strict.own_classifier import LOSS_LIMIT, LOSS_SCALE, softmax_slope
from lumos.typing import Doubles, Flags, Ints

DAMPING = (0.0, 0.25, 0.5)
TRUST = 0.3
"""Initial weight of direct neighbours, at the middle damping."""


class ReceivedSymbols:
    """Counts of the symbols that the hosted devices received. They stay on the device.

    Args:
        symbols: [slots, alphabet] each neighbour's release, as 0 or 1 for each symbol.
        owner: [slots] position of the device that received it.
        hosted: number of hosted devices.
    """

    def __init__(self, symbols: Doubles, owner: Ints, hosted: int) -> None:
        columns = [np.bincount(owner, column, hosted) for column in symbols.T]
        self.counts: Doubles = np.stack(columns, axis=1)
        self.degree: Doubles = np.bincount(owner, minlength=hosted).astype(np.float64)

    def frequencies(self) -> Doubles:
        """[hosted, alphabet]; 0 for a device without neighbours."""
        frequencies: Doubles = self.counts / np.maximum(self.counts.sum(axis=1), 1)[:, None]
        return frequencies


def matrix_update(
    frequencies: Doubles, labels: Ints, train: Flags, classes: int, *, each: bool
) -> Doubles:
    """Frequencies in the row of the own class: [hosted, …] each, or their sum.

    Args:
        frequencies: [hosted, hops, alphabet].
        classes: k.
    """
    hops, alphabet = frequencies.shape[1:]
    training = np.flatnonzero(train)
    scaled = frequencies[training] / np.sqrt(
        hops
    )  # so that the norm of all hops together is at most 1
    if not each:
        table = np.zeros((classes, hops, alphabet))
        np.add.at(table, labels[training], scaled)
        return table.ravel()
    tables = np.zeros((len(train), classes, hops, alphabet))
    tables[training, labels[training]] = scaled
    return tables.reshape(len(train), -1)


def ratios(total: Doubles, classes: int, alphabet: int) -> Doubles:
    """[hops, k, alphabet] log of P(symbol | class) / P(symbol), from the noisy sum."""
    by_class = total.reshape(classes, -1, alphabet).swapaxes(0, 1)
    table = np.maximum(by_class * np.sqrt(len(by_class)), 1.0)  # no probability is 0
    given_class = table / table.sum(axis=2, keepdims=True)
    overall = table.sum(axis=1, keepdims=True) / table.sum(axis=(1, 2), keepdims=True)
    log: Doubles = np.log(given_class / overall)
    return log


class Trust:
    """A few weights that combine the own logits with the neighbours' log-likelihoods.

    Args:
        own: [hosted, k] logits of the own encoder.
        received: the symbols of each hop.
        log_ratios: [hops, k, alphabet], see `ratios`.
    """

    def __init__(self, own: Doubles, received: list[ReceivedSymbols], log_ratios: Doubles) -> None:
        inputs = [own]
        for hop, log in zip(received, log_ratios, strict=True):
            likelihood, degree = hop.counts @ log.T, np.maximum(hop.degree, 1.0)[:, None]
            inputs += [likelihood * degree**-power for power in DAMPING]
        self._inputs = np.stack(inputs)
        self._classes = int(own.shape[1])

    @property
    def weights(self) -> int:
        """a, three b for each hop, and a bias for each class."""
        return len(self._inputs) + self._classes

    def start(self) -> Doubles:
        """The initial weights."""
        start = np.zeros(self.weights)
        start[0], start[1 + DAMPING.index(0.25)] = 1.0, TRUST
        return start

    def logits(self, weights: Doubles) -> Doubles:
        """[hosted, k] own logits and log-likelihoods, combined."""
        count = len(self._inputs)
        combined: Doubles = np.tensordot(weights[:count], self._inputs, axes=1)
        return combined + weights[count:]

    def update(
        self, weights: Doubles, labels: Ints, train: Flags, clip: float, *, each: bool
    ) -> Doubles:
        """Clipped gradients and losses of the training devices: each, or their sum."""
        training = np.flatnonzero(train)
        slope, loss = softmax_slope(self.logits(weights)[training], labels[training])
        scaled_loss = LOSS_SCALE * np.minimum(loss, LOSS_LIMIT)
        by_input = np.einsum("pnk,nk->np", self._inputs[:, training], slope)
        updates = np.concatenate([by_input, slope, scaled_loss[:, None]], axis=1)
        updates *= clip_factors(np.linalg.norm(updates, axis=1), clip)[:, None]
        if not each:
            total: Doubles = updates.sum(axis=0)
            return total
        vectors = np.zeros((len(train), updates.shape[1]))
        vectors[training] = updates
        return vectors
