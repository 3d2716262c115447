"""Graphs from PyTorch Geometric and to it. Reading imports nothing: the object brings its methods.

Beside what PyG defines, three attributes carry what a `Data` has no place for: `device_ids` (a
tensor, or a list of text), `class_names` (a list: labels are indices into it) and `name`.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import as_array, is_sparse, refuse_width, unique_ids
from lumos.graph.features import Columns, prepared
from lumos.graph.graph import Graph
from lumos.graph.io import ReadOptions, refuse_one_way, weighted
from lumos.graph.labels import (
    MASK_NAMES,
    Labelled,
    as_labels,
    declared_classes,
    encode_array,
    given_labels,
    masks_of,
    roles_in,
)
from lumos.typing import Ints


def from_pyg(data: Any, *, name: str = "", **options: Any) -> Graph:
    """Convert a `torch_geometric.data.Data`, or a data set that holds one.

    Args:
        data: with `edge_index` [2, E] or its sparse form `adj_t`, and possibly `x`
            [devices, width] (dense or sparse) and `y` [devices] (-1 is unknown). PyG holds an
            undirected edge in both directions: data that lack one is directed, and refused unless
            directed="symmetrise". `edge_weight` or `edge_attr` is refused unless weights="drop",
            and so are entries of `adj_t` other than 1; `y` with several columns unless
            multilabel="first" or a `label_column`. `y` may be whole numbers of any type, NaN where
            unknown, or a list of text; label_column="z" takes the attribute `z` instead.
            `train_mask`, `val_mask` and `test_mask` become `Graph.roles`, unless masks="ignore".
            `device_ids` and `class_names`, where present, are kept.
        name: what the graph is called; otherwise the `name` of the data.
        options: the fields of `ReadOptions`.
    """
    permissions = ReadOptions.of(options)
    if is_dataset(data):
        if len(data) != 1:
            raise InputError(
                f"data: {type(data).__name__} has {len(data):,} graphs; pass one, as dataset[0]"
            )
        name = name or str(getattr(data, "name", None) or "")
        data = data[0]
    arcs = _arcs(data, permissions)
    for attribute in ("edge_weight", "edge_attr"):
        if getattr(data, attribute, None) is not None and permissions.weights == "refuse":
            raise weighted(f"{attribute}: the edges have weights")
    if permissions.directed == "refuse":
        refuse_one_way(arcs[0].astype(np.int64), arcs[1].astype(np.int64), "edge_index")
    labelled = _labels(data, permissions)
    labels = None if labelled is None else labelled.labels
    roles, notes = _roles(data, labels, permissions)
    notes += () if labelled is None else labelled.notes
    features = _features(getattr(data, "x", None))
    if features is not None:
        features, more = prepared(Columns(features), permissions, "x")
        notes += more
    with warnings.catch_warnings():
        # Without x, y or num_nodes PyG takes the largest index, which is what we want, and warns.
        warnings.simplefilter("ignore")
        count = getattr(data, "num_nodes", None)
    graph = Graph.from_edges(
        arcs.T,
        devices=None if count is None else int(count),
        features=features,
        labels=labels,
        classes=() if labelled is None else labelled.classes,
        class_values=None if labelled is None else labelled.values,
        roles=roles,
        name=name or str(getattr(data, "name", None) or ""),
        notes=notes,
        both_directions=True,
    )
    return _named(graph, getattr(data, "device_ids", None))


def to_pyg(graph: Graph) -> Any:
    """Convert to a `torch_geometric.data.Data`, which `from_pyg` reads back.

    `edge_index` [2, 2 · edges] holds both directions, sorted; `x` [devices, feature_count] is a
    dense tensor, or a sparse COO tensor where the features are sparse; `y` [devices] holds indices
    into `class_names`, -1 where the label is unknown. Roles become `train_mask`, `val_mask` and
    `test_mask`. `device_ids` and `name` are kept.

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
    if graph.roles is not None:
        for name, mask in masks_of(graph.roles).items():
            data[name] = torch.from_numpy(mask)
    by_name = isinstance(graph.ids, tuple)
    data.device_ids = list(graph.ids) if by_name else torch.from_numpy(np.array(graph.ids))
    data.name = graph.name
    return data


def is_dataset(data: Any) -> bool:
    """Return whether this is a PyG data set, which holds several `Data`."""
    return all(hasattr(type(data), name) for name in ("__getitem__", "get", "len", "process"))


def is_data(data: Any) -> bool:
    """Return whether `from_pyg` reads this."""
    return is_dataset(data) or hasattr(data, "edge_index") or hasattr(data, "adj_t")


def _arcs(data: Any, options: ReadOptions) -> Ints:
    """Return [2, E] the arcs of `edge_index`, or of the transposed adjacency matrix `adj_t`."""
    index, matrix = (getattr(data, name, None) for name in ("edge_index", "adj_t"))
    if index is not None:
        arcs = as_array(index)
        if arcs.ndim != 2 or arcs.shape[0] != 2 or arcs.dtype.kind not in "iu":
            raise InputError(
                f"edge_index: [2, E] integers are needed; got {arcs.dtype} {list(arcs.shape)}"
            )
        return arcs
    if matrix is None:
        raise InputError(
            f"data: a PyG Data with edge_index or adj_t is needed; got {type(data).__name__}"
        )
    if hasattr(matrix, "coo"):  # torch_sparse.SparseTensor
        row, column, value = matrix.coo()
    else:
        entries = matrix.to_sparse_coo().coalesce()
        (row, column), value = entries.indices(), entries.values()
    if value is not None and options.weights == "refuse":
        values = as_array(value)
        if np.any(values != 1):
            raise weighted(f"adj_t: the entry {values[values != 1].flat[0]} is a weight")
    return np.stack([as_array(column), as_array(row)])


def _labels(data: Any, options: ReadOptions) -> Labelled | None:
    """Return the classes of `y`, or of the attribute that was asked for; None without any."""
    name, asked = "y", options.label_column
    if options.no_labels:
        return None
    target = getattr(data, name, None)
    if asked is not None and not (asked.isdecimal() and getattr(target, "ndim", 1) == 2):
        name, target = asked, getattr(data, asked, None)
        if target is None:
            raise InputError(
                f"data: it has no {asked!r}; `label_column` is one of: {_seen(data) or 'none'}"
            )
    if target is None:
        return None
    more = _seen(data, name)
    other = f"name another attribute with `label_column` (it has: {more})" if more else ""
    declared = declared_classes(getattr(data, "class_names", None), "class_names")
    values = as_labels(target)
    if not declared or values.ndim != 1 or options.label_bins is not None or name != "y":
        return encode_array(values, name, options, other=other)
    if values.dtype.kind not in "iu":
        return given_labels(values, declared, None, None)
    if len(values) and values.max() >= len(declared):
        raise InputError(
            f"class_names: class {values.max()} of y has no name among {len(declared)}; add it"
        )
    return Labelled(values, declared, values=np.arange(len(declared), dtype=values.dtype))


def _seen(data: Any, *but: str) -> str:
    """Return the attributes of the data that may hold labels, as messages list them."""
    keys = getattr(data, "keys", ())
    none = {
        "edge_index",
        "adj_t",
        "x",
        "device_ids",
        "class_names",
        "name",
        "num_nodes",
        *MASK_NAMES,
        *but,
    }
    return ", ".join(key for key in (keys() if callable(keys) else keys) if key not in none)


def _roles(data: Any, labels: Any, options: ReadOptions) -> tuple[Ints | None, tuple[str, ...]]:
    """Return the roles that the masks of the data say, and notes."""
    masks = {name: getattr(data, name, None) for name in sorted(MASK_NAMES)}
    arrays = {name: as_array(mask) for name, mask in masks.items() if mask is not None}
    return roles_in(arrays, labels, options)


def _named(graph: Graph, ids: Any) -> Graph:
    """Return the same graph with the ids of its data, if there are any."""
    if ids is None:
        return graph
    named = unique_ids(ids if isinstance(ids, list | tuple) else as_array(ids))
    if len(named) != graph.devices:
        raise InputError(f"device_ids: {len(named)} ids for {graph.devices} devices")
    return replace(graph, ids=named)


def _features(tensor: Any) -> Any:
    """Return [devices, width], dense, or in compressed rows if the tensor is sparse."""
    if tensor is None:
        return None
    if "sparse" not in str(getattr(tensor, "layout", "")):
        return as_array(tensor)
    from scipy.sparse import coo_array

    entries = tensor.to_sparse_coo().coalesce()
    refuse_width(int(entries.shape[0]), int(entries.values().shape[0]), "x: rows")
    place, values = as_array(entries.indices()), as_array(entries.values())
    return coo_array((values, (place[0], place[1])), tuple(entries.shape)).tocsr()
