"""A codebook learnt by sums: k directions in the space of features, and nobody sees a feature.

Spherical k-means (Dhillon and Modha 2001). One sum yields the total weight of each feature, so that
common features count less; then, round by round, every training device (in links, every device)
adds its row to the entry nearest to it, a vector of norm 1 in one of k blocks, and the sums become
the next entries. The index of a device's nearest entry stays on the device; the entries are public.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array, issparse

from lumos.device.coins import PublicCoins
from lumos.encode.bounds import unit_rows
from lumos.strict.feature_rows import FeatureRows, dense, within
from lumos.typing import Arrays, Doubles, Ints

ROUNDS = 8
EPOCHS = 1 + ROUNDS
"""Number of sums: one for the weights of the features, one for each round."""
RARE, DAMPING = 0.2, 0.75
"""A feature is rare below this share of the average total weight; features are weighted by their
total to the power -DAMPING. Chosen once, by the mutual information of neighbours' entries on
Facebook."""
DOUBT = 1.5
"""Numbers of a noisy sum below this many standard deviations count as 0."""


class Codebook:
    """The hosted devices' part in learning the entries.

    Args:
        rows: the devices' features.
        size: k, number of entries.
        coins: public coins for the initial entries.
        noise: standard deviation of the noise in every sum; 0 for exact sums.
        limit: largest norm of a device's vector.
    """

    def __init__(
        self,
        rows: FeatureRows,
        size: int,
        coins: PublicCoins,
        noise: float,
        limit: float = 1 + 1e-6,
    ) -> None:
        self._rows = rows
        self._size = size
        self._noise = noise
        self._limit = limit
        self.weights = np.zeros(rows.width)
        """[d] of the features; 0 before the first sum."""
        start = coins.generator("codebook").standard_normal((size, rows.width))
        self.entries: Doubles = start / np.linalg.norm(start, axis=1, keepdims=True)
        """[k, d] of norm 1."""

    def update(self, epoch: int, *, each: bool) -> Doubles:
        """The vectors of the hosted devices in this epoch: [hosted, …] each, or their sum."""
        training, hosted = self._rows.train, self._rows.all.shape[0]
        if epoch == 0:
            sizes: Any = abs(within(self._rows.training, self._limit))
            if not each:
                return np.asarray(sizes.sum(axis=0), np.float64).ravel()
            vectors = np.zeros((hosted, self._rows.width))
            vectors[training] = dense(sizes)
            return vectors
        rows: Any = within(self._weighted(self._rows.training), self._limit)
        code = np.asarray(rows @ self.entries.T).argmax(axis=1)
        if not each:
            many = len(training)
            here = csr_array((np.ones(many), (code, np.arange(many))), (self._size, many))
            return dense(here @ rows).ravel()
        blocks = np.zeros((hosted, self._size, rows.shape[1]))
        blocks[training, code] = dense(rows)
        return blocks.reshape(hosted, -1)

    def advance(self, epoch: int, total: Doubles) -> None:
        """Update weights or entries from the sum of an epoch."""
        if epoch == 0:
            # Very rare features count no more than rare ones: their sums are mostly noise.
            floor = max(RARE * total.mean(), 2 * self._noise, 1e-12)
            self.weights = np.maximum(total, floor) ** -DAMPING
            return
        sums = np.where(np.abs(total) > DOUBT * self._noise, total, 0.0)
        sums = sums.reshape(self._size, -1)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        # An entry that is nearest to no device stays as it is.
        self.entries = np.where(norms > 0, sums / np.maximum(norms, 1e-30), self.entries)

    def similarity(self) -> Doubles:
        """[hosted, k] cosine of each device's row and every entry. It stays on the device."""
        return np.asarray(self._weighted(self._rows.all) @ self.entries.T, np.float64)

    def nearest(self) -> Ints:
        """[hosted] index of the nearest entry. It stays on the device."""
        nearest: Ints = self.similarity().argmax(axis=1)
        return nearest

    def arrays(self) -> Arrays:
        """The public arrays by name."""
        return {"codebook": self.entries, "codebook_weights": self.weights}

    def load(self, arrays: Arrays) -> None:
        """Set entries and weights, as `arrays` returns them."""
        self.entries, self.weights = arrays["codebook"], arrays["codebook_weights"]

    def _weighted(self, rows: Any) -> Any:
        sparse: bool = issparse(rows)
        return unit_rows(rows @ diags_array(self.weights) if sparse else rows * self.weights)


def widths(features: int, size: int) -> tuple[int, int]:
    """Numbers in the first sum, and in each of the others."""
    return features, features * size
