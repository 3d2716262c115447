"""One npz with the whole graph, as PyTorch Geometric's data sets are distributed.

- `edges` [E, 2] (or [2, E]), or `edge_index` [2, E]: integers; each edge once, or in both
  directions (the second direction is then not a duplicate).
- `features` (or `x`) [devices, width]: optional.
- `target` (or `y`, `labels`) [devices]: optional; integers or text, -1 or "" where unknown.
- `ids` [devices]: optional; without it edges hold row numbers.
- `directed`: optional; true makes the graph directed. `edge_weight`, `edge_attr` or `weights`
  make it weighted.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos.errors import InputError
from lumos.graph.files import Folder, arrays_of
from lumos.graph.graph import Graph
from lumos.graph.labels import encode_array
from lumos.graph.options import NOT_ASKED, ReadOptions

WEIGHTS = ("edge_weight", "edge_weights", "edge_attr", "weights", "weight")


def read_npz(path: Path, *, features: bool, options: ReadOptions) -> Graph:
    """Read a graph from an npz."""
    file = str(path)
    arrays = arrays_of(Folder(path.parent).read(path.name), file)
    edges = edges_in(arrays, file)
    refuse_what_is_lost(arrays, file, options)
    matrix = _first(arrays, "features", "x")
    target = _first(arrays, "target", "y", "labels")
    labels, classes = (
        (None, ()) if target is None else encode_array(target, f"{file}: target", options)
    )
    notes: tuple[str, ...] = ()
    devices = None if matrix is None or matrix.ndim == 0 else len(matrix)
    if matrix is None:
        notes = ("features absent: the npz has no array 'features'",)
    elif not features:
        matrix, notes = None, (NOT_ASKED,)
    try:
        graph = Graph.from_edges(
            edges,
            devices=devices,
            features=matrix,
            labels=labels,
            classes=classes,
            ids=arrays.get("ids"),
            name=path.stem,
            notes=notes,
            both_directions=True,
        )
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    if graph.edges == 0:
        raise InputError(f"{file}: edges: there is no edge; the graph is empty")
    return graph


def _first(arrays: dict[str, NDArray[Any]], *names: str) -> NDArray[Any] | None:
    return next((arrays[name] for name in names if name in arrays), None)


def edges_in(arrays: dict[str, NDArray[Any]], file: str) -> NDArray[Any]:
    """[E, 2]: the edges of an npz, whichever way round they are stored."""
    if "edges" in arrays:
        name, array = "edges", arrays["edges"]
        if array.ndim == 2 and array.shape[1] != 2 and array.shape[0] == 2:
            array = array.T
    elif "edge_index" in arrays:
        name, array = "edge_index", arrays["edge_index"].T
    else:
        has = ", ".join(arrays) or "nothing"
        raise InputError(f"{file}: there is no array 'edges' (it has: {has}); add it, [E, 2]")
    if array.ndim != 2 or array.shape[1] != 2:
        raise InputError(f"{file}: {name}: shape {list(arrays[name].shape)}; [E, 2] is needed")
    if array.dtype.kind not in "iu":
        wrong = array.ravel()[0] if array.size else array.dtype
        raise InputError(f"{file}: {name}: {wrong} is not an integer ({array.dtype})")
    return np.asarray(array)


def refuse_what_is_lost(arrays: dict[str, NDArray[Any]], file: str, options: ReadOptions) -> None:
    """Refuse directions and weights unless the options give them up."""
    if options.weights == "refuse":
        for name in WEIGHTS:
            if name in arrays:
                raise InputError(
                    f"{file}: {name}: the edges have weights, and Lumos has none; drop them with "
                    "`weights='drop'`"
                )
    if options.directed == "refuse" and _is_true(arrays.get("directed")):
        raise InputError(
            f"{file}: directed is true; read each arc as an undirected edge with "
            "`directed='symmetrise'`"
        )


def _is_true(flag: NDArray[Any] | None) -> bool:
    return flag is not None and flag.dtype.kind in "biuf" and bool(np.any(flag))
