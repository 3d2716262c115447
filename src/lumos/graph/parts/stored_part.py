"""The files of parts: arrays that can be mapped into memory, in the plain layout of safetensors.

    8 bytes     length of the header, little-endian
    header      JSON: {"name": {"dtype": "I32", "shape": [3], "data_offsets": [0, 12]}, …}
    buffers     raw little-endian arrays, one after the other, without gaps

Arrays of wider numbers come first, and blanks fill the header up to a multiple of 8 bytes: every
array begins at a multiple of its item size. Any reader of safetensors reads such a file.

A file is checked before it is used: every array must be as large as its header says, and all of
them together must fill the file exactly. So a file that was cut off, or whose header lies about
sizes, is refused, and no header can ask for more memory than the file is long.

The file of a part has these arrays:

    offsets       I64 [hosted + 1]   slots of hosted device i are offsets[i] … offsets[i + 1] - 1
    neighbours    I32 [slots]        all neighbours in the whole graph, increasing for each device
    edge_roles    U8  [slots]        for link: 0 trains, 1 validates, 2 tests
    held_back     I32 [pairs, 2]     for link: validation edges, as ids; of those who have the first
    features      F32 [hosted, d]    dense; or sparse in compressed rows:
    indptr        I64 [hosted + 1]
    indices       I32 [entries]
    values        F32 [entries]      (fewer than 2^31)
    labels        I32 [hosted]       -1 where unknown
    roles         I8  [hosted]       for classify: 0 trains, 1 validates, 2 tests, -1 none
    source_roles  I8  [hosted]       the same as the source of the graph had them, if it had any
    ids           I64 [hosted]       original ids; or as text, where they are not 0, 1, …:
    id_offsets    I64 [hosted + 1]
    id_bytes      U8  [bytes]        UTF-8

A part of one device is what a device holds: nothing of anybody else is in it.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import Ids, is_sparse
from lumos.graph.facts import GraphPart
from lumos.graph.labels import Role
from lumos.graph.parts.manifest import Manifest
from lumos.storage import PRIVATE, one_line
from lumos.typing import Arrays, Floats, Ints

if TYPE_CHECKING:
    from lumos.graph.graph import Features

DTYPES: Mapping[str, str] = {
    "I64": "<i8",
    "I32": "<i4",
    "F32": "<f4",
    "U16": "<u2",
    "I8": "i1",
    "U8": "u1",
}
"""Types of numbers that a file may hold, by their names in safetensors."""
MAX_HEADER = 1 << 20
MAPPED_BYTES = 1 << 16
"""Size up to which files are read at once: a process may hold a limited number of maps."""
_NAMES = {np.dtype(code): name for name, code in DTYPES.items()}


def write_layout(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays into a new file that only its owner may read."""
    header: dict[str, Any] = {}
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    start = 0
    for name, array in ordered:
        end = start + array.nbytes
        kind = _NAMES[array.dtype.newbyteorder("<")]
        header[name] = {"dtype": kind, "shape": [*array.shape], "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, PRIVATE)) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in ordered:
            file.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)


def read_layout(path: Path, remedy: str) -> Arrays:
    """Return the arrays of a file, read-only and mapped, so that only what is used takes memory.

    Args:
        path: the file.
        remedy: what to do where it is damaged, for the error.

    Raises:
        InputError: there is no such file, or it is damaged.
    """
    try:
        size = path.stat().st_size
        if size < 8:
            _damaged(path, f"{size} bytes are too few", remedy)
        small = size <= MAPPED_BYTES
        content = np.fromfile(path, np.uint8) if small else np.memmap(path, np.uint8, "r")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; {remedy}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    content.flags.writeable = False
    length = int.from_bytes(content[:8].tobytes(), "little")
    if length > min(MAX_HEADER, size - 8) or length % 8:
        _damaged(path, "its header is not as long as it says", remedy)
    try:
        header = json.loads(content[8 : 8 + length].tobytes())
        places = {name: _place(entry) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        _damaged(path, f"its header cannot be read: {one_line(error)}", remedy)
    buffers = content[8 + length :]
    end = 0
    for name, (dtype, shape, start, stop) in sorted(places.items(), key=lambda item: item[1][2:]):
        if start != end or stop - start != math.prod(shape) * dtype.itemsize:
            _damaged(path, f"the array {one_line(name)!r} is not as large as it says", remedy)
        if start % dtype.itemsize:
            _damaged(path, f"the array {one_line(name)!r} begins at an odd place", remedy)
        end = stop
    if end != len(buffers):
        _damaged(path, f"{len(buffers):,} bytes of arrays in place of {end:,}", remedy)
    return {
        name: np.asarray(buffers[start:stop]).view(dtype).reshape(shape)
        for name, (dtype, shape, start, stop) in places.items()
    }


def _place(entry: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Return type, shape, start and end of an array."""
    start, stop = entry["data_offsets"]
    numbers = (*entry["shape"], start, stop)
    if any(type(number) is not int or not 0 <= number < 1 << 62 for number in numbers):
        raise ValueError("sizes must be whole numbers")
    return np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"]), start, stop


def _damaged(path: Path, how: str, remedy: str) -> NoReturn:
    raise InputError(f"{path}: is damaged ({how}); {remedy}")


REMEDY = "split the graph again"


def part_path(folder: Path, number: int) -> Path:
    """Return the path of a part."""
    return folder / f"part-{number:05d}.safetensors"


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredPart:
    """Content of the file of a part; arrays as narrow as they are there."""

    devices: Ints = field(repr=False)
    """[hosted] ids, a range."""
    offsets: Ints = field(repr=False)
    neighbours: npt.NDArray[np.int32] = field(repr=False)
    features: "Features | None" = field(repr=False)
    labels: npt.NDArray[Any] | None = field(repr=False)
    ids: Ids | None = field(repr=False)
    """[hosted] original ids; None where they are the ids of the graph."""
    roles: npt.NDArray[Any] | None = field(repr=False, default=None)
    source_roles: npt.NDArray[Any] | None = field(repr=False, default=None)
    edge_roles: npt.NDArray[np.uint8] | None = field(repr=False, default=None)
    held_back: npt.NDArray[np.int32] | None = field(repr=False, default=None)

    def write(self, folder: Path, number: int) -> None:
        """Write the file of this part."""
        arrays: Arrays = {
            "offsets": self.offsets,
            "neighbours": self.neighbours.astype(np.int32, copy=False),
        }
        narrow = {
            "edge_roles": (self.edge_roles, np.uint8),
            "held_back": (self.held_back, np.int32),
            "labels": (self.labels, np.int32),
            "roles": (self.roles, np.int8),
            "source_roles": (self.source_roles, np.int8),
        }
        for name, (array, dtype) in narrow.items():
            if array is not None:
                arrays[name] = array.astype(dtype, copy=False)
        features: Any = self.features
        if is_sparse(features):
            if features.nnz >= 1 << 31:
                raise UsageError("`parts`: a part has more than 2^31 features; use more parts")
            arrays["indptr"] = features.indptr.astype(np.int64, copy=False)
            arrays["indices"] = features.indices.astype(np.int32, copy=False)
            arrays["values"] = features.data
        elif features is not None:
            arrays["features"] = features
        if isinstance(self.ids, tuple):
            texts = [name.encode() for name in self.ids]
            arrays["id_offsets"] = np.cumsum([0, *map(len, texts)], dtype=np.int64)
            arrays["id_bytes"] = np.frombuffer(b"".join(texts), np.uint8)
        elif self.ids is not None:
            arrays["ids"] = self.ids
        write_layout(part_path(folder, number), arrays)

    @staticmethod
    def read(folder: Path, number: int, manifest: Manifest) -> "StoredPart":
        """Map the file of a part into memory.

        Raises:
            InputError: it is missing, damaged, or does not fit the manifest.
        """
        path = part_path(folder, number)
        file = _Checked(path, read_layout(path, REMEDY))
        total = manifest.graph.devices
        devices = np.arange(manifest.bounds[number], manifest.bounds[number + 1])
        hosted = len(devices)
        neighbours = file.within("neighbours", None, 0, total)
        link, classify = "link" in manifest.splits, "classify" in manifest.splits
        held_back = edge_roles = None
        if link:
            edge_roles = file.within("edge_roles", (len(neighbours),), 0, 3)
            held_back = file.within("held_back", None, 0, total)
            if held_back.ndim != 2 or held_back.shape[1] != 2:
                file.refuse("held_back")
            if not np.isin(held_back[:, 0], devices).all():
                file.refuse("held_back")
        offsets = file.offsets("offsets", hosted, len(neighbours))
        rising = neighbours[1:] > neighbours[:-1]
        starts = offsets[1:-1]
        rising[starts[(starts > 0) & (starts < len(neighbours))] - 1] = True
        if not rising.all():
            file.refuse("neighbours")
        return StoredPart(
            devices=devices,
            offsets=offsets,
            neighbours=neighbours,
            features=_features(file, hosted, manifest),
            labels=file.within("labels", (hosted,), -1, manifest.graph.class_count)
            if manifest.graph.labelled
            else None,
            ids=_ids(file, hosted, manifest),
            roles=file.within("roles", (hosted,), -1, 3) if classify else None,
            source_roles=file.within("source_roles", (hosted,), -1, 3)
            if manifest.source_roles
            else None,
            edge_roles=edge_roles,
            held_back=held_back,
        )


def _features(file: "_Checked", hosted: int, manifest: Manifest) -> "Features | None":
    width = manifest.graph.feature_count
    if not width:
        return None
    if not manifest.graph.sparse:
        dense: Floats = file.finite("features", (hosted, width))
        return dense
    from scipy.sparse import csr_array

    values = file.finite("values", None)
    indices = file.within("indices", values.shape, 0, width)
    # Of one type, as the indices are: otherwise scipy would copy them.
    indptr = file.offsets("indptr", hosted, len(values)).astype(np.int32)
    return csr_array((values, indices, indptr), shape=(hosted, width), copy=False)


def _ids(file: "_Checked", hosted: int, manifest: Manifest) -> Ids | None:
    if manifest.ids == "rows":
        return None
    if manifest.ids == "integers":
        numbers: Ints = file.within("ids", (hosted,), 0, 1 << 63)
        return numbers
    raw = file.within("id_bytes", None, 0, 256)
    ends = file.offsets("id_offsets", hosted, len(raw)).tolist()
    text = raw.tobytes()
    try:
        return tuple(text[a:b].decode() for a, b in pairwise(ends))
    except UnicodeDecodeError:
        file.refuse("id_bytes")


@dataclass(frozen=True)
class _Checked:
    """The arrays of a file, each checked when it is taken."""

    path: Path
    arrays: Arrays

    def refuse(self, name: str) -> NoReturn:
        raise InputError(
            f"{self.path}: the array {name!r} is missing or does not fit {self.path.parent}; "
            f"{REMEDY}"
        )

    def _take(self, name: str, kinds: str, shape: tuple[int, ...] | None) -> npt.NDArray[Any]:
        array = self.arrays.get(name)
        if array is None or array.dtype.kind not in kinds or shape not in (None, array.shape):
            self.refuse(name)
        return np.asarray(array)

    def within(self, name: str, shape: tuple[int, ...] | None, least: int, end: int) -> Any:
        """Return whole numbers, all of them at least `least` and below `end`."""
        array = self._take(name, "iu", shape)
        if array.size and not least <= int(array.min()) <= int(array.max()) < end:
            self.refuse(name)
        return array

    def offsets(self, name: str, rows: int, entries: int) -> Ints:
        array = self._take(name, "i", (rows + 1,))
        if array[0] != 0 or array[-1] != entries or not (np.diff(array) >= 0).all():
            self.refuse(name)
        return array

    def finite(self, name: str, shape: tuple[int, ...] | None) -> Any:
        array = self._take(name, "f", shape)
        # The ends tell, without an array of flags: with a NaN among them, both are NaN.
        if not np.isfinite(array.min(initial=0)) or not np.isfinite(array.max(initial=0)):
            self.refuse(name)
        return array


def joined(stored: Sequence[StoredPart], total: int, *, link: bool) -> GraphPart:
    """Return the devices of several parts, in their order, as one part.

    Args:
        stored: the parts.
        total: number of devices in the federation.
        link: with training edges only, and validation edges held back.
    """
    devices = np.concatenate([part.devices for part in stored])
    lists = [_training(part) if link else (part.offsets, part.neighbours) for part in stored]
    held_back = np.empty((0, 2), np.int64)
    if link:
        pairs = _end_to_end([np.asarray(part.held_back) for part in stored])
        held_back = np.stack([np.searchsorted(devices, pairs[:, 0]), pairs[:, 1]], axis=1)
    return GraphPart(
        devices=devices,
        total=total,
        offsets=stacked([each for each, _ in lists]),
        neighbours=_end_to_end([each for _, each in lists]),
        features=stacked_features([part.features for part in stored]),
        labels=_or_default([part.labels for part in stored], -1, len(devices)),
        roles=_or_default(
            [None if link else part.roles for part in stored], Role.NOBODY, len(devices)
        ),
        held_back=held_back,
    )


def joined_ids(stored: Sequence[StoredPart]) -> Ids:
    """Return original ids of the devices of several parts, in the order of `joined`."""
    given = [part.ids for part in stored]
    if any(isinstance(ids, tuple) for ids in given):
        return tuple(str(name) for ids in given for name in (ids or ()))
    return np.concatenate(
        [part.devices if part.ids is None else np.asarray(part.ids, np.int64) for part in stored]
    )


def stacked(offsets: Sequence[Ints]) -> Ints:
    """Return offsets of compressed rows below one another."""
    counts = np.concatenate([np.diff(each) for each in offsets])
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64, copy=False)


def stacked_features(features: "Sequence[Features | None]") -> "Features | None":
    """Return rows below one another; those of one part stay where they are mapped."""
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
    """Return offsets and neighbours of training edges alone."""
    training = np.asarray(part.edge_roles) == Role.TRAIN
    before = np.concatenate([[0], np.cumsum(training)])
    return before[part.offsets], part.neighbours[training]


def _end_to_end(arrays: Sequence[npt.NDArray[Any]]) -> Ints:
    whole = np.empty((sum(map(len, arrays)), *arrays[0].shape[1:]), np.int64)
    np.concatenate(arrays, out=whole, casting="safe")
    return whole


def _or_default(arrays: Sequence[npt.NDArray[Any] | None], default: int, count: int) -> Ints:
    known = [array for array in arrays if array is not None]
    return _end_to_end(known) if known else np.full(count, default, np.int64)
