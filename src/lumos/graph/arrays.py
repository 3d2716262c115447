"""The arrays of a graph: features, ids and neighbour lists, checked and write-protected."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lumos.errors import InputError, UsageError
from lumos.typing import Flags, Ints

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    SparseFeatures: TypeAlias = csr_array[np.float32, tuple[int, int]]

BLOCK = 4096
MAX_WIDTH_PER_INDEX, EXTRA_WIDTH = 64, 1_000_000
"""Limits of the width of sparse features: times the number of indices in use, and added to that.

One index far beyond all others would make models and sums as wide as it says: a single device could
ask everybody for any amount of memory.
"""


def refuse_width(width: int, used: int, where: str) -> None:
    """Refuse a number of columns, or of devices, far beyond those in use: before memory is asked.

    Raises:
        InputError: `width` is above `MAX_WIDTH_PER_INDEX` · `used` + `EXTRA_WIDTH`.
    """
    most = MAX_WIDTH_PER_INDEX * used + EXTRA_WIDTH
    if width > most:
        raise InputError(
            f"{where}: the index {width - 1} is far beyond the others, of which {used:,} are in "
            f"use (at most {most - 1} is read); number them from 0 without gaps"
        )


def freeze(array: Any, dtype: Any, *, own: bool = False) -> NDArray[Any]:
    """Return `array` write-protected; it is copied unless nobody else can write to it.

    With `own` the array is the callee's from now on, and is protected in place.
    """
    array = np.asarray(array, dtype=dtype)
    if not own and _writable_somewhere(array):
        array = array.copy()
    array.flags.writeable = False
    return np.asarray(array)


def _writable_somewhere(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return False


def as_array(values: Any) -> NDArray[Any]:
    """Return an array of a tensor of torch, on whatever processor, or of anything else."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


Rows: TypeAlias = ArrayLike | slice | None
"""Positions of devices: whole numbers or a mask over all devices, as a list, an array or a tensor;
or a slice; None for all of them."""


def positions(rows: Rows, devices: int) -> Ints:
    """Return the positions of devices as whole numbers from 0.

    Args:
        rows: as `Rows`; a negative number counts from the end, as in NumPy.
        devices: number of all devices.

    Raises:
        UsageError: there is no such position, or these are none.
    """
    every = np.arange(devices, dtype=np.int64)
    if rows is None or isinstance(rows, slice):
        return every if rows is None else every[rows]
    chosen = np.atleast_1d(as_array(rows))
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "biu"):
        what = f"{chosen.dtype} of shape {list(chosen.shape)}"
        raise UsageError(
            f"positions of devices are whole numbers or a mask, got {what}; original ids go to "
            "`ids`"
        )
    if chosen.dtype == np.bool_:
        if len(chosen) != devices:
            raise UsageError(f"the mask has {len(chosen)} values for {devices} devices")
        return np.flatnonzero(chosen)
    chosen = chosen.astype(np.int64)
    wrong = chosen[(chosen < -devices) | (chosen >= devices)]
    if len(wrong):
        raise UsageError(
            f"there is no device at position {wrong[0]}, they are 0 … {devices - 1}; original ids "
            "go to `ids`"
        )
    found: Ints = every[chosen]
    return found


def is_sparse(features: Any) -> bool:
    """Return whether `features` is a scipy sparse matrix or array, without importing scipy."""
    return type(features).__module__.startswith("scipy.sparse")


MIN_CONVERTED, MAX_FILLED = 1 << 20, 0.25
"""Dense features of at least this size, of which at most this share is not zero, become sparse.

`python -m benchmarks.bench features` measures what training on them saves.
"""


def stored_features(features: Any) -> Any:
    """Return features as a graph keeps them: write-protected, and sparse where that pays."""
    if is_sparse(features):
        return frozen_sparse(features)
    if features.size >= MIN_CONVERTED and np.count_nonzero(features) <= MAX_FILLED * features.size:
        return frozen_sparse(features)
    return freeze(features, np.float32)


def frozen_sparse(features: Any) -> "SparseFeatures":
    """Return a write-protected copy in canonical compressed rows of float32."""
    from scipy.sparse import csr_array

    rows = csr_array(features, dtype=np.float32)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    parts = (
        freeze(rows.data, np.float32),
        freeze(rows.indices, rows.indices.dtype),
        freeze(rows.indptr, rows.indptr.dtype),
    )
    return csr_array(parts, shape=rows.shape, copy=False)


def finite_features(features: Any, devices: int, what: str) -> Any:
    """Check that `features` is [devices, width] of finite numbers that fit into float32."""
    sparse = is_sparse(features)
    if not sparse:
        features = np.asarray(features)
    if len(features.shape) != 2 or features.shape[0] != devices:
        shape = list(features.shape)
        raise InputError(f"{what}: one row per device is needed, [{devices}, width]; got {shape}")
    if features.dtype.kind not in "biuf":
        raise InputError(f"{what}: real numbers are needed; got {features.dtype}")
    if sparse:
        from scipy.sparse import csr_array

        features = csr_array(features)
        width = int(features.shape[1])
        if width > EXTRA_WIDTH:
            refuse_width(width, len(np.unique(features.indices)), what)
        wrong = np.flatnonzero(~fits_float32(features.data))
        if len(wrong):
            row = int(np.searchsorted(features.indptr, wrong[0], side="right")) - 1
            refuse_feature(what, row, int(features.indices[wrong[0]]), features.data[wrong[0]])
        return features.astype(np.float32, copy=False)
    if features.dtype.kind == "f":
        # In blocks: a mask of a large matrix would be a quarter of its size.
        for start in range(0, devices, BLOCK):
            places = np.argwhere(~fits_float32(features[start : start + BLOCK]))
            if len(places):
                row, column = start + int(places[0][0]), int(places[0][1])
                refuse_feature(what, row, column, features[row, column])
    return features.astype(np.float32, copy=False)


def fits_float32(values: Any) -> Flags:
    """Return where `values` are finite as float32 (a comparison with NaN is false)."""
    return np.asarray(np.abs(values) <= np.finfo(np.float32).max)


def refuse_feature(what: str, row: int, column: int, value: Any) -> None:
    """Raise the error for a feature that is NaN, infinite or too large."""
    raise InputError(
        f"{what}: row {row}, column {column} is {value}; replace it by a finite number"
    )


def integer_labels(labels: Any, devices: int, what: str) -> Ints:
    """Check that `labels` is [devices] of integers, -1 where unknown."""
    array = np.asarray(labels)
    if array.shape != (devices,):
        shape = list(array.shape)
        raise InputError(f"{what}: one label per device is needed, [{devices}]; got {shape}")
    if array.dtype.kind not in "iub":
        raise InputError(f"{what}: integers are needed, -1 where unknown; got {array.dtype}")
    array = array.astype(np.int64, copy=False)
    if len(array) and array.min() < -1:
        row = int(np.argmin(array))
        raise InputError(f"{what}: row {row} is {array[row]}; only -1 (unknown) may be negative")
    return array


@dataclass(frozen=True)
class Neighbours:
    """Neighbour lists in compressed sparse rows, and what was dropped to get them."""

    offsets: Ints
    """[devices + 1]: the neighbours of u lie at offsets[u] : offsets[u + 1]."""
    neighbours: Ints
    """[2 · edges], ascending within each device."""
    self_loops: int
    """Pairs (u, u) dropped."""
    repeats: int
    """Pairs dropped because the same pair, in the same direction, came before."""
    both_ways: int
    """Edges {u, v} given as (u, v) and also as (v, u)."""


def neighbour_lists(pairs: Ints, devices: int) -> Neighbours:
    """Clean `pairs` [rows, 2] of device indices below `devices`; no Python loop over them.

    A pair is sorted as the single number u · devices + v, so that one sort of integers finds
    all repetitions.
    """
    u, v = pairs[:, 0], pairs[:, 1]
    proper = u != v
    rows = int(np.count_nonzero(proper))
    ordered = distinct(u[proper] * devices + v[proper])
    u, v = np.divmod(ordered, max(devices, 1))
    unordered = distinct(np.minimum(u, v) * devices + np.maximum(u, v))
    low, high = np.divmod(unordered, max(devices, 1))
    arcs = np.concatenate([unordered, high * devices + low])
    arcs.sort()
    owner, neighbour = np.divmod(arcs, max(devices, 1))
    offsets = np.zeros(devices + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=devices), out=offsets[1:])
    return Neighbours(
        offsets=offsets,
        neighbours=neighbour,
        self_loops=len(pairs) - rows,
        repeats=rows - len(ordered),
        both_ways=len(ordered) - len(unordered),
    )


def distinct(keys: Ints) -> Ints:
    """Return the distinct values of `keys`, ascending (ten times as fast as `np.unique`)."""
    keys = np.sort(keys)
    new = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return keys[new]


def spans(starts: Ints, counts: Ints) -> Ints:
    """Return [sum of counts] starts[0], starts[0] + 1, … (counts[0] of them), then starts[1], …"""
    ends = np.cumsum(counts)
    places: Ints = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
        starts - (ends - counts), counts
    )
    return places


Ids: TypeAlias = Ints | tuple[str, ...]

_AT_ONCE = 4096
MAX_ID = 1000
"""Characters of an id. Files keep all ids at the length of the longest."""


class IdTexts(Sequence[str]):
    """Original ids as text, made where one is asked for: ten million texts would take a gigabyte.

    Args:
        ids: whole numbers or texts.
    """

    def __init__(self, ids: "Ints | Sequence[str]") -> None:
        self.values = ids

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> "IdTexts": ...
    def __getitem__(self, place: int | slice) -> "str | IdTexts":
        found = self.values[place]
        return IdTexts(found) if isinstance(place, slice) else str(found)

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _AT_ONCE):
            some = self.values[start : start + _AT_ONCE]
            yield from map(str, some.tolist() if isinstance(some, np.ndarray) else some)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(one == another for one, another in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash((len(self), *self[:3]))

    def __repr__(self) -> str:
        return f"IdTexts({len(self):,} ids)"

    def rows(self, ids: Iterable[int | str]) -> Ints:
        """Return the positions of devices by their original ids.

        Raises:
            InputError: there is no such device.
        """
        try:
            return np.array([self._position[str(name)] for name in ids], np.int64)
        except KeyError as error:
            raise InputError(f"{error.args[0]!r} is not the id of any device of this run") from None

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self)}


def shown(value: object) -> str:
    """Return `value` as it may stand in a one-line message: quoted, escaped and short."""
    text = repr(str(value))
    return text if len(text) <= 60 else f"{text[:56]}…'"


def some_ids(ids: Ids, rows: Ints) -> Ids:
    """Return the ids of some devices."""
    if isinstance(ids, tuple):
        return tuple(ids[row] for row in rows.tolist())
    return ids[rows]


def same_devices(**sources: Any) -> int | None:
    """Return the number of devices on which all given sources agree, None if none says it."""
    counts: dict[str, int] = {}
    for name, source in sources.items():
        if source is None:
            continue
        if name == "devices":
            if source < 0:
                raise InputError(f"devices must be >= 0; got {source}")
            counts[name] = int(source)
        else:
            shape = getattr(source, "shape", None)
            if shape == () or isinstance(source, int | float):
                raise InputError(f"{name}: one row per device is needed; got a single value")
            counts[name] = int(shape[0]) if shape else len(source)
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InputError(f"the number of devices differs: {listed}")
    return next(iter(counts.values()), None)


def pairs_of(edges: Any, devices: int | None, ids: Any) -> tuple[Ids, Ints]:
    """Return the ids of all devices, and `edges` [rows, 2] as indices into them."""
    array = _checked_pairs(edges)
    if ids is not None:
        original = unique_ids(ids)
        return original, indices_of(array.ravel(), original).reshape(-1, 2)
    if array.dtype.kind not in "iu":
        if devices is not None:
            raise InputError(f"edges: indices 0 … {devices - 1} are needed; got {array.dtype}")
        original = tuple(sorted(set(array.ravel().tolist())))
        return original, indices_of(array.ravel(), original).reshape(-1, 2)
    if len(array) and array.min() < 0:
        row = int(np.argmax((array < 0).any(axis=1)))
        raise InputError(f"edges: row {row} holds {array[row].min()}; ids must be >= 0")
    if devices is None:
        original = distinct(array.ravel())
        return original, indices_of(array.ravel(), original).reshape(-1, 2)
    if len(array) and array.max() >= devices:
        row = int(np.argmax((array >= devices).any(axis=1)))
        raise InputError(
            f"edges: row {row} holds {array[row].max()}, but there are {devices} devices, "
            f"0 … {devices - 1}"
        )
    return np.arange(devices, dtype=np.int64), array


def _checked_pairs(edges: Any) -> NDArray[Any]:
    """Return `edges` as [rows, 2] of int64 or text."""
    array = np.asarray(edges)
    if array.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2:
        shape = list(array.shape)
        raise InputError(f"edges: pairs are needed, [rows, 2]; got the shape {shape}")
    if array.dtype.kind in "OU":
        return array.astype(str)
    if array.dtype.kind not in "iu":
        raise InputError(f"edges: integers or text are needed; got {array.dtype}")
    return array.astype(np.int64, copy=False)


def unique_ids(ids: Any) -> Ids:
    """Check that `ids` are distinct: non-negative integers, or text."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuOU"):
        raise InputError(f"ids: a list of integers or text is needed; got {array.dtype}")
    if array.dtype.kind in "iu" or array.size == 0:
        array = array.astype(np.int64)
        if len(array) and array.min() < 0:
            raise InputError(f"ids: {array.min()} is negative; ids must be >= 0")
        ordered = np.sort(array)
        again = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(again):
            raise InputError(f"ids: {again[0]} occurs twice; ids must be distinct")
        return array
    text = tuple(str(value) for value in array.tolist())
    seen: set[str] = set()
    for value in text:
        if value in seen:
            raise InputError(f"ids: {shown(value)} occurs twice; ids must be distinct")
        seen.add(value)
    return text


def refuse_long(ids: Ids) -> None:
    """Refuse an id with which one device would make the files of all of them large."""
    longest = max(map(len, ids), default=0) if isinstance(ids, tuple) else 0
    if longest > MAX_ID:
        raise InputError(
            f"ids: one has {longest:,} characters; the most are {MAX_ID:,}, use shorter ones"
        )


def indices_of(values: NDArray[Any], ids: Ids) -> Ints:
    """Return [values] the index of each value among `ids`; refuse an unknown one."""
    indices = lookup(values, ids)
    unknown = np.flatnonzero(indices < 0)
    if len(unknown):
        value = values[unknown[0]]
        raise InputError(f"edges: {shown(value)} is not the id of any of the {len(ids)} devices")
    return indices


def lookup(values: NDArray[Any], ids: Ids) -> Ints:
    """Return [values] the index of each value among `ids`, -1 where it is unknown."""
    if isinstance(ids, tuple):
        number = {name: index for index, name in enumerate(ids)}
        return np.array([number.get(str(value), -1) for value in values.tolist()], dtype=np.int64)
    if values.dtype.kind not in "iu" or len(ids) == 0:
        return np.full(len(values), -1, dtype=np.int64)
    values = values.astype(np.int64, copy=False)
    # The common case, ids 0 … n - 1 in order, needs no search.
    if ids[0] == 0 and ids[-1] == len(ids) - 1 and np.array_equal(ids, np.arange(len(ids))):
        return np.where((values >= 0) & (values < len(ids)), values, -1)
    order = np.argsort(ids, kind="stable")
    place = np.minimum(np.searchsorted(ids, values, sorter=order), len(ids) - 1)
    index = order[place]
    return np.where(ids[index] == values, index, -1)
