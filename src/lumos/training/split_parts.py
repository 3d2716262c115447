"""The parts of a split that is given: their names, masks, ids, and pairs of ids."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lumos.device.coins import PublicCoins
from lumos.errors import InputError, UsageError
from lumos.graph import Graph
from lumos.graph.arrays import lookup, shown
from lumos.graph.labels import roles_of_masks
from lumos.training.split import EdgeSplit, edges_left, hold_out, pair_keys, several_classes
from lumos.typing import Flags, Ints

PARTS = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid", "dev"),
    "test": ("test", "testing"),
}
"""What the parts of a split may be called; `_mask`, `_idx`, … may follow."""
NEGATIVE = ("_negative", "_negatives", "_neg", "_strangers")
ENDINGS = ("_mask", "_idx", "_index", "_indices", "_ids", "_edges", "_edge", "_pos")


def named_parts(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a split by the names of `PARTS`, and `…_negative`.

    Raises:
        UsageError: a name is unknown, or two names mean the same.
    """
    parts: dict[str, Any] = {}
    for name, rows in given.items():
        if rows is None:
            continue
        key = _part(str(name))
        if key is None:
            raise UsageError(
                f"`split`: {shown(name)} is no part of a split; use train, val and test, for links "
                "val, test, val_negative and test_negative"
            )
        if key in parts:
            raise UsageError(f"`split`: {key} is given twice; leave one out")
        parts[key] = rows
    return parts


def _part(name: str) -> str | None:
    word, negative = name.casefold(), ""
    for ending in NEGATIVE:
        if word.endswith(ending):
            word, negative = word.removesuffix(ending), "_negative"
    for ending in ENDINGS:
        word = word.removesuffix(ending)
    for part, spellings in PARTS.items():
        if word in spellings or word.removeprefix("idx_") in spellings:
            return part + negative
    return None


def roles_of_parts(graph: Graph, parts: Mapping[str, Any]) -> Ints:
    """[devices] from masks or lists of original ids."""
    for part in parts:
        if part.endswith("_negative"):
            raise UsageError(f"`split`: {part} is for `task='link'`; leave it out")
    train, validation, test = (
        None if parts.get(part) is None else _mask(graph, parts[part], part) for part in PARTS
    )
    labels = np.asarray(graph.labels)
    roles = roles_of_masks(train, validation, test, labels, "split")
    several_classes(labels[roles >= 0])
    return roles


def _mask(graph: Graph, rows: Any, part: str) -> Flags:
    """[devices] whom a mask, or a list of original ids, names."""
    array = _as_array(rows)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    zeros_and_ones = array.dtype.kind in "iu" and np.isin(array, (0, 1)).all()
    if array.dtype == np.bool_ or (len(array) == graph.devices > 2 and zeros_and_ones):
        if array.shape != (graph.devices,):
            raise InputError(
                f"split: the mask {part} has the shape {list(array.shape)}; one value per device, "
                f"[{graph.devices}]"
            )
        return np.asarray(array, np.bool_)
    indices = _rows_of(graph, array, part)
    mask = np.zeros(graph.devices, np.bool_)
    mask[indices] = True
    if int(mask.sum()) < len(indices):
        raise InputError(f"split: {part} names a device twice; name each once")
    return mask


def _rows_of(graph: Graph, ids: Any, part: str) -> Ints:
    """[…] rows of devices by their original ids."""
    flat = np.asarray(ids).ravel()
    if flat.dtype.kind == "f" and np.array_equal(flat, np.rint(flat)):
        flat = flat.astype(np.int64)
    if flat.size and flat.dtype.kind not in "iuUO":
        raise InputError(f"split: {part} holds {flat.dtype} values; use ids, or a mask")
    rows = lookup(flat, graph.ids) if flat.size else np.empty(0, np.int64)
    unknown = np.flatnonzero(rows < 0)
    if len(unknown):
        raise InputError(
            f"split: {part} names {shown(flat[unknown[0]])}, which is not the id of any device of "
            f"{graph!r}"
        )
    return rows.reshape(np.shape(ids))


def held_out_edges(graph: Graph, parts: Mapping[str, Any], public: PublicCoins) -> EdgeSplit:
    """Held-out edges, and all others of the graph for training."""
    if "train" in parts:
        raise UsageError(
            "`split`: for links give the held-out edges, val and test; all others of the graph "
            "train, so leave train out"
        )
    for part in ("validation", "test"):
        if parts.get(part) is None:
            raise UsageError(f"`split`: for links val and test are needed; {part} is missing")
    held = {part: _pairs(graph, rows, part) for part, rows in parts.items()}
    keys = {part: pair_keys(pairs, graph.devices) for part, pairs in held.items()}
    if len(np.intersect1d(keys["validation"], keys["test"])):
        raise InputError("split: an edge is in val and in test; put it into one")
    training = edges_left(graph, held["validation"], held["test"])
    if not len(training):
        raise InputError("split: val and test hold all edges; none is left to train on")
    edges = pair_keys(graph.edge_list(), graph.devices)
    known = np.concatenate([edges, keys["validation"], keys["test"]])
    for part in keys:
        if part.endswith("_negative") and np.isin(keys[part], known).any():
            raise InputError(f"split: a pair of {part} is an edge; take it out")
    split = hold_out(graph, training, held["validation"], held["test"], public)
    return EdgeSplit(
        training=split.training,
        validation=split.validation,
        test=split.test,
        validation_strangers=held.get("validation_negative", split.validation_strangers),
        test_strangers=held.get("test_negative", split.test_strangers),
    )


def _pairs(graph: Graph, rows: Any, part: str) -> Ints:
    """[pairs, 2] rows u < v in ascending order, from pairs [pairs, 2] or [2, pairs] of ids."""
    array = _as_array(rows)
    if array.ndim == 2 and array.shape[0] == 2 and array.shape[1] != 2:
        array = array.T
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise InputError(
            f"split: {part} has the shape {list(array.shape)}; pairs of ids are needed, [edges, 2]"
        )
    pairs = np.sort(_rows_of(graph, array, part), axis=1)
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise InputError(f"split: {part} joins a device to itself; take that out")
    distinct: Ints = np.unique(pairs, axis=0)  # an edge may be there in both directions
    return distinct


def _as_array(rows: Any) -> Any:
    if hasattr(rows, "detach"):  # a tensor of torch
        rows = rows.detach().cpu().numpy()
    return np.asarray(list(rows) if isinstance(rows, set | frozenset | range) else rows)
