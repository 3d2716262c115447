"""The words of the hosted devices: features as links use them.

A word is a feature that is not zero; where features may be negative, a negative one is another word
than a positive one.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array

from lumos.encode.bounds import Features
from lumos.typing import Doubles, Ints

COUNTED = 32
"""Words of a device that count in full in the sum of counts; with more, each counts less."""


class WordRows:
    """Words, and what is made of them at home.

    Args:
        features: [hosted, d].
        signed: whether features may be negative; otherwise negative ones are no words.
    """

    def __init__(self, features: Features, *, signed: bool) -> None:
        given: Any = features
        rows: Any = csr_array(given).astype(np.float64)
        parts = [rows.maximum(0)] + ([(-rows).maximum(0)] if signed else [])
        columns = [csr_array(part).tocoo() for part in parts]
        d = rows.shape[1]
        row = np.concatenate([part.row for part in columns])
        column = np.concatenate([part.col + place * d for place, part in enumerate(columns)])
        width = d * len(parts)
        values = np.concatenate([part.data for part in columns])
        kept = values > 0
        self._values = csr_array(
            (values[kept], (row[kept], column[kept])), shape=(rows.shape[0], width)
        )
        """[hosted, words] positive."""
        self._values.sum_duplicates()
        self.width = width

    @staticmethod
    def count(features: int, *, signed: bool) -> int:
        """Return the number of words that `features` features give."""
        return features * (2 if signed else 1)

    def replaced(self, columns: Ints) -> None:
        """Give every word of every device another name: [words] (the control)."""
        self._values = csr_array(
            (self._values.data, columns, self._values.indptr), shape=self._values.shape
        )
        self._values.sum_duplicates()

    @property
    def held(self) -> Ints:
        """[hosted] number of words of each device."""
        return np.diff(self._values.indptr)

    def _presence(self) -> csr_array:
        """[hosted, words] 1 where a device has the word."""
        values = self._values
        return csr_array((np.ones(values.nnz), values.indices, values.indptr), shape=values.shape)

    def shares(self) -> csr_array:
        """[hosted, words] rows of norm at most 1: equal numbers, 1/√`COUNTED` or smaller."""
        scale = 1 / np.sqrt(np.maximum(self.held, COUNTED))
        return csr_array(diags_array(scale) @ self._presence())

    def weighted(self, weights: Doubles) -> csr_array:
        """[hosted, words] rows of norm 1, each word times its weight; empty rows stay empty."""
        rows = csr_array(self._values @ diags_array(weights))
        norms = np.sqrt(rows.power(2).sum(axis=1))
        return csr_array(diags_array(1 / np.maximum(norms, 1e-300)) @ rows)

    def chosen(self, weights: Doubles, most: int) -> csr_array:
        """[hosted, words] 1 for the `most` words of each device that weigh most.

        Words of equal weight are taken in the order of their columns.
        """
        rows = csr_array(self._values @ diags_array(weights))
        owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        order = np.lexsort((rows.indices, -rows.data, owner))
        place = np.arange(len(order)) - rows.indptr[:-1][owner]
        taken = order[place < most]
        return csr_array(
            (np.ones(len(taken)), (owner[taken], rows.indices[taken])), shape=rows.shape
        )
