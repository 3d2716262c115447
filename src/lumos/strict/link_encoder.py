"""The encoder of `link`: embeddings of a device's words that are close where devices are linked.

Power iteration. z = unit(xᵀE) embeds the weighted words x of a device. A sum of b_u ⊗ z_v + b_v ⊗
z_u over matched edges (u, v), with few words b of each device, is Bᵀ A Z: next E is its orthogonal
basis. After a few sums E spans the directions of words that neighbours share most. Rare words weigh
more: a sum of counts says which are rare. At the end embeddings are whitened half way.

Every device computes its own embedding; E and the whitening are public, and carry noise.
"""

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from lumos.aggregate.noise import Noise
from lumos.device.coins import PublicCoins
from lumos.strict.feature_rows import row_products
from lumos.strict.word_rows import COUNTED, WordRows
from lumos.typing import Arrays, Doubles, Small

if TYPE_CHECKING:
    from lumos.strict.link.stages import LinkSchedule

Z_STEPS = 128
"""Embeddings enter products as multiples of 1/128."""
LEAST_COUNT = 40.0
"""Words are taken to have so many holders at least."""
FLATTEN = 0.25
"""Directions are scaled by their variance to the power of -1/4: half way to equal ones."""
LEAST_VARIANCE = 0.01
"""Smallest variance of a direction that is used, in those of the largest."""


class LinkEncoder:
    """The encoder of one shard: public matrices, and the hosted devices' words.

    Args:
        words: of the hosted devices.
        schedule: everything public.
        public: public coins, for the start.
    """

    def __init__(self, words: WordRows, schedule: "LinkSchedule", public: PublicCoins) -> None:
        self._words = words
        self._most = schedule.strict.words
        size = schedule.strict.embedding
        self.basis: Doubles = public.generator("basis").standard_normal((words.width, size))
        """[words, K] E."""
        self.mixing: Doubles = np.eye(size)
        """[K, K] whitening."""
        self._weigh(np.ones(words.width))

    def _weigh(self, weights: Doubles) -> None:
        self.weights = weights
        """[words]"""
        self._rows = self._words.weighted(weights)
        self.chosen: csr_array = self._words.chosen(weights, self._most)
        """[hosted, words] 0 or 1: b."""

    def learn_counts(self, total: Doubles, noise: Noise | None) -> None:
        """Take the sum of counts."""
        spread = 0.0 if noise is None else noise.total
        root = np.sqrt(COUNTED)
        self._weigh(np.maximum(total * root, max(LEAST_COUNT, 2 * spread * root)) ** -0.5)

    def learn_products(self, total: Doubles) -> None:
        """Take a sum of products, [words · K]; directions beyond the number of words are 0."""
        found = np.linalg.qr(total.reshape(self.basis.shape))[0]
        self.basis = np.zeros_like(self.basis)
        self.basis[:, : found.shape[1]] = found

    def learn_spread(self, total: Doubles) -> None:
        """Take the sum of `spread`."""
        size = self.basis.shape[1]
        matrix = np.zeros((size, size))
        above = np.triu_indices(size)
        matrix[above] = total / np.where(above[0] == above[1], 1, np.sqrt(2))
        matrix = matrix + matrix.T - np.diag(np.diag(matrix))
        variance, directions = np.linalg.eigh(matrix)
        variance = np.maximum(variance, LEAST_VARIANCE * max(float(variance.max()), 1e-12))
        self.mixing = directions * variance**-FLATTEN

    def embeddings(self) -> Doubles:
        """[hosted, K] of norm 1; 0 for a device without words."""
        return unit(row_products(row_products(self._rows, self.basis), self.mixing))

    def integers(self) -> Small:
        """[hosted, K] embeddings as multiples of 1/`Z_STEPS`, never longer than they are."""
        return np.trunc(self.embeddings() * (Z_STEPS - 1)).astype(np.int8)

    def spread(self) -> Doubles:
        """[hosted, K (K + 1) / 2] z zᵀ, the upper half, with the norm of the whole matrix."""
        z = self.embeddings()
        first, second = np.triu_indices(z.shape[1])
        products = z[:, first] * z[:, second] * np.where(first == second, 1, np.sqrt(2))
        return np.ascontiguousarray(products)

    def arrays(self) -> Arrays:
        """Everything that was learnt."""
        return {"weights": self.weights, "basis": self.basis, "mixing": self.mixing}

    def load(self, arrays: Arrays) -> None:
        """Take what was learnt before."""
        self.basis, self.mixing = arrays["basis"], arrays["mixing"]
        self._weigh(arrays["weights"])


def unit(rows: Doubles) -> Doubles:
    """Rows of norm 1; rows of zeros stay."""
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    scaled: Doubles = rows / np.maximum(norms, 1e-12)
    return scaled
