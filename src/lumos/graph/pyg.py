"""Graphs from PyTorch Geometric and to it. Reading imports nothing: the object brings its methods.

Beside what PyG defines, three attributes carry what a `Data` has no place for: `device_ids` (a
tensor, or a list of text), `class_names` (a list: labels are indices into it) and `name`.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import is_sparse, refuse_width
from lumos.graph.graph import Graph
from lumos.graph.ids import unique_ids
from lumos.graph.labels import declared_classes, encode_array
from lumos.graph.options import ReadOptions


def from_pyg(data: Any, *, name: str = "", **options: Any) -> Graph:
    """Convert a `torch_geometric.data.Data`.

    Args:
        data: with `edge_index` [2, E], and possibly `x` [devices, width] (dense or sparse) and
            `y` [devices] (-1 is unknown). PyG holds an undirected edge in both directions: data
            that lack one is directed, and refused unless directed="symmetrise". `edge_weight` or
            `edge_attr` is refused unless weights="drop", `y` with several columns unless
            multilabel="first". `device_ids` and `class_names`, where present, are kept.
        name: what the graph is called; otherwise the `name` of the data.
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
                "`weights='drop'`"
            )
    if permissions.directed == "refuse":
        _refuse_directed(arcs)
    labels, classes = _labels(data, permissions)
    with warnings.catch_warnings():
        # Without x, y or num_nodes PyG takes the largest index, which is what we want, and warns.
        warnings.simplefilter("ignore")
        count = getattr(data, "num_nodes", None)
    graph = Graph.from_edges(
        arcs.T,
        devices=None if count is None else int(count),
        features=_features(getattr(data, "x", None)),
        labels=labels,
        classes=classes,
        name=name or str(getattr(data, "name", None) or ""),
        notes=_masks(data),
        both_directions=True,
    )
    return _named(graph, getattr(data, "device_ids", None))


def to_pyg(graph: Graph) -> Any:
    """Convert to a `torch_geometric.data.Data`, which `from_pyg` reads back.

    `edge_index` [2, 2 · edges] holds both directions, sorted; `x` [devices, feature_count] is a
    dense tensor, or a sparse COO tensor where the features are sparse; `y` [devices] holds indices
    into `class_names`, -1 where the label is unknown. `device_ids` and `name` are kept.

    Raises:
        UsageError: PyTorch Geometric is not installed.
    """
    try:
        import torch

        with warnings.catch_warnings():
            # PyG itself uses what torch calls deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            from torch_geometric.data import Data
    except ImportError:
        raise UsageError(
            "to_pyg needs PyTorch Geometric; type: pip install torch_geometric"
        ) from None
    owner = np.repeat(np.arange(graph.devices, dtype=np.int64), graph.degrees)
    data = Data(edge_index=torch.from_numpy(np.stack([owner, graph.neighbours])))
    data.num_nodes = graph.devices
    if graph.features is not None:
        stored: Any = graph.features
        if is_sparse(stored):
            entries = stored.tocoo()
            place = torch.from_numpy(np.stack(entries.coords).astype(np.int64))
            values = torch.from_numpy(entries.data.copy())
            whole = torch.sparse_coo_tensor(place, values, stored.shape, check_invariants=True)
            data.x = whole.coalesce()
        else:
            data.x = torch.from_numpy(stored.copy())
    if graph.labels is not None:
        data.y = torch.from_numpy(graph.labels.copy())
        data.class_names = list(graph.classes)
    by_name = isinstance(graph.ids, tuple)
    data.device_ids = list(graph.ids) if by_name else torch.from_numpy(np.array(graph.ids))
    data.name = graph.name
    return data


def _labels(data: Any, options: ReadOptions) -> tuple[Any, tuple[str, ...]]:
    """[devices] the index of each class, and the names of the classes."""
    target = getattr(data, "y", None)
    if target is None:
        return None, ()
    declared = declared_classes(getattr(data, "class_names", None), "class_names")
    values = _array(target)
    if not declared or values.ndim != 1 or values.dtype.kind not in "iu":
        return encode_array(values, "y", options)
    if len(values) and values.max() >= len(declared):
        raise InputError(
            f"class_names: class {values.max()} of y has no name among {len(declared)}; add it"
        )
    return values, declared


def _named(graph: Graph, ids: Any) -> Graph:
    """The same graph with the ids that its data carries, if any."""
    if ids is None:
        return graph
    named = unique_ids(ids if isinstance(ids, list | tuple) else _array(ids))
    if len(named) != graph.devices:
        raise InputError(f"device_ids: {len(named)} ids for {graph.devices} devices")
    return replace(graph, ids=named)


def _masks(data: Any) -> list[str]:
    """A note where the data brings a split of its own, which training does not use."""
    masks = ("train_mask", "val_mask", "test_mask")
    present = [name for name in masks if getattr(data, name, None) is not None]
    if not present:
        return []
    return [f"{', '.join(present)} are not used: lumos train splits by its run seed"]


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
    refuse_width(int(entries.shape[0]), int(entries.values().shape[0]), "x: rows")
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
            "each arc as an undirected edge with `directed='symmetrise'`"
        )
