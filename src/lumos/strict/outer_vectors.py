"""Vectors of devices that are outer products: a gradient of a linear model is row times slope.

Written as factors they take a device's own features and a few numbers, however wide they are.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from lumos.strict.feature_rows import dense
from lumos.typing import Doubles


class OuterVectors(NamedTuple):
    """A vector for each device: its row ⊗ its slope, then `rest`."""

    rows: Any
    """[devices, d] sparse or dense."""
    slope: Doubles
    """[devices, k]"""
    rest: Doubles
    """[devices, m]"""

    def dense(self) -> Doubles:
        """[devices, d·k + m] written out."""
        outer = dense(self.rows)[:, :, None] * self.slope[:, None, :]
        table = self.rows.shape[1] * self.slope.shape[1]
        return np.concatenate([outer.reshape(len(self.slope), table), self.rest], axis=1)

    def inner(self, total: Doubles) -> Doubles:
        """[devices] inner products with one vector of d·k + m numbers."""
        table = total[: self.rows.shape[1] * self.slope.shape[1]]
        by_class = np.asarray(self.rows @ table.reshape(self.rows.shape[1], -1))
        product: Doubles = (by_class * self.slope).sum(axis=1)
        return product + self.rest @ total[len(table) :]

    def squared_distance(self, other: "OuterVectors") -> Doubles:
        """[devices] ‖x ⊗ s - x' ⊗ s'‖² = |x|²|s|² + |x'|²|s'|² - 2⟨x, x'⟩⟨s, s'⟩, and the rest."""
        lengths = [_row_products(v.rows, v.rows) * _squares(v.slope) for v in (self, other)]
        common = _row_products(self.rows, other.rows) * (self.slope * other.slope).sum(axis=1)
        square: Doubles = np.maximum(0.0, lengths[0] + lengths[1] - 2 * common)
        return square + _squares(self.rest - other.rest)


def _squares(rows: Doubles) -> Doubles:
    squares: Doubles = (rows**2).sum(axis=1)
    return squares


def _row_products(one: Any, two: Any) -> Doubles:
    """[rows] inner products of rows, in double precision."""
    sparse: bool = issparse(one)
    if sparse:
        products = one.astype(np.float64).multiply(two.astype(np.float64)).sum(axis=1)
        return np.asarray(products, np.float64).ravel()
    product: Doubles = (np.asarray(one, np.float64) * np.asarray(two, np.float64)).sum(axis=1)
    return product
