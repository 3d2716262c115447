"""`manifest.json`, on which the processes of a run agree, and the partition of a graph.

The manifest of a simulation also has facts that are computed from all data: the fingerprints, which
name its randomness, counts of edges, extreme features, digests of splits. Whoever knows all but one
record reads that record from them, so real devices get a manifest without them (`public`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import Ids, lookup, shown
from lumos.graph.facts import GraphFacts
from lumos.graph.io.files import readable
from lumos.graph.io.text_table import table_of
from lumos.storage import one_line, write_text
from lumos.typing import Ints

MANIFEST = "manifest.json"
FORMAT = 2
"""Version of the format of parts."""
MARK = "lumos_parts"
"""The first key of every manifest."""
CROWD = 100
"""Minimum number of devices of each part for the slots of parts to be public."""
MAX_PARTS = 1 << 16
"""Number of parts that are no contiguous ranges, at most."""
Task = Literal["classify", "link"]
IdKind = Literal["rows", "integers", "text"]
"""Storage of original ids: none, because they are 0, 1, …; as numbers; as UTF-8."""
Count = Annotated[int, msgspec.Meta(ge=0)]


class PartsSplit(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a split into training, validation and test, and its counts."""

    origin: str
    """One sentence."""
    name: str
    """A digest, in simulations; empty for the default split of the seed."""
    shares: tuple[float, float, float] | None = None
    """Shares of a random split of edges, from which it can be drawn again."""
    train: Count
    """Devices (classify) or edges (link; 0 on real devices)."""
    validation: Count
    test: Count


class TrainingEdges(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a simulation in which the training edges differ from the whole graph."""

    edges: Count
    fingerprint: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `manifest.json`."""

    format: int = msgspec.field(name=MARK)
    lumos: str
    """Version of Lumos."""
    graph: GraphFacts
    """The whole graph."""
    training: TrainingEdges | None
    """For link, in simulations."""
    parts: Annotated[int, msgspec.Meta(ge=1)]
    bounds: list[int] | None
    """[parts + 1] part p has the devices bounds[p] … bounds[p + 1] - 1; None where
    `assignment.npy` has the part of each device."""
    slots: list[int] | None
    """[parts] neighbours of all devices of a part together, by which ranks share the work; None
    where a part is small."""
    index_bytes: Literal[4, 8]
    """Size of an index of sparse features in memory, which the fingerprint depends on."""
    ids: IdKind
    seed: int
    """Seed by which the splits were drawn."""
    splits: dict[Task, PartsSplit]
    """Splits of devices and of edges; a task without one cannot be trained."""
    left_out: dict[Task, str]
    """Reason why a task has no split, and what to do."""
    source_roles: bool
    """True if the source of the graph came with roles."""
    dropped_self_loops: Count = 0
    dropped_duplicates: Count = 0

    def __post_init__(self) -> None:
        if self.bounds is not None:
            ends = np.asarray(self.bounds)
            inside = len(ends) == self.parts + 1 and (ends[0], ends[-1]) == (0, self.graph.devices)
            if not inside or not (np.diff(ends) > 0).all():
                raise ValueError("the bounds of parts do not fit the number of devices")
        if self.slots is not None and len(self.slots) != self.parts:
            raise ValueError("the slots of parts do not fit their number")
        simulated = self.graph.simulation is not None
        if ("link" in self.splits and simulated) != (self.training is not None):
            raise ValueError("training edges without their split")

    def split(self, task: Task) -> PartsSplit:
        """Return the split of a task.

        Raises:
            UsageError: there is none.
        """
        if task not in self.splits:
            raise UsageError(
                f"these parts are not for `task='{task}'`: "
                f"{self.left_out.get(task, 'split the graph again for it')}"
            )
        return self.splits[task]

    def facts(self, task: Task) -> GraphFacts:
        """Return the facts about the graph of a task: for link, of the training edges.

        Raises:
            UsageError: the parts were not made for this task.
        """
        self.split(task)
        if task == "classify" or self.training is None:
            return self.graph
        return self.graph.with_simulation(
            edges=self.training.edges, fingerprint=self.training.fingerprint
        )

    def public(self, *, signed: bool, bounded: bool) -> "Manifest":
        """Return the manifest of real devices: nothing in it is computed from private data.

        It has the number of devices, names of classes, width and kind of features, and how many
        devices train and validate, which are public roles.

        Args:
            signed: the operator's word that features may be negative.
            bounded: the operator's word that features lie between -1 and 1.
        """
        facts = replace(self.graph, signed=signed, bounded=bounded, notes=(), simulation=None)
        counts: dict[Task, tuple[int, int, int]] = {
            task: (0, 0, 0) if task == "link" else (split.train, split.validation, split.test)
            for task, split in self.splits.items()
        }
        return msgspec.structs.replace(
            self,
            graph=facts,
            training=None,
            slots=None,
            index_bytes=8,
            splits={
                task: PartsSplit(origin="", name="", train=train, validation=validation, test=test)
                for task, (train, validation, test) in counts.items()
            },
            left_out={},
            dropped_self_loops=0,
            dropped_duplicates=0,
        )


def equal_bounds(devices: int, parts: int) -> Ints:
    """Return [parts + 1] bounds of contiguous ranges of about equal numbers of devices.

    Raises:
        UsageError: there are fewer devices than parts, or no part.
    """
    if not 1 <= parts <= devices:
        raise UsageError(
            f"`parts` must be between 1 and the number of devices ({devices:,}), got {parts:,}"
        )
    return np.arange(parts + 1, dtype=np.int64) * devices // parts


def public_slots(slots: Ints, devices: Ints) -> list[int] | None:
    """Return the slots of parts [parts], where all parts have many devices; otherwise None."""
    return slots.tolist() if int(devices.min()) >= CROWD else None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, all or nothing."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    write_text(folder / MANIFEST, text.decode() + "\n", private=True)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest.

    Raises:
        InputError: it is missing, damaged, or of another version.
    """
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); give a folder that `lumos split` wrote"
        ) from None
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        if bytes(found.get(MARK, b"")) != str(FORMAT).encode():
            raise ValueError(f"{MARK} is not {FORMAT}")
        return msgspec.json.decode(text, type=Manifest)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InputError(
            f"{path}: is damaged or of another version of Lumos ({one_line(error)}); split the "
            "graph again"
        ) from None


ASSIGNMENT = "assignment.npy"
PartNumbers = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
"""[devices] a byte for each device; two beyond 256 parts."""


@dataclass(frozen=True, eq=False)
class Partition:
    """The devices of each part."""

    parts: int
    bounds: Ints | None = field(repr=False)
    """[parts + 1] of contiguous ranges; otherwise None."""
    assignment: PartNumbers | None = field(repr=False, default=None)
    """[devices] otherwise."""

    @staticmethod
    def equal(devices: int, parts: int) -> "Partition":
        """Return contiguous ranges of about equal numbers of devices."""
        return Partition(parts, equal_bounds(devices, parts))

    @cached_property
    def counts(self) -> Ints:
        """[parts] number of devices."""
        if self.bounds is not None:
            return np.diff(self.bounds)
        return np.bincount(np.asarray(self.assignment), minlength=self.parts).astype(np.int64)

    def part_of(self, devices: Ints) -> Ints:
        """Return [devices] the part of each."""
        if self.bounds is not None:
            return np.searchsorted(self.bounds, devices, side="right") - 1
        return np.asarray(self.assignment)[devices].astype(np.int64)

    def hosted(self) -> Iterator[Ints]:
        """Yield the devices of one part after the other, increasing."""
        ends = np.cumsum(self.counts)
        order = None if self.bounds is not None else np.argsort(self._numbers, kind="stable")
        for start, end in zip(ends - self.counts, ends, strict=True):
            yield np.arange(start, end) if order is None else order[start:end]

    @property
    def _numbers(self) -> PartNumbers:
        return np.asarray(self.assignment)


def small_numbers(numbers: npt.NDArray[Any], most: int) -> PartNumbers:
    """Return the same numbers, all below `most`, in one byte each, or two where one is too few."""
    return numbers.astype(np.uint8) if most <= 256 else numbers.astype(np.uint16)


def read_assignment(path: Path, ids: Ids, parts: int | None = None) -> Partition:
    """Read which device is in which part.

    Args:
        path: a CSV with `id,part` on each line, or an npy with the part of each device in the order
            of the graph. Parts are numbered from 0.
        ids: [devices] original ids.
        parts: how many parts are expected; by default as many as the file names.

    Raises:
        InputError: there is no such file, a device is missing or there twice, or a part is empty.
    """
    numbers = _of_npy(path, len(ids)) if path.suffix == ".npy" else _of_table(path, ids)
    highest = int(numbers.max()) + 1
    if parts is not None and highest != parts:
        raise InputError(f"{path}: it names {highest:,} parts, but `parts` is {parts:,}")
    if highest > MAX_PARTS:
        raise InputError(f"{path}: part {highest - 1:,}; parts are numbered 0 … {MAX_PARTS - 1:,}")
    empty = np.flatnonzero(np.bincount(numbers, minlength=highest) == 0)
    if len(empty):
        raise InputError(f"{path}: part {empty[0]} has no device; number parts without gaps from 0")
    return Partition(highest, None, small_numbers(numbers, highest))


def _of_npy(path: Path, devices: int) -> Ints:
    with readable(str(path)), path.open("rb") as file:
        # Mapped: the header of a short file cannot ask for much memory.
        numbers = np.lib.format.open_memmap(file.name, "r") if devices else np.empty(0, np.int64)
    if numbers.shape != (devices,) or numbers.dtype.kind not in "iu":
        raise InputError(
            f"{path}: {numbers.dtype} of shape {list(numbers.shape)}; a whole number for each "
            f"device is needed, [{devices}]"
        )
    if int(numbers.min()) < 0:
        row = int(np.argmin(numbers))
        raise InputError(f"{path}: row {row} has part {numbers[row]}; parts are numbered from 0")
    return np.asarray(numbers, np.int64)


def _of_table(path: Path, ids: Ids) -> Ints:
    with readable(str(path)):
        text = path.read_text("utf-8-sig")
    names: list[str] = []
    numbers: list[int] = []
    lines: list[int] = []
    # Ids may be names, so that only the second column tells a header.
    table = table_of(text, str(path), header="no") if text.strip() else None
    for line, cells in table.rows() if table is not None else ():
        if len(cells) != 2:
            raise InputError(f"{path}, line {line}: {len(cells)} columns; id,part is needed")
        name, part = cells
        if not (part.isdecimal() and len(part) < 7):
            if not names and part.casefold() in ("part", "parts", "partition"):
                continue
            raise InputError(
                f"{path}, line {line}: {shown(part)} is no part; parts are numbered from 0"
            )
        names.append(name)
        numbers.append(int(part))
        lines.append(line)
    if not names:
        raise InputError(f"{path}: it holds no rows; id,part is needed")
    known = np.array(names, dtype=object)
    if not isinstance(ids, tuple):
        whole = (int(n) if n.isdecimal() and len(n) < 19 else -1 for n in names)
        known = np.fromiter(whole, np.int64)
    rows = lookup(known, ids)
    for row in np.flatnonzero(rows < 0)[:1]:
        raise InputError(
            f"{path}, line {lines[row]}: {shown(names[row])} is not the id of any device"
        )
    times = np.bincount(rows, minlength=len(ids))
    if (again := np.flatnonzero(times > 1)).size:
        raise InputError(f"{path}: {shown(ids[again[0]])} occurs twice; put it into one part")
    if (missing := np.flatnonzero(times == 0)).size:
        raise InputError(
            f"{path}: {len(missing):,} devices are in no part, the first is "
            f"{shown(ids[missing[0]])}; give each a line"
        )
    parts = np.empty(len(ids), np.int64)
    parts[rows] = numbers
    return parts


def refuse_neither(parts: int | None, assign: Path | None) -> None:
    """Refuse a split that says neither how many parts there are nor which.

    Raises:
        UsageError: both are missing.
    """
    if parts is None and assign is None:
        raise UsageError("`parts` is needed: how many, or `assign`, a file with id,part")
