"""One npz with the whole graph, as PyTorch Geometric's data sets are distributed.

- `edges` [E, 2] (or [2, E]), or `edge_index` [2, E]: integers; each edge once, or in both
  directions (the second direction is then not a duplicate).
- `features` (or `x`) [devices, width]: optional.
- `target` (or `y`, `labels`) [devices]: optional; numbers or text, -1, NaN or "" where unknown. The
  option `label_column` names another array, or a column of a wider one.
- `class_names`: optional; text, into which whole labels are indices.
- `ids` [devices]: optional; without it edges hold row numbers.
- `train_mask`, `val_mask`, `test_mask` [devices], or lists of rows (`train_idx`, …): optional.
- `directed`: optional; true makes the graph directed. `edge_weight`, `edge_attr` or `weights`
  make it weighted.

In place of edges and features there may be a compressed adjacency matrix (Shchur et al., 2018):

- `adj_data`, `adj_indices`, `adj_indptr`, `adj_shape`: [devices, devices] in compressed rows;
- `attr_data`, `attr_indices`, `attr_indptr`, `attr_shape`, or `attr_matrix`: [devices, width],
  optional;
- `labels` [devices], or in the same four parts, one column per class: optional.

Some files have `adj_matrix.data` instead of `adj_data`. An undirected edge {u, v} may be stored as
A[u, v] and A[v, u], or once in a triangle: all entries above the diagonal, or all below it. A
matrix that is neither symmetric nor a triangle is directed, as citation graphs are: refused unless
directed="symmetrise". Entries other than 1 are weights.

Arrays of objects are never unpickled: these are refused, others are skipped with a note.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos.errors import InputError
from lumos.graph.arrays import is_sparse, refuse_width
from lumos.graph.features import Columns, prepared
from lumos.graph.graph import Graph
from lumos.graph.io import NOT_ASKED, ReadOptions, directed, refuse_one_way, weighted
from lumos.graph.io.folder import Folder, readable
from lumos.graph.labels import MASK_NAMES, Labelled, encode_array, roles_in
from lumos.storage import unpack_arrays
from lumos.typing import Arrays, Ints

ADJACENCY = ("adj_", "adj_matrix.", "adj_matrix_")
ATTRIBUTES = ("attr_", "attr_matrix.", "attr_matrix_")
LABEL_PARTS = ("labels_", "labels.")
MAX_DENSE = 1 << 28
PARTS = ("data", "indices", "indptr", "shape")
PART_NAMES = tuple(
    f"{prefix}{part}" for prefix in (*ADJACENCY, *ATTRIBUTES, *LABEL_PARTS) for part in PARTS
)


def arrays_of(content: bytes, file: str, objects: list[str] | None = None) -> Arrays:
    """Return all arrays of an npz, without ever unpickling.

    Args:
        content: the npz.
        file: its path, as errors name it.
        objects: where given, arrays of objects are left out, and their names added to it;
            otherwise they are refused.
    """
    with readable(file):
        if content.startswith(np.lib.format.MAGIC_PREFIX):
            raise InputError(f"{file}: it holds a single array; an npz with names is needed")
        try:
            return unpack_arrays(io.BytesIO(content), objects)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None


def sparse_of(arrays: Arrays, file: str, prefix: str = "", what: str = "features") -> Any:
    """Return the sparse matrix that stands in an npz in compressed rows or columns.

    Args:
        arrays: `data`, `indices`, `indptr` and `shape`, and `format` as scipy's `save_npz` writes
            it; without one the rows are compressed.
        file: the path of the npz, as errors name it.
        prefix: what stands before these names.
        what: what the matrix holds, for errors.
    """
    from scipy.sparse import csc_array, csr_array

    parts = [f"{prefix}{part}" for part in ("data", "indices", "indptr", "shape")]
    missing = [part for part in parts if part not in arrays]
    if missing:
        raise InputError(
            f"{file}: {what}: there is no array {missing[0]!r}; write the matrix again"
        )
    with readable(file):
        kind = arrays[f"{prefix}format"].item() if f"{prefix}format" in arrays else "csr"
        kind = kind.decode() if isinstance(kind, bytes) else str(kind)
        kinds = {"csr": csr_array, "csc": csc_array}
        if kind not in kinds:
            raise InputError(f"{file}: {what}: a sparse matrix in the form csr or csc is needed")
        data, indices, indptr, shape = (arrays[part] for part in parts)
        rows, columns = (int(size) for size in shape)
        used = len(data)
        refuse_width(columns, used, f"{file}: {what}")
        refuse_width(rows, used, f"{file}: rows of {what}")
        matrix = kinds[kind]((data, indices, indptr), shape=(rows, columns))
        matrix.check_format(full_check=True)
        return csr_array(matrix)


def has_adjacency(arrays: Arrays) -> bool:
    """Return whether the edges of an npz are an adjacency matrix."""
    return _prefix(arrays, ADJACENCY) is not None


def adjacency_pairs(arrays: Arrays, file: str, options: ReadOptions) -> tuple[Ints, int]:
    """Return [entries, 2] the pairs that the matrix joins, and the number of devices."""
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
        raise weighted(f"{file}: adjacency: the entry {value} is a weight")
    u, v = (place[joined].astype(np.int64) for place in entries.coords)
    triangle = np.all(u <= v) or np.all(u >= v)
    if options.directed == "refuse" and not triangle:
        refuse_one_way(u, v, f"{file}: adjacency")
    return np.stack([u, v], axis=1), int(devices)


def attributes(arrays: Arrays, file: str) -> Any:
    """Return [devices, width] dense or sparse, or None."""
    prefix = _prefix(arrays, ATTRIBUTES)
    if prefix is None:
        return arrays.get("attr_matrix")
    return sparse_of(arrays, file, prefix, "attributes")


def label_matrix(arrays: Arrays, file: str) -> Any:
    """Return [devices, classes] of zeros and ones, or None."""
    prefix = _prefix(arrays, LABEL_PARTS)
    if prefix is None:
        return None
    matrix = sparse_of(arrays, file, prefix, "labels")
    if matrix.shape[0] * matrix.shape[1] > MAX_DENSE:
        raise InputError(f"{file}: labels: {matrix.shape[1]:,} columns are too many classes")
    return matrix.toarray()


def _prefix(arrays: Arrays, prefixes: tuple[str, ...]) -> str | None:
    return next((prefix for prefix in prefixes if f"{prefix}indptr" in arrays), None)


WEIGHTS = ("edge_weight", "edge_weights", "edge_attr", "weights", "weight")
LABELS = ("target", "y", "labels")
OTHERS = ("edges", "edge_index", "features", "x", "ids", "directed", "attr_matrix", "class_names")
WANTED = frozenset([*OTHERS, *LABELS, *WEIGHTS, *MASK_NAMES, *PART_NAMES])
"""Arrays that are read."""
NEVER = "Python objects are never unpickled"


def read_npz(path: Path, *, features: bool, options: ReadOptions) -> Graph:
    """Read a graph from an npz."""
    file = str(path)
    objects: list[str] = []
    arrays = arrays_of(Folder(path.parent).read(path.name), file, objects)
    _refuse_objects(objects, file, options)
    refuse_what_is_lost(arrays, file, options)
    devices: int | None = None
    if has_adjacency(arrays):
        edges, devices = adjacency_pairs(arrays, file, options)
        matrix = attributes(arrays, file)
    else:
        edges, matrix = edges_in(arrays, file, objects), None
    matrix = _first(arrays, "features", "x") if matrix is None else matrix
    labelled, notes = _labels(arrays, file, options)
    if objects:
        notes += (_skipped(objects),)
    if matrix is None:
        notes = ("features absent: the npz has no array 'features'", *notes)
    elif matrix.ndim:
        devices = int(matrix.shape[0]) if devices is None else devices
    if matrix is not None and not features:
        matrix, notes = None, (NOT_ASKED, *notes)
    try:
        if matrix is not None and (is_sparse(matrix) or matrix.ndim):
            matrix, more = prepared(Columns(matrix), options, "features")
            notes += more
        labels = None if labelled is None else labelled.labels
        roles, more = roles_in(arrays, labels, options)
        graph = Graph.from_edges(
            edges,
            devices=devices,
            features=matrix,
            labels=labels,
            classes=() if labelled is None else labelled.classes,
            class_values=None if labelled is None else labelled.values,
            roles=roles,
            ids=arrays.get("ids"),
            name=path.stem,
            notes=notes + more,
            both_directions=True,
        )
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    if graph.edges == 0:
        raise InputError(f"{file}: edges: there is no edge; the graph is empty")
    return graph


def _first(arrays: Arrays, *names: str) -> NDArray[Any] | None:
    return next((arrays[name] for name in names if name in arrays), None)


def _labels(
    arrays: Arrays, file: str, options: ReadOptions
) -> tuple[Labelled | None, tuple[str, ...]]:
    """Return the classes that the npz says, if any, and notes."""
    asked = options.label_column
    if options.no_labels:
        return None, ()
    others = [name for name in arrays if name not in WANTED or name in LABELS]
    name = asked if asked in arrays else next((name for name in LABELS if name in arrays), None)
    target = arrays[name] if name is not None else label_matrix(arrays, file)
    if asked is not None and asked not in arrays and not _is_column(asked, target):
        raise InputError(
            f"{file}: there is no array {asked!r}; `label_column` is one of: {', '.join(arrays)}"
        )
    if target is None:
        if not others:
            return None, ()
        seen = ", ".join(others)
        return None, (f"labels absent: `label_column` may name one of the arrays {seen}",)
    name = name or "labels"
    seen = ", ".join(one for one in others if one != name)
    other = f"name another array with `label_column` (it has: {seen})" if seen else ""
    names = arrays.get("class_names")
    whole = target.ndim == 1 and target.dtype.kind in "iu" and options.label_bins is None
    if whole and names is not None and names.dtype.kind == "U" and names.ndim == 1:
        classes = tuple(names.tolist())
        fits = len(set(classes)) == len(classes) and target.max(initial=-1) < len(classes)
        if fits and target.min(initial=0) >= -1:
            return Labelled(target.astype(np.int64), classes), ()
    labelled = encode_array(target, name, options, file=file, other=other, ids=arrays.get("ids"))
    return labelled, labelled.notes


def _is_column(asked: str, target: NDArray[Any] | None) -> bool:
    """Return whether `asked` is the number of a column of the labels."""
    return (
        target is not None
        and target.ndim == 2
        and asked.isdecimal()
        and int(asked) < target.shape[1]
    )


def _refuse_objects(objects: Sequence[str], file: str, options: ReadOptions) -> None:
    """Refuse a file in which an array that would be read holds objects."""
    wanted = (WANTED | {options.label_column}) - {"class_names"}
    refused = [name for name in objects if name in wanted]
    if refused:
        others = [name for name in objects if name not in wanted]
        raise InputError(
            f"{file}: {NEVER}, and {', '.join(map(repr, refused))} holds some"
            f"{f' ({_skipped(others)})' if others else ''}; save numbers or text, and a sparse "
            "matrix as adj_data, adj_indices, adj_indptr, adj_shape"
        )


def _skipped(objects: Sequence[str]) -> str:
    return f"skipped, as {NEVER}: {', '.join(map(repr, objects))}"


def edges_in(arrays: Arrays, file: str, objects: Sequence[str] = ()) -> NDArray[Any]:
    """Return [E, 2] the edges of an npz, whichever way round they are stored.

    Args:
        arrays: all arrays that could be read.
        file: the path of the npz, as errors name it.
        objects: names of those that could not.
    """
    if "edges" in arrays:
        name, array = "edges", arrays["edges"]
        if array.ndim == 2 and array.shape[1] != 2 and array.shape[0] == 2:
            array = array.T
    elif "edge_index" in arrays:
        name, array = "edge_index", arrays["edge_index"].T
    else:
        has = ", ".join(arrays) or "nothing"
        has += f"; {_skipped(objects)}" if objects else ""
        raise InputError(
            f"{file}: there is no array 'edges' (it has: {has}); add it, [E, 2], or an adjacency "
            "matrix: adj_data, adj_indices, adj_indptr, adj_shape"
        )
    if array.ndim != 2 or array.shape[1] != 2:
        raise InputError(f"{file}: {name}: shape {list(arrays[name].shape)}; [E, 2] is needed")
    if array.dtype.kind not in "iu":
        wrong = array.ravel()[0] if array.size else array.dtype
        raise InputError(f"{file}: {name}: {wrong} is not an integer ({array.dtype})")
    return np.asarray(array)


def refuse_what_is_lost(arrays: Arrays, file: str, options: ReadOptions) -> None:
    """Refuse directions and weights unless the options give them up."""
    if options.weights == "refuse":
        for name in WEIGHTS:
            if name in arrays:
                raise weighted(f"{file}: {name}: the edges have weights")
    if options.directed == "refuse" and _is_true(arrays.get("directed")):
        raise directed(f"{file}: directed is true")


def _is_true(flag: NDArray[Any] | None) -> bool:
    return flag is not None and flag.dtype.kind in "biuf" and bool(np.any(flag))
