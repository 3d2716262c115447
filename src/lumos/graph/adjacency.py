"""The npz form of many data sets: a compressed adjacency matrix beside attributes and labels.

- `adj_data`, `adj_indices`, `adj_indptr`, `adj_shape`: [devices, devices] in compressed rows;
- `attr_data`, `attr_indices`, `attr_indptr`, `attr_shape`, or `attr_matrix`: [devices, width],
  optional;
- `labels` [devices], or in the same four parts, one column per class: optional.

Shchur et al., 2018, distribute graphs so. Some files have `adj_matrix.data` instead of `adj_data`.

An undirected edge {u, v} may be stored as A[u, v] and A[v, u], or once in a triangle: all entries
above the diagonal, or all below it. A matrix that is neither symmetric nor a triangle is directed,
as citation graphs are: refused unless directed="symmetrise". Entries other than 1 are weights.
"""

from typing import Any

import numpy as np

from lumos.errors import InputError
from lumos.graph.files import sparse_of
from lumos.graph.options import ReadOptions
from lumos.typing import Arrays, Ints

ADJACENCY = ("adj_", "adj_matrix.", "adj_matrix_")
ATTRIBUTES = ("attr_", "attr_matrix.", "attr_matrix_")
LABELS = ("labels_", "labels.")
LARGEST_DENSE = 1 << 28
PARTS = ("data", "indices", "indptr", "shape")
PART_NAMES = tuple(
    f"{prefix}{part}" for prefix in (*ADJACENCY, *ATTRIBUTES, *LABELS) for part in PARTS
)


def has_adjacency(arrays: Arrays) -> bool:
    """Whether the edges of an npz are such a matrix."""
    return _prefix(arrays, ADJACENCY) is not None


def adjacency_pairs(arrays: Arrays, file: str, options: ReadOptions) -> tuple[Ints, int]:
    """[entries, 2] the pairs of devices that the matrix joins, and the number of devices."""
    prefix = _prefix(arrays, ADJACENCY) or ADJACENCY[0]
    matrix = sparse_of(arrays, file, prefix, "adjacency")
    devices, columns = matrix.shape
    if devices != columns:
        raise InputError(f"{file}: adjacency: it is {devices} x {columns}; it must be square")
    if matrix.data.dtype.kind not in "biuf":
        raise InputError(f"{file}: adjacency: numbers are needed; got {matrix.data.dtype}")
    entries = matrix.tocoo()
    joined = entries.data != 0
    if options.weights == "refuse" and np.any(entries.data[joined] != 1):
        value = entries.data[joined][np.argmax(entries.data[joined] != 1)]
        raise InputError(
            f"{file}: adjacency: the entry {value} is a weight, and Lumos has none; drop weights "
            "with `weights='drop'`"
        )
    u, v = (place[joined].astype(np.int64) for place in entries.coords)
    if options.directed == "refuse":
        _refuse_directed(u, v, devices, file)
    return np.stack([u, v], axis=1), int(devices)


def attributes(arrays: Arrays, file: str) -> Any:
    """[devices, width] dense or sparse, or None."""
    prefix = _prefix(arrays, ATTRIBUTES)
    if prefix is None:
        return arrays.get("attr_matrix")
    return sparse_of(arrays, file, prefix, "attributes")


def label_matrix(arrays: Arrays, file: str) -> Any:
    """[devices, classes] of zeros and ones, or None."""
    prefix = _prefix(arrays, LABELS)
    if prefix is None:
        return None
    matrix = sparse_of(arrays, file, prefix, "labels")
    if matrix.shape[0] * matrix.shape[1] > LARGEST_DENSE:
        raise InputError(f"{file}: labels: {matrix.shape[1]:,} columns are too many classes")
    return matrix.toarray()


def _prefix(arrays: Arrays, prefixes: tuple[str, ...]) -> str | None:
    return next((prefix for prefix in prefixes if f"{prefix}indptr" in arrays), None)


def _refuse_directed(u: Ints, v: Ints, devices: int, file: str) -> None:
    if np.all(u <= v) or np.all(u >= v):
        return
    forth, back = u * devices + v, v * devices + u
    alone = np.setdiff1d(forth, back)
    if len(alone):
        one, other = divmod(int(alone[0]), devices)
        raise InputError(
            f"{file}: adjacency: {one} → {other} has no counterpart {other} → {one}, so the graph "
            "is directed; read each arc as an undirected edge with `directed='symmetrise'`"
        )
