"""Public bounds of features: every device maps its own values to 0 … 1, and nobody tells any."""

from pathlib import Path
from typing import Any

import numpy as np

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import BLOCK, is_sparse
from lumos.graph.files import readable, text_of
from lumos.graph.options import scalar_bounds
from lumos.graph.text_table import NUMBER, table_of
from lumos.typing import Doubles

BOUNDS_NOTE = "features: every device maps its own values from public bounds to 0 … 1"
LARGEST_DENSE = 1 << 28
"""Sparse features with a lower bound other than 0 become dense: so many numbers at most."""


def read_bounds(text: str, width: int) -> tuple[Doubles, Doubles]:
    """[width] the lower and upper bounds that `feature_bounds` says: two numbers, or a file."""
    scalars = scalar_bounds(text)
    if scalars is not None:
        return checked_bounds(*scalars, width=width)
    with readable(text):
        content = Path(text).read_bytes()
    table = table_of(text_of(content, text), text)
    low, high = 0, 1
    if "low" in table.header and "high" in table.header:
        low, high = table.header.index("low"), table.header.index("high")
    rows = []
    for line, row in table.rows():
        cells = [row[column] if column < len(row) else "" for column in (low, high)]
        if not all(NUMBER.fullmatch(cell) for cell in cells):
            table.refuse(line, "two numbers are needed, low,high")
        rows.append([float(cell) for cell in cells])
    if len(rows) != width:
        raise InputError(
            f"{text}: {len(rows)} rows of bounds for {width} columns of features; give one each"
        )
    array = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return checked_bounds(array[:, 0], array[:, 1], width=width, what=text)


def checked_bounds(
    low: Any, high: Any, *, width: int, what: str = "bounds"
) -> tuple[Doubles, Doubles]:
    """[width] lower and upper bounds: finite, each lower one below its upper one."""
    made = []
    for name, side in (("low", low), ("high", high)):
        try:
            array = np.asarray(side, dtype=np.float64)
            made.append(np.broadcast_to(array, (width,)))
        except (TypeError, ValueError):
            raise UsageError(
                f"{what}: {name} is a number, or one per column of features, [{width}]"
            ) from None
    lower, upper = made
    wrong = np.flatnonzero(~(np.isfinite(lower) & np.isfinite(upper) & (lower < upper)))
    if len(wrong):
        column = int(wrong[0])
        raise UsageError(
            f"{what}: {lower[column]:g} to {upper[column]:g} (column {column}) are no bounds; the "
            "lower one must be below the upper one, both finite"
        )
    return lower, upper


def bounded(features: Any, low: Doubles, high: Doubles, what: str = "features") -> Any:
    """[devices, width] (x - low) / (high - low), clipped to 0 … 1, as float32.

    Sparse features stay sparse where every lower bound is 0.
    """
    span = high - low
    if is_sparse(features) and not np.any(low):
        rows = features.tocsr().astype(np.float32)
        rows.data = np.clip(rows.data / span[rows.indices], 0, 1).astype(np.float32)
        rows.eliminate_zeros()
        return rows
    if is_sparse(features):
        if features.shape[0] * features.shape[1] > LARGEST_DENSE:
            raise InputError(
                f"{what}: they are sparse, and lower bounds other than 0 would fill "
                f"{features.shape[0]:,} x {features.shape[1]:,} numbers; use 0 as the lower bound"
            )
        features = features.toarray()
    made = np.empty(features.shape, np.float32)
    for start in range(0, len(made), BLOCK):
        block = features[start : start + BLOCK].astype(np.float64)
        made[start : start + BLOCK] = np.clip((block - low) / span, 0, 1)
    return made
