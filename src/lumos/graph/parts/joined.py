"""Several stored parts as one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lumos.graph.arrays import Ids, is_sparse, spans
from lumos.graph.facts import GraphPart
from lumos.graph.parts.stored_part import StoredPart
from lumos.graph.roles import Role
from lumos.typing import Ints

if TYPE_CHECKING:
    from lumos.graph.graph import Features


def joined(stored: Sequence[StoredPart], total: int, *, link: bool) -> GraphPart:
    """The devices of several parts as one part, sorted by id.

    Args:
        stored: the parts.
        total: number of devices in the federation.
        link: with training edges only, and validation edges held back.
    """
    devices = _end_to_end([part.devices for part in stored], np.int64)
    lists = [_training(part) if link else (part.offsets, part.neighbours) for part in stored]
    offsets = stacked([each for each, _ in lists])
    neighbours = _end_to_end([each for _, each in lists], np.int64)
    labels = _or_default([part.labels for part in stored], -1, len(devices))
    roles = [None if link else part.roles for part in stored]
    features = stacked_features([part.features for part in stored])
    order = by_id(devices)
    if order is not None:
        degree = np.diff(offsets)
        neighbours = neighbours[spans(offsets[order], degree[order])]
        offsets = np.concatenate([[0], np.cumsum(degree[order])])
        devices, labels = devices[order], labels[order]
        features = None if features is None else features[order]
    held_back = np.empty((0, 2), np.int64)
    if link:
        pairs = _end_to_end([np.asarray(part.held_back) for part in stored], np.int64)
        if order is not None:
            pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        held_back = np.stack([np.searchsorted(devices, pairs[:, 0]), pairs[:, 1]], axis=1)
    played = _or_default(roles, Role.NOBODY, len(devices))
    return GraphPart(
        devices=devices,
        total=total,
        offsets=offsets,
        neighbours=neighbours,
        features=features,
        labels=labels,
        roles=played if order is None else played[order],
        held_back=held_back,
    )


def joined_ids(stored: Sequence[StoredPart]) -> Ids:
    """Original ids of the devices of several parts, in the order of `joined`."""
    devices = _end_to_end([part.devices for part in stored], np.int64)
    order = by_id(devices)
    given = [part.ids for part in stored]
    if any(isinstance(ids, tuple) for ids in given):
        names = [name for ids in given for name in (ids or ())]
        return tuple(names if order is None else [str(names[row]) for row in order.tolist()])
    numbers = [
        part.devices if part.ids is None else np.asarray(part.ids, np.int64) for part in stored
    ]
    ids = _end_to_end(numbers, np.int64)
    return ids if order is None else ids[order]


def joined_column(stored: Sequence[StoredPart], columns: Sequence[npt.NDArray[Any]]) -> Ints:
    """A number for each device, [hosted] for each part, in the order of `joined`."""
    order = by_id(_end_to_end([part.devices for part in stored], np.int64))
    whole = _end_to_end(columns, np.int64)
    return whole if order is None else whole[order]


def by_id(devices: Ints) -> Ints | None:
    """The order in which ids increase; None where they do."""
    rising = bool((np.diff(devices) > 0).all())
    return None if rising else np.argsort(devices, kind="stable")


def stacked(offsets: Sequence[Ints]) -> Ints:
    """Offsets of compressed rows below one another."""
    counts = np.concatenate([np.diff(each) for each in offsets])
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64, copy=False)


def stacked_features(features: "Sequence[Features | None]") -> "Features | None":
    """Rows below one another; those of one part stay where they are mapped."""
    rows: list[Any] = [each for each in features if each is not None]
    if not rows:
        return None
    if len(rows) == 1 or not is_sparse(rows[0]):
        single: Features = rows[0] if len(rows) == 1 else np.concatenate(rows)
        return single
    from scipy.sparse import csr_array

    values = np.concatenate([each.data for each in rows])
    indices = np.concatenate([each.indices for each in rows])
    indptr = stacked([each.indptr for each in rows])
    if len(values) < 1 << 31:
        indptr = indptr.astype(np.int32)  # of the type of the indices, or scipy would copy them
    shape = (len(indptr) - 1, rows[0].shape[1])
    return csr_array((values, indices, indptr), shape=shape, copy=False)


def _training(part: StoredPart) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Offsets and neighbours of training edges alone."""
    training = np.asarray(part.edge_roles) == Role.TRAIN
    before = np.concatenate([[0], np.cumsum(training)])
    return before[part.offsets], part.neighbours[training]


def _end_to_end(arrays: Sequence[npt.NDArray[Any]], dtype: type[np.int64]) -> Ints:
    whole = np.empty((sum(map(len, arrays)), *arrays[0].shape[1:]), dtype)
    np.concatenate(arrays, out=whole, casting="safe")
    return whole


def _or_default(arrays: Sequence[npt.NDArray[Any] | None], default: int, count: int) -> Ints:
    known = [array for array in arrays if array is not None]
    return _end_to_end(known, np.int64) if known else np.full(count, default, np.int64)
