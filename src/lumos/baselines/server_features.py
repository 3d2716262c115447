"""Features as a server that holds all of them uses them: brought to one scale, exactly.

Columns of different scales would cost a server accuracy for no reason, and a comparison with it
would flatter Lumos. Features between -1 and 1 stay as they are, as in the strict profile.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from lumos.encode.bounds import Features, of_one_scale, raw_rows


def server_rows(features: Features, *, unit: bool) -> Features:
    """[devices, d] features without noise, of one scale; rows of norm 1 with `unit`."""
    return raw_rows(_standardised(features), unit=unit)


def _standardised(features: Features) -> Features:
    if of_one_scale(features):
        return features
    if issparse(features):  # zeros stay zero
        rows: Any = csr_array(features)
        squares = np.asarray(rows.astype(np.float64).power(2).mean(axis=0)).ravel()
        sizes = np.sqrt(np.where(squares > 0, squares, 1.0))
        data = (rows.data / sizes[rows.indices]).astype(np.float32)
        return csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
    exact = np.asarray(features, np.float64)
    spread = exact.std(axis=0)
    moved = (exact - exact.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.asarray(moved, np.float32)
