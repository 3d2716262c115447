"""Features as mechanisms need them: between public bounds, or of norm 1."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array, issparse

from lumos.errors import InputError, UsageError
from lumos.typing import Doubles, Floats

Sparse: TypeAlias = "csr_array[np.float32, tuple[int, int]]"
Features: TypeAlias = "Floats | Sparse"

MIN_SQUARED = 1e-15
"""Numbers between this and its inverse have squares that single precision can add up."""


def scaled(
    features: Features,
    low: float | npt.ArrayLike,
    high: float | npt.ArrayLike,
    *,
    to: tuple[float, float] = (0.0, 1.0),
) -> Features:
    """Features mapped linearly from the public bounds [low, high] to [a, b], and clipped.

    Bounds taken from the data would themselves be a release, so they are arguments.

    Args:
        features: [devices, d] dense or CSR; a CSR array stays one, so 0 must be mapped to 0.
        low, high: public bounds, one number or one per feature [d], low < high.
        to: (a, b), the bounds of the mechanism.
    """
    a, b = to
    least, most = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if not (np.isfinite(least).all() and np.isfinite(most).all() and (least < most).all()):
        raise UsageError("bounds: low must be below high, and both finite")
    _finite(features)
    factor = (b - a) / (most - least)
    if not issparse(features):
        moved = (np.asarray(features, np.float64) - least) * factor + a
        return np.clip(moved, a, b).astype(np.float32)
    if np.any(a - least * factor != 0):
        raise UsageError(
            f"bounds: sparse features need 0 mapped to 0, got low={low!r} to a={a!r}; "
            "use dense features or low = a = 0"
        )
    matrix = csr_array(features)
    spread = np.broadcast_to(factor, matrix.shape[1])[matrix.indices]
    data = np.clip(matrix.data.astype(np.float64) * spread, a, b).astype(np.float32)
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def of_one_scale(features: Any) -> bool:
    """Return whether all features lie between -1 and 1."""
    sparse: bool = issparse(features)
    values = np.asarray(features.data if sparse else features)
    return bool(values.min(initial=0) >= -1 and values.max(initial=0) <= 1)


def within(features: Features, a: float, b: float) -> None:
    """Raise `InputError` where features are not numbers in [a, b]."""
    _finite(features)
    values = features.data if issparse(features) else np.asarray(features)
    if issparse(features):
        values = np.append(values, 0)
    if values.size:
        refuse_outside(float(values.min()), float(values.max()), a, b)


def refuse_outside(lowest: float, highest: float, a: float, b: float) -> None:
    """Raise `InputError` where features between `lowest` and `highest` are not all in [a, b]."""
    if lowest < a or highest > b:
        raise InputError(
            f"features: some lie outside the public bounds [{a:g}, {b:g}]; "
            "give their public bounds with `low` and `high`, or scale them with lumos.ldp.scaled"
        )


def _finite(features: Features) -> None:
    values = features.data if issparse(features) else np.asarray(features)
    if not np.isfinite(values).all():
        raise InputError("features: some are not finite numbers")


def unit_rows(features: Any) -> Any:
    """Every row divided by its Euclidean norm, as float32; rows of zeros stay."""
    if issparse(features):
        matrix: Any = _squarable(features)
        squares = np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()
        return (diags_array(_inverse(np.sqrt(squares))) @ matrix).tocsr().astype(np.float32)
    full = _squarable(np.asarray(features, np.float32))
    return full * _inverse(np.linalg.norm(full, axis=1))[:, None].astype(np.float32)


def _squarable(features: Any) -> Any:
    """Rows scaled to a largest number of 1 if their squares may not fit single precision.

    All other rows keep every bit: what a device computes depends on no other device.
    """
    sparse = issparse(features)
    sizes: Any = abs(features)
    largest = sizes.max(axis=1).toarray().ravel() if sparse else sizes.max(axis=1, initial=0)
    extreme = (largest > 0) & ((largest < MIN_SQUARED) | (largest > 1 / MIN_SQUARED))
    if not extreme.any():
        return features
    factors = np.divide(1.0, largest, out=np.ones(len(largest)), where=extreme, dtype=np.float64)
    if not sparse:
        return (features * factors[:, None]).astype(features.dtype)
    rows: Any = csr_array(features)
    data = (rows.data * np.repeat(factors, np.diff(rows.indptr))).astype(rows.dtype)
    return csr_array((data, rows.indices, rows.indptr), shape=rows.shape)


def raw_rows(features: Features, *, unit: bool = False) -> Features:
    """Features without noise, of norm 1 with `unit`; dense ones as an array of their own.

    The features of a graph are write-protected, and torch takes no such array.
    """
    if unit:
        scaled_rows: Features = unit_rows(features)
        return scaled_rows
    return features if issparse(features) else np.array(features, np.float32)


def _inverse(norms: Any) -> Doubles:
    return np.where(norms > 0, 1 / np.maximum(norms, 1e-30), 0.0)
