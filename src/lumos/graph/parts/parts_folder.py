"""A graph in parts on disk: a public manifest, a file for each part, and one for the observer.

Parts are written all or nothing. A folder `unfinished` is there from the first file on until the
manifest, the last one, is written. What stops on the way takes its files with it; what is killed
leaves that folder, and the parts are refused.
"""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import Ids, is_sparse
from lumos.graph.facts import GraphFacts, GraphPart
from lumos.graph.graph import Graph
from lumos.graph.io import NOT_ASKED
from lumos.graph.parts.manifest import (
    MANIFEST,
    MARK,
    Manifest,
    PartsSplit,
    Task,
    read_manifest,
)
from lumos.graph.parts.stored_part import REMEDY, StoredPart, joined, joined_ids, read_layout
from lumos.storage import private_folder
from lumos.typing import Ints

if TYPE_CHECKING:
    from lumos.graph.graph import Features

OBSERVER = "observer.safetensors"
UNFINISHED = "unfinished"
"""A folder that is there while the parts are written."""


def is_parts_folder(path: Path) -> bool:
    """Return whether a folder holds a graph in parts, or an unfinished one."""
    if (path / UNFINISHED).is_dir():
        return True
    try:
        with (path / MANIFEST).open("rb") as file:
            return f'"{MARK}"'.encode() in file.read(100)
    except (OSError, ValueError):  # no such folder, or a path that cannot be one
        return False


class HeldOutPairs(NamedTuple):
    """Pairs [pairs, 2] that only the observer of a simulation has, as in an `EdgeSplit`."""

    validation: Ints
    test: Ints
    validation_non_neighbours: Ints
    """Pairs that are no edges of the whole graph."""
    test_non_neighbours: Ints


@dataclass(frozen=True, eq=False)
class PartsFolder:
    """A graph in parts on disk. Only the files of those parts are opened that are asked for."""

    path: Path
    manifest: Manifest = field(repr=False)

    @staticmethod
    def open(path: Path | str) -> "PartsFolder":
        """Open a folder that `lumos split` wrote.

        Raises:
            InputError: there is none, it is unfinished or damaged, or of another version.
        """
        path = Path(path)
        if (path / UNFINISHED).exists():
            raise InputError(
                f"{path}: writing its parts was interrupted; delete the folder and split again"
            )
        return PartsFolder(path, read_manifest(path))

    @property
    def parts(self) -> int:
        """Number of parts."""
        return self.manifest.parts

    def facts(self, task: Task) -> GraphFacts:
        """Return the public facts of the graph of a task: for link, of the training edges.

        Raises:
            UsageError: the parts were not made for this task.
        """
        return self.manifest.facts(task)

    def split(self, task: Task) -> PartsSplit:
        """Return the origin of the split of a task, and its counts.

        Raises:
            UsageError: the parts were not made for this task.
        """
        return self.manifest.split(task)

    def range_of(self, rank: int, ranks: int) -> range:
        """Return the numbers of the parts of one rank: contiguous, with about equal slots.

        Raises:
            UsageError: there are fewer parts than ranks.
        """
        ends = self._cuts(ranks)
        return range(int(ends[rank]), int(ends[rank + 1]))

    def part(self, numbers: Iterable[int], task: Task) -> GraphPart:
        """Return some parts as one, sorted by id.

        For link `neighbours` are those of training edges, and `held_back` has validation edges.

        Raises:
            InputError: a file is missing or damaged.
            UsageError: there is no such part, or the parts were not made for this task.
        """
        self.manifest.split(task)
        return joined(self._stored(numbers), self.manifest.graph.devices, link=task == "link")

    def ids(self, numbers: Iterable[int]) -> Ids:
        """Return original ids of the devices of some parts, in the order of the graph.

        Raises:
            InputError: a file is missing or damaged.
            UsageError: there is no such part.
        """
        return joined_ids(self._stored(numbers))

    def held_out(self) -> HeldOutPairs:
        """Return edges and non-neighbours on which the observer of a simulation tests links.

        Raises:
            InputError: the file is missing or damaged.
            UsageError: the parts were not made for link.
        """
        self.manifest.split("link")
        path = self.path / OBSERVER
        arrays = read_layout(path, REMEDY)
        total = self.manifest.graph.devices
        for name in HeldOutPairs._fields:
            pairs = arrays.get(name)
            if pairs is None or pairs.dtype != np.int32 or pairs.shape[1:] != (2,):
                raise InputError(f"{path}: there are no pairs {name!r}; {REMEDY}")
            if pairs.size and not 0 <= int(pairs.min()) <= int(pairs.max()) < total:
                raise InputError(f"{path}: {name!r} names a device that is none; {REMEDY}")
        return HeldOutPairs(
            **{name: arrays[name].astype(np.int64) for name in HeldOutPairs._fields}
        )

    def graph(self, *, features: bool = True) -> Graph:
        """Read the whole graph into memory.

        Its roles are those that its source had. Where it had none, and the split of devices is not
        the default one of the seed, the roles are those of the split.

        Raises:
            InputError: a file is missing or damaged.
        """
        manifest, facts = self.manifest, self.manifest.graph
        stored = self._stored(range(self.parts))
        whole = joined(stored, facts.devices, link=False)
        roles: Any = None
        split = manifest.splits.get("classify")
        if manifest.source_roles:
            roles = np.concatenate([np.asarray(part.source_roles, np.int64) for part in stored])
        elif split is not None and split.name:
            roles = whole.roles
        asked = () if features or NOT_ASKED in facts.notes else (NOT_ASKED,)
        return Graph(
            offsets=whole.offsets,
            neighbours=whole.neighbours,
            ids=joined_ids(stored),
            features=_as_indexed(whole.features, manifest.index_bytes) if features else None,
            labels=whole.labels if facts.labelled else None,
            classes=facts.classes,
            roles=roles,
            name=facts.name,
            dropped_self_loops=manifest.dropped_self_loops,
            dropped_duplicates=manifest.dropped_duplicates,
            notes=(*facts.notes, *asked),
        )

    def _stored(self, numbers: Iterable[int]) -> list[StoredPart]:
        wanted = sorted(set(numbers))
        if not wanted or not 0 <= wanted[0] <= wanted[-1] < self.parts:
            raise UsageError(f"{self.path}: it has the parts 0 … {self.parts - 1}; got {wanted}")
        return [StoredPart.read(self.path, number, self.manifest) for number in wanted]

    def _cuts(self, ranks: int) -> Ints:
        """Return [ranks + 1] cuts: rank r has the parts cuts[r] … cuts[r + 1] - 1, one at least."""
        if not 1 <= ranks <= self.parts:
            raise UsageError(
                f"{self.path} has {self.parts:,} parts, too few for {ranks:,} ranks; split the "
                "graph into more"
            )
        weights = np.diff(self.manifest.bounds)
        if self.manifest.slots is not None:
            weights = weights + np.array(self.manifest.slots, np.int64)
        ends = np.concatenate([[0], np.cumsum(weights)])
        cuts = np.empty(ranks + 1, np.int64)
        cuts[0], cuts[ranks] = 0, self.parts
        for rank in range(1, ranks):
            target = ends[-1] * rank / ranks
            nearest = int(np.argmin(np.abs(ends - target)))
            cuts[rank] = min(max(nearest, cuts[rank - 1] + 1), self.parts - ranks + rank)
        return cuts


def _as_indexed(features: "Features | None", index_bytes: int) -> "Features | None":
    """Return sparse features with indices of `index_bytes` bytes."""
    matrix: Any = features
    if is_sparse(matrix):
        from scipy.sparse import csr_array

        kind = np.int32 if index_bytes == 4 else np.int64
        indices, indptr = matrix.indices.astype(kind), matrix.indptr.astype(kind)
        matrix = csr_array((matrix.data, indices, indptr), shape=matrix.shape, copy=False)
    return matrix  # type: ignore[no-any-return]


def refuse_taken(path: Path) -> None:
    """Refuse a place for parts where something is.

    Raises:
        UsageError: it is no folder, or not empty.
    """
    if (path / UNFINISHED).is_dir():
        raise UsageError(f"{path}: writing parts was interrupted there; delete the folder first")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is there already and not empty; choose another folder")


@contextmanager
def new_parts(path: Path) -> Iterator[None]:
    """Make a folder to write parts into; nothing is left of it where that fails.

    Raises:
        UsageError: there is something at this place.
    """
    refuse_taken(path)
    there = path.exists()
    private_folder(path)
    private_folder(path / UNFINISHED)
    try:
        yield
    except BaseException:
        for child in path.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        if not there:
            path.rmdir()
        raise
    shutil.rmtree(path / UNFINISHED)
