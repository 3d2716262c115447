"""A device's own features as the strict profile uses them: rows of norm 1.

Each device scales its own row, so that no device has a larger weight than another.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import diags_array, issparse

from lumos.aggregate.noise import clip_factors
from lumos.encode.bounds import Features, unit_rows
from lumos.typing import Doubles


class FeatureRows:
    """The hosted devices' features.

    Args:
        features: [hosted, d].
        train: [hosted] whether the device's features enter sums.
        nonnegative: negative numbers become 0.
    """

    def __init__(
        self, features: Features, train: npt.NDArray[np.bool_], *, nonnegative: bool = False
    ) -> None:
        self.train = np.flatnonzero(train)
        rows: Any = features
        if nonnegative:
            sparse: bool = issparse(rows)
            rows = rows.maximum(0) if sparse else np.maximum(rows, 0)
        self.all = unit_rows(rows)
        """[hosted, d]"""
        self.training: Any = self.all[self.train]
        """[training devices, d]"""

    @property
    def width(self) -> int:
        """d."""
        return int(self.all.shape[1])


def within(rows: Any, limit: float) -> Any:
    """Rows scaled down where they are longer than `limit`, by norms in double precision.

    `unit_rows` works in single precision, so its rows may be longer than 1 by some 1e-7.
    """
    sparse: bool = issparse(rows)
    exact: Any = rows.astype(np.float64)
    squares = exact.power(2) if sparse else exact**2
    factors = clip_factors(np.sqrt(np.asarray(squares.sum(axis=1)).ravel()), limit)
    if (factors == 1).all():
        return rows
    return diags_array(factors) @ rows if sparse else rows * factors[:, None]


def dense(rows: Any) -> Doubles:
    """The same as a dense array."""
    as_array: Any = getattr(rows, "toarray", None)
    return np.asarray(rows if as_array is None else as_array(), np.float64)


def row_products(rows: Any, table: Doubles) -> Doubles:
    """[rows, k] rows times a table, every row by itself.

    A product of whole matrices may round a row differently when there are more of them; results
    must not depend on how devices are spread over shards.
    """
    sparse: bool = issparse(rows)
    if sparse:
        return np.asarray(rows @ table)
    product: Doubles = np.matmul(np.asarray(rows, np.float64)[:, None, :], table)[:, 0]
    return product
