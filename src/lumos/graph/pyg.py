"""A graph from PyTorch Geometric, which is never imported: the object brings its own methods."""

import warnings
from typing import Any

import numpy as np

from lumos.errors import InputError
from lumos.graph.graph import Graph
from lumos.graph.labels import encode_array
from lumos.graph.options import ReadOptions


def from_pyg(data: Any, *, name: str = "", **options: Any) -> Graph:
    """Convert a `torch_geometric.data.Data`.

    Args:
        data: with `edge_index` [2, E], and possibly `x` [devices, width] (dense or sparse) and
            `y` [devices] (-1 is unknown). PyG holds an undirected edge in both directions: data
            that lack one is directed, and refused unless directed="symmetrise". `edge_weight` or
            `edge_attr` is refused unless weights="drop", `y` with several columns unless
            multilabel="first".
        name: what the graph is called.
        options: the fields of `ReadOptions`.
    """
    permissions = ReadOptions.of(options)
    index = getattr(data, "edge_index", None)
    if index is None:
        raise InputError(f"data: a PyG Data with edge_index is needed; got {type(data).__name__}")
    arcs = _array(index)
    if arcs.ndim != 2 or arcs.shape[0] != 2 or arcs.dtype.kind not in "iu":
        raise InputError(
            f"edge_index: [2, E] integers are needed; got {arcs.dtype} {list(arcs.shape)}"
        )
    for attribute in ("edge_weight", "edge_attr"):
        if getattr(data, attribute, None) is not None and permissions.weights == "refuse":
            raise InputError(
                f"{attribute}: the edges have weights, and Lumos has none; drop them with "
                'weights="drop"'
            )
    if permissions.directed == "refuse":
        _refuse_directed(arcs)
    target = getattr(data, "y", None)
    labels, classes = (
        (None, ()) if target is None else encode_array(_array(target), "y", permissions)
    )
    with warnings.catch_warnings():
        # Without x, y or num_nodes PyG takes the largest index, which is what we want, and warns.
        warnings.simplefilter("ignore")
        count = getattr(data, "num_nodes", None)
    return Graph.from_edges(
        arcs.T,
        devices=None if count is None else int(count),
        features=_features(getattr(data, "x", None)),
        labels=labels,
        classes=classes,
        name=name,
        notes=_masks(data),
        both_directions=True,
    )


def _masks(data: Any) -> list[str]:
    """A note where the data brings a split of its own, which training does not use."""
    found = [name for name in ("train_mask", "val_mask", "test_mask") if hasattr(data, name)]
    found = [name for name in found if getattr(data, name) is not None]
    if not found:
        return []
    return [f"{', '.join(found)} are not used: lumos train splits by its run seed"]


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    """Copy a tensor into an array; an array passes unchanged."""
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu().numpy()
    return np.asarray(tensor)


def _features(tensor: Any) -> Any:
    """[devices, width]: dense, or in compressed rows if the tensor is sparse."""
    if tensor is None:
        return None
    if "sparse" not in str(getattr(tensor, "layout", "")):
        return _array(tensor)
    from scipy.sparse import coo_array

    entries = tensor.to_sparse_coo().coalesce()
    place = _array(entries.indices())
    return coo_array((_array(entries.values()), (place[0], place[1])), tuple(entries.shape)).tocsr()


def _refuse_directed(arcs: np.ndarray[Any, Any]) -> None:
    size = int(arcs.max(initial=0)) + 1
    forth = np.unique(arcs[0].astype(np.int64) * size + arcs[1])
    back = np.unique(arcs[1].astype(np.int64) * size + arcs[0])
    alone = np.setdiff1d(forth, back)
    if len(alone):
        u, v = divmod(int(alone[0]), size)
        raise InputError(
            f"edge_index: {u} → {v} has no counterpart {v} → {u}, so the graph is directed; read "
            'each arc as an undirected edge with directed="symmetrise"'
        )
