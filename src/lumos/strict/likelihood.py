"""What neighbours' symbols say of a device's class: a log-likelihood, and how far to trust it.

**Matrix.** How often a device of class c has a neighbour that says s is learnt by one sum: every
training device adds the frequencies of its neighbours' symbols in the row of its own class, a
vector of norm at most 1. So homophily is not assumed: whatever neighbours say, its meaning is
learnt.

**Trust.** Neighbours are not independent, so the log-likelihood of many must be damped. Final
logits are own logits times a, plus the log-likelihood E times b_j · degree^-γ_j for three γ_j, plus
a bias for each class: a handful of weights, which noise in a sum can hardly hurt.

Everything here happens at home; what leaves are clipped updates, inside sums.
"""

import numpy as np

from lumos.aggregate.noise import clip_factors
from lumos.strict.encoder import LOSS_LIMIT, LOSS_SCALE, softmax_slope
from lumos.typing import Doubles, Flags, Ints

DAMPING = (0.0, 0.25, 0.5)
TRUST = 0.3
"""Trust in direct neighbours before training, at the middle damping."""


class ReceivedSymbols:
    """What the hosted devices have heard: counts of their neighbours' symbols, at home.

    Args:
        said: [slots, alphabet] what each neighbour released, as 0 or 1 for each symbol.
        owner: [slots] position of the device that heard it.
        hosted: number of hosted devices.
    """

    def __init__(self, said: Doubles, owner: Ints, hosted: int) -> None:
        columns = [np.bincount(owner, said[:, symbol], hosted) for symbol in range(said.shape[1])]
        self.counts: Doubles = np.stack(columns, axis=1)
        self.degree: Doubles = np.bincount(owner, minlength=hosted).astype(np.float64)

    def shares(self) -> Doubles:
        """[hosted, alphabet] frequencies; 0 for a device without neighbours."""
        found: Doubles = self.counts / np.maximum(self.counts.sum(axis=1), 1)[:, None]
        return found


def matrix_update(
    shares: Doubles, labels: Ints, train: Flags, classes: int, *, each: bool
) -> Doubles:
    """Frequencies in the row of the own class: [hosted, …] each, or their sum.

    Args:
        shares: [hosted, hops, alphabet].
        classes: k.
    """
    hops, alphabet = shares.shape[1:]
    some = np.flatnonzero(train)
    mine = shares[some] / np.sqrt(hops)  # so that the norm of all hops together is at most 1
    if not each:
        table = np.zeros((classes, hops, alphabet))
        np.add.at(table, labels[some], mine)
        return table.ravel()
    tables = np.zeros((len(train), classes, hops, alphabet))
    tables[some, labels[some]] = mine
    return tables.reshape(len(train), -1)


def ratios(total: Doubles, classes: int, alphabet: int) -> Doubles:
    """[hops, k, alphabet] log of P(symbol | class) / P(symbol), from the noisy sum."""
    by_class = total.reshape(classes, -1, alphabet).swapaxes(0, 1)
    table = np.maximum(by_class * np.sqrt(len(by_class)), 1.0)  # nothing is impossible
    likely = table / table.sum(axis=2, keepdims=True)
    before = table.sum(axis=1, keepdims=True) / table.sum(axis=(1, 2), keepdims=True)
    log: Doubles = np.log(likely / before)
    return log


class Trust:
    """The weighing of the own answer against the neighbours' evidence.

    Args:
        own: [hosted, k] logits of the own encoder.
        heard: what was heard, hop by hop.
        log_ratios: [hops, k, alphabet], see `ratios`.
    """

    def __init__(self, own: Doubles, heard: list[ReceivedSymbols], log_ratios: Doubles) -> None:
        inputs = [own]
        for hop, log in zip(heard, log_ratios, strict=True):
            evidence, degree = hop.counts @ log.T, np.maximum(hop.degree, 1.0)[:, None]
            inputs += [evidence * degree**-power for power in DAMPING]
        self._inputs = np.stack(inputs)
        self._classes = int(own.shape[1])

    @property
    def weights(self) -> int:
        """a, three b for each hop, and a bias for each class."""
        return len(self._inputs) + self._classes

    def start(self) -> Doubles:
        """The first weights."""
        start = np.zeros(self.weights)
        start[0], start[1 + DAMPING.index(0.25)] = 1.0, TRUST
        return start

    def logits(self, weights: Doubles) -> Doubles:
        """[hosted, k] the weighed answer."""
        count = len(self._inputs)
        weighed: Doubles = np.tensordot(weights[:count], self._inputs, axes=1)
        return weighed + weights[count:]

    def update(
        self, weights: Doubles, labels: Ints, train: Flags, clip: float, *, each: bool
    ) -> Doubles:
        """Clipped gradients and losses of the training devices: each, or their sum."""
        some = np.flatnonzero(train)
        slope, loss = softmax_slope(self.logits(weights)[some], labels[some])
        told = LOSS_SCALE * np.minimum(loss, LOSS_LIMIT)
        by_input = np.einsum("pnk,nk->np", self._inputs[:, some], slope)
        found = np.concatenate([by_input, slope, told[:, None]], axis=1)
        found *= clip_factors(np.linalg.norm(found, axis=1), clip)[:, None]
        if not each:
            total: Doubles = found.sum(axis=0)
            return total
        vectors = np.zeros((len(train), found.shape[1]))
        vectors[some] = found
        return vectors
