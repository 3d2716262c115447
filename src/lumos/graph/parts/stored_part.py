"""The file of one part: which arrays it has, written and read again with checks.

    devices       I64 [hosted]       ids, increasing; only where they are no contiguous range
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

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import Ids, is_sparse
from lumos.graph.parts.layout import read_layout, write_layout
from lumos.graph.parts.manifest import Manifest
from lumos.typing import Arrays, Floats, Ints

if TYPE_CHECKING:
    from lumos.graph.graph import Features

REMEDY = "split the graph again"


def part_path(folder: Path, number: int) -> Path:
    """Where a part lies."""
    return folder / f"part-{number:05d}.safetensors"


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredPart:
    """What the file of a part holds; arrays as narrow as they are there."""

    devices: Ints = field(repr=False)
    """[hosted] ids, increasing."""
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

    def write(self, folder: Path, number: int, *, contiguous: bool) -> None:
        """Write the file of this part."""
        arrays: Arrays = {
            "offsets": self.offsets,
            "neighbours": self.neighbours.astype(np.int32, copy=False),
        }
        if not contiguous:
            arrays["devices"] = self.devices
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
        if manifest.bounds is None:
            devices: Any = file.rising("devices", None, total)
        else:
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
        """Whole numbers, all of them at least `least` and below `end`."""
        array = self._take(name, "iu", shape)
        if array.size and not least <= int(array.min()) <= int(array.max()) < end:
            self.refuse(name)
        return array

    def rising(self, name: str, shape: tuple[int, ...] | None, end: int) -> Any:
        array = self.within(name, shape, 0, end)
        if array.ndim != 1 or not (np.diff(array) > 0).all():
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
