"""Original ids and the indices that stand for them."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from lumos.errors import InputError
from lumos.graph.neighbour_lists import distinct
from lumos.typing import Ints

Ids: TypeAlias = Ints | tuple[str, ...]

_AT_ONCE = 4096
LONGEST_ID = 1000
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


def shown(value: object) -> str:
    """Return `value` as it may stand in a one-line message: quoted, escaped and short."""
    text = repr(str(value))
    return text if len(text) <= 60 else f"{text[:56]}…'"


def some_ids(ids: Ids, rows: Ints) -> Ids:
    """The ids of some devices."""
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
    array = _pairs(edges)
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


def _pairs(edges: Any) -> NDArray[Any]:
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
    if longest > LONGEST_ID:
        raise InputError(
            f"ids: one has {longest:,} characters; the most are {LONGEST_ID:,}, use shorter ones"
        )


def indices_of(values: NDArray[Any], ids: Ids) -> Ints:
    """[values]: the index of each value among `ids`; an unknown one is refused."""
    indices = lookup(values, ids)
    unknown = np.flatnonzero(indices < 0)
    if len(unknown):
        value = values[unknown[0]]
        raise InputError(f"edges: {shown(value)} is not the id of any of the {len(ids)} devices")
    return indices


def lookup(values: NDArray[Any], ids: Ids) -> Ints:
    """[values]: the index of each value among `ids`, -1 where it is unknown."""
    if isinstance(ids, tuple):
        number = {name: index for index, name in enumerate(ids)}
        return np.array([number.get(str(value), -1) for value in values.tolist()], dtype=np.int64)
    if values.dtype.kind not in "iu":
        return np.full(len(values), -1, dtype=np.int64)
    if len(ids) == 0:
        return np.full(len(values), -1, dtype=np.int64)
    values = values.astype(np.int64, copy=False)
    # The common case, ids 0 … n - 1 in order, needs no search.
    if ids[0] == 0 and ids[-1] == len(ids) - 1 and np.array_equal(ids, np.arange(len(ids))):
        return np.where((values >= 0) & (values < len(ids)), values, -1)
    order = np.argsort(ids, kind="stable")
    place = np.minimum(np.searchsorted(ids, values, sorter=order), len(ids) - 1)
    index = order[place]
    return np.where(ids[index] == values, index, -1)
