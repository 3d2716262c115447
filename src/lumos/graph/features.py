"""Columns of features: categories become one-hot, numbers are mapped by public bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import BLOCK, finite_features, is_sparse, refuse_width, shown
from lumos.graph.io import ReadOptions, scalar_bounds
from lumos.graph.io.folder import readable, text_of
from lumos.graph.io.text_table import NUMBER, table_of
from lumos.graph.labels import encode, texts_of, unlikely
from lumos.typing import Doubles, Floats

MAX_NAMED = 12
"""Categories of a column that a note names, at most."""


@dataclass(frozen=True)
class Columns:
    """Features as a source holds them."""

    matrix: Any
    """[devices, width] numbers, dense or sparse; anything in columns that `texts` has."""
    names: Sequence[str] = ()
    """[width] the names of the columns, or nothing."""
    numbers: Sequence[int] = ()
    """[width] the numbers of the columns, as errors count; otherwise from 0."""
    texts: Mapping[int, Sequence[str | None]] = field(default_factory=dict)
    """Columns that hold text: [devices] each."""

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.matrix.shape[1]) if len(self.matrix.shape) == 2 else 0

    def name(self, column: int) -> str:
        """Return a column as messages name it."""
        return shown(self.names[column]) if self.names else str(self.numbering[column])

    @property
    def numbering(self) -> Sequence[int]:
        """[width] the number of each column."""
        return self.numbers or range(self.width)


def chosen_columns(
    wanted: Sequence[str], names: Sequence[str], numbers: Sequence[int], what: str
) -> list[int]:
    """Return indices of the columns that `categorical` lists, by name or number.

    Args:
        wanted: the list.
        names: [width] of all columns, or nothing.
        numbers: [width] of all columns, as errors count.
        what: the source, as errors name it.

    Raises:
        UsageError: there is no such column.
    """
    number = {name.casefold(): index for index, name in enumerate(names)}
    found = []
    for column in wanted:
        index = number.get(column.casefold(), -1)
        if index < 0 and column.isdecimal() and int(column) in numbers:
            index = numbers.index(int(column))
        if index < 0:
            has = ", ".join(map(str, names[:MAX_NAMED])) if names else ""
            has = has or (f"numbers {numbers[0]} … {numbers[-1]}" if numbers else "none")
            raise UsageError(
                f"{what}: there is no column {shown(column)} for `categorical` (it has: {has})"
            )
        found.append(index)
    return sorted(set(found))


def prepared(columns: Columns, options: ReadOptions, what: str) -> tuple[Any, tuple[str, ...]]:
    """Return [devices, width] the features as a graph keeps them, and notes.

    Each column of `categorical` is replaced, where it stands, by one column per category: 1 for the
    devices that have it; a device without a category has none of them. All other columns are mapped
    by `feature_bounds`.
    """
    wanted = options.categorical_columns
    matrix = columns.matrix
    if not wanted and not options.feature_bounds:
        return matrix, ()
    if len(matrix.shape) != 2:
        raise InputError(f"{what}: [devices, width] is needed; got {list(matrix.shape)}")
    devices = matrix.shape[0]
    if is_sparse(matrix):
        # Before anything is as wide as the matrix says.
        refuse_width(columns.width, int(matrix.nnz), what)
    chosen = chosen_columns(wanted, columns.names, columns.numbering, what)
    blocks: dict[int, Floats] = {}
    notes: list[str] = []
    for column in chosen:
        texts = columns.texts.get(column)
        if texts is None:
            texts = texts_of(
                _dense_column(matrix, column), f"{what}, column {columns.name(column)}"
            )
        blocks[column], categories = _one_hot(texts, f"{what}, column {columns.name(column)}")
        more = len(categories) - MAX_NAMED
        listed = ", ".join(categories[:MAX_NAMED]) + (f", and {more} more" if more > 0 else "")
        notes.append(
            f"features: column {columns.name(column)} is one-hot, its {len(categories)} categories "
            f"are public: {listed}"
        )
    kept = [column for column in range(columns.width) if column not in blocks]
    rest = finite_features(matrix[:, kept] if blocks else matrix, devices, what)
    if options.feature_bounds:
        low, high = read_bounds(options.feature_bounds, columns.width)
        rest = bounded(rest, low[kept], high[kept], what)
        notes.append(BOUNDS_NOTE)
    return _joined(rest, kept, blocks), tuple(notes)


def _dense_column(matrix: Any, column: int) -> Any:
    values = matrix[:, [column]]
    return np.asarray(values.toarray() if is_sparse(values) else values)[:, 0]


def _one_hot(texts: Sequence[str | None], what: str) -> tuple[Floats, tuple[str, ...]]:
    """Return [devices, categories] of 1 where a device has the category; and the categories."""
    labels, categories = encode([text or None for text in texts])
    known = np.flatnonzero(labels >= 0)
    if unlikely(len(categories), len(known)):
        raise InputError(
            f"{what}: {len(categories):,} different values on {len(known):,} devices are no "
            "categories; take it out of `categorical`"
        )
    made = np.zeros((len(labels), len(categories)), np.float32)
    made[known, labels[known]] = 1
    return made, categories


def _joined(rest: Any, kept: Sequence[int], blocks: Mapping[int, Floats]) -> Any:
    """Return [devices, width] all columns in the order of the source."""
    if not blocks:
        return rest
    parts: list[Any] = []
    start = 0
    for column, block in sorted(blocks.items()):
        end = int(np.searchsorted(kept, column))
        parts += [rest[:, start:end], block]
        start = end
    parts.append(rest[:, start:])
    if not is_sparse(rest):
        return np.hstack(parts)
    from scipy.sparse import csr_array, hstack

    return csr_array(hstack([csr_array(part) for part in parts]))


BOUNDS_NOTE = "features: every device maps its own values from public bounds to 0 … 1"
MAX_DENSE = 1 << 28
"""Numbers of sparse features that a lower bound other than 0 makes dense, at most."""


def read_bounds(text: str, width: int) -> tuple[Doubles, Doubles]:
    """Return [width] the lower and upper bounds of `feature_bounds`: two numbers, or a file."""
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
    """Return [width] lower and upper bounds: finite, each lower one below its upper one."""
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
    """Return [devices, width] (x - low) / (high - low), clipped to 0 … 1, as float32.

    Sparse features stay sparse where every lower bound is 0.
    """
    span = high - low
    if is_sparse(features) and not np.any(low):
        rows = features.tocsr().astype(np.float32)
        rows.data = np.clip(rows.data / span[rows.indices], 0, 1).astype(np.float32)
        rows.eliminate_zeros()
        return rows
    if is_sparse(features):
        if features.shape[0] * features.shape[1] > MAX_DENSE:
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
