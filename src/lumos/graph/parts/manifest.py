"""`manifest.json`, on which the processes of a run agree.

The manifest of a simulation also has facts that are computed from all data: the fingerprints, which
name its randomness, counts of edges, extreme features, digests of splits. Whoever knows all but one
record reads that record from them, so real devices get a manifest without them (`public`).
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from lumos.errors import InputError, UsageError
from lumos.graph.facts import GraphFacts
from lumos.storage import one_line, write_text
from lumos.typing import Ints

MANIFEST = "manifest.json"
FORMAT = 2
"""Version of the format of parts."""
MARK = "lumos_parts"
"""The first key of every manifest."""
CROWD = 100
"""Minimum number of devices of each part for the slots of parts to be public."""
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
    bounds: list[int]
    """[parts + 1] part p has the devices bounds[p] … bounds[p + 1] - 1."""
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
