"""Arrays of a graph: finite, of the right shape, and write-protected."""

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lumos.errors import InputError
from lumos.typing import Flags, Ints

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    SparseFeatures: TypeAlias = csr_array[np.float32, tuple[int, int]]

BLOCK = 4096
WIDEST_PER_INDEX, WIDEST = 64, 1_000_000
"""Sparse features may be so many times as wide as the number of indices in use, and so much more.

One index far beyond all others would make models and sums as wide as it says: a single device could
ask everybody for any amount of memory.
"""


def refuse_width(width: int, used: int, where: str) -> None:
    """Refuse a number of columns, or of devices, far beyond those in use: before memory is asked.

    Raises:
        InputError: `width` is above `WIDEST_PER_INDEX` · `used` + `WIDEST`.
    """
    most = WIDEST_PER_INDEX * used + WIDEST
    if width > most:
        raise InputError(
            f"{where}: the index {width - 1} is far beyond the others, of which {used:,} are in "
            f"use (at most {most - 1} is read); number them from 0 without gaps"
        )


def freeze(array: Any, dtype: Any, *, own: bool = False) -> NDArray[Any]:
    """Return `array` write-protected; it is copied unless nobody else can write to it.

    With `own` the array is the callee's from now on, and is protected in place.
    """
    array = np.asarray(array, dtype=dtype)
    if not own and _writable_somewhere(array):
        array = array.copy()
    array.flags.writeable = False
    return np.asarray(array)


def _writable_somewhere(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return False


def is_sparse(features: Any) -> bool:
    """Whether `features` is a scipy sparse matrix or array (scipy is imported only for those)."""
    return type(features).__module__.startswith("scipy.sparse")


def frozen_sparse(features: Any) -> "SparseFeatures":
    """Return a write-protected copy in canonical compressed rows of float32."""
    from scipy.sparse import csr_array

    rows = csr_array(features, dtype=np.float32)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    parts = (
        freeze(rows.data, np.float32),
        freeze(rows.indices, rows.indices.dtype),
        freeze(rows.indptr, rows.indptr.dtype),
    )
    return csr_array(parts, shape=rows.shape, copy=False)


def finite_features(features: Any, devices: int, what: str) -> Any:
    """Check that `features` is [devices, width] of finite numbers that fit into float32."""
    sparse = is_sparse(features)
    if not sparse:
        features = np.asarray(features)
    if len(features.shape) != 2 or features.shape[0] != devices:
        shape = list(features.shape)
        raise InputError(f"{what}: one row per device is needed, [{devices}, width]; got {shape}")
    if features.dtype.kind not in "biuf":
        raise InputError(f"{what}: real numbers are needed; got {features.dtype}")
    if sparse:
        from scipy.sparse import csr_array

        features = csr_array(features)
        width = int(features.shape[1])
        if width > WIDEST:
            refuse_width(width, len(np.unique(features.indices)), what)
        wrong = np.flatnonzero(~fits_float32(features.data))
        if len(wrong):
            row = int(np.searchsorted(features.indptr, wrong[0], side="right")) - 1
            refuse_feature(what, row, int(features.indices[wrong[0]]), features.data[wrong[0]])
        return features.astype(np.float32, copy=False)
    if features.dtype.kind == "f":
        # In blocks: a mask of a large matrix would be a quarter of its size.
        for start in range(0, devices, BLOCK):
            places = np.argwhere(~fits_float32(features[start : start + BLOCK]))
            if len(places):
                row, column = start + int(places[0][0]), int(places[0][1])
                refuse_feature(what, row, column, features[row, column])
    return features.astype(np.float32, copy=False)


def fits_float32(values: Any) -> Flags:
    """Where `values` are finite as float32 (a comparison with NaN is false)."""
    return np.asarray(np.abs(values) <= np.finfo(np.float32).max)


def refuse_feature(what: str, row: int, column: int, value: Any) -> None:
    """Raise the error for a feature that is NaN, infinite or too large."""
    raise InputError(
        f"{what}: row {row}, column {column} is {value}; replace it by a finite number"
    )


def integer_labels(labels: Any, devices: int, what: str) -> Ints:
    """Check that `labels` is [devices] of integers, -1 where unknown."""
    array = np.asarray(labels)
    if array.shape != (devices,):
        shape = list(array.shape)
        raise InputError(f"{what}: one label per device is needed, [{devices}]; got {shape}")
    if array.dtype.kind not in "iub":
        raise InputError(f"{what}: integers are needed, -1 where unknown; got {array.dtype}")
    array = array.astype(np.int64, copy=False)
    if len(array) and array.min() < -1:
        row = int(np.argmin(array))
        raise InputError(f"{what}: row {row} is {array[row]}; only -1 (unknown) may be negative")
    return array
