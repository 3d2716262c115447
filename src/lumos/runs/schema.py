"""The files of a run folder as types: the one source of their schema, for writing and reading."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from lumos.errors import InputError, LumosError
from lumos.exchange.messages import Door
from lumos.exchange.observer import LedgerReport
from lumos.graph import Graph
from lumos.registry import part_name
from lumos.storage import one_line
from lumos.training.config import Config
from lumos.training.guarantees import cells_of
from lumos.training.metrics import CLASS_SCORES, LINK_SCORES, PARTS
from lumos.trees.balance import Balanced
from lumos.typing import Flags, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeSummary:
    """The assignment of edges to devices, and its cost. Workloads are the observer's."""

    balancer: str
    compare: str
    """Comparison backend."""
    keep: Flags = field(repr=False)
    """[2 · edges] over the training graph's neighbour array: True where the device keeps it."""
    workload: Ints = field(repr=False)
    """[devices] number of kept neighbours: branches of each tree."""
    degree: Ints = field(repr=False)
    """[devices] number of neighbours in the training graph.

    All three are empty where the run was read from a folder that keeps nothing of single devices.
    """
    max_workload: int | None
    """The largest workload; None where real devices trained."""
    ledger: LedgerReport = field(repr=False)
    """Ledger of balancing."""
    history: list[tuple[int, int]] = field(repr=False)
    """(iteration, largest workload) whenever it changed, where the balancer iterates."""
    seconds: float
    graph: Graph | None = field(default=None, repr=False)
    """The training graph, where the run was just trained."""

    @staticmethod
    def of(balanced: Balanced) -> "TreeSummary":
        """From what `lumos.balance` returned."""
        return TreeSummary(
            balancer=balanced.settings.balancer,
            compare=balanced.compare,
            keep=balanced.keep,
            workload=balanced.workload,
            degree=np.diff(balanced.graph.offsets),
            max_workload=balanced.max_workload,
            ledger=balanced.ledger,
            history=balanced.history,
            seconds=balanced.seconds,
            graph=balanced.graph,
        )


FORMAT = 7
"""Version of the run folder."""
Number = float | str
"""A number, or "inf", which JSON cannot carry as one."""
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Split(msgspec.Struct, frozen=True):
    """Numbers of devices (classify) or edges (link) that train, validate and test."""

    train: int
    validation: int
    test: int


class AboutSplit(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a split."""

    origin: str
    """One sentence."""
    name: str
    """A digest; empty for the default split of the seed."""
    shares: tuple[float, float, float] | None = None
    """Shares of a random split of edges, from which it can be drawn again."""


class PerEpoch(msgspec.Struct, frozen=True):
    """Cost of an epoch for a device: the mean over devices, and the largest."""

    messages_sent_mean: float
    messages_sent_largest: float
    messages_received_mean: float
    messages_received_largest: float
    bytes_sent_mean: float
    bytes_sent_largest: float
    bytes_received_mean: float
    bytes_received_largest: float
    rounds: float


class RankCost(msgspec.Struct, frozen=True):
    """Cost of one process of a run."""

    cpu_seconds: float
    """Processor time of the process and its workers."""
    peak_rss_mb: float


class LabelValues(msgspec.Struct, frozen=True):
    """The labels of all classes as the graph has them, where they are no text."""

    type: Literal[
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    ]  # fmt: skip
    values: list[bool | int | float]
    """In the order of the classes."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """`run.json`: what was asked for, written before the run begins."""

    format: int = FORMAT
    lumos: str
    """Version of Lumos."""
    versions: dict[str, str]
    """Versions of Python and of the libraries that figures may depend on."""
    graph: str
    """Name of the graph."""
    source: dict[str, Any]
    """Arguments by which `lumos.load` finds the graph again; of a graph in memory only how it was
    read, without `spec`."""
    fingerprint: str = ""
    """Digest of the graph, in simulations; empty where it is unknown."""
    seed: int
    shards: int
    deployed: bool = False
    """True if real devices trained: the folder is the coordinator's, and has nothing of single
    devices, no score, and no number of edges or workloads."""
    devices: int
    edges: int | None
    """None where real devices trained: nobody knows it."""
    features: int
    classes: list[str]
    """Names of the classes; none for link."""
    labels: LabelValues | None = None
    """Value that predictions return for each class; None: its name."""
    notes: list[str]
    """Notes about the graph from when it was read."""
    settings: dict[str, Any]
    """By name, as `Config.of` takes them; infinity and paths as text."""
    split: AboutSplit

    def class_values(self) -> NDArray[Any]:
        """[classes] what predictions return for each class.

        Raises:
            ValueError: there is another number of them.
        """
        if self.labels is None:
            return np.array(self.classes, np.str_)
        if len(self.labels.values) != len(self.classes):
            raise ValueError("classes and labels differ in number")
        return np.array(self.labels.values, self.labels.type)

    def config(self) -> Config:
        """The settings as a configuration."""
        settings: dict[str, Any] = {
            name: math.inf if value == "inf" else value for name, value in self.settings.items()
        }
        return Config.of(**settings)


class KeptTrees(msgspec.Struct, frozen=True, kw_only=True):
    """`about` in `trees.npz`."""

    balancer: str
    compare: str
    history: list[tuple[int, int]]
    seconds: float
    max_workload: int | None


class TopicTotals(msgspec.Struct, frozen=True):
    """One topic of a ledger."""

    door: Door
    messages: int
    bytes: int
    learns: str
    ideal: bool


class LedgerTotals(msgspec.Struct, frozen=True):
    """Required fields of a ledger in `result.json`; `LedgerReport.totals` gives them."""

    messages: int
    bytes: int
    rounds: int
    comparisons: int
    comparison_bits: float
    epsilon_per_receiver: Number
    epsilon_collusion: Number
    edge_epsilon: Number
    topics: dict[str, TopicTotals]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """`result.json`: what `lumos train --json` prints, apart from the scores."""

    graph: str
    devices: int
    edges: int | None
    task: str
    profile: str
    backbone: str
    epsilon: Number | None
    """ε of one release; None where nothing is released."""
    settings: dict[str, Any]
    """All settings by name."""
    split: Split
    split_origin: str
    """Origin of the split, in one sentence."""
    epochs: int
    best_epoch: int
    final_loss: float | None
    improvements: list[str]
    balancer: str
    compare: str
    aggregate: str
    randomness: str
    seed: int
    shards: int
    max_workload: int | None
    weights: int
    """Number of trained weights."""
    weights_sha256: str = ""
    """Digest of them; empty in folders of earlier versions."""
    seconds: float
    seconds_per_epoch: float
    peak_rss_mb: float
    ranks: list[RankCost] = []
    """Cost of each process, in the order of the ranks."""
    per_epoch: PerEpoch
    ledger: dict[str, Any]
    """Ledger of training: at least `LedgerTotals`."""
    tree_ledger: dict[str, Any]
    exposed: str
    guarantees: list[dict[str, str | float | bool | None]]
    choice: str
    warnings: list[str]
    estimates: dict[str, float]
    notes: list[str]

    def __post_init__(self) -> None:
        rows = self.guarantees
        if any(row.keys() != rows[0].keys() for row in rows):
            raise ValueError("the table of guarantees is no table")
        for row in rows:
            msgspec.convert(row, GuaranteeNumbers)
            msgspec.convert(cells_of(row), dict[str, str])
        for ledger in (self.ledger, self.tree_ledger):
            msgspec.convert(ledger, LedgerTotals)


class GuaranteeNumbers(msgspec.Struct, frozen=True):
    """Keys of a row of guarantees that are no columns: `lumos.training.guarantees`."""

    about: str
    told_apart: Share | None
    weak: bool
    against: str
    told_apart_for_life: Share | None = None


class ClassScores(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One class in `test_per_class`."""

    name: str = msgspec.field(name="class")
    devices: Annotated[int, msgspec.Meta(ge=0)]
    """That have this class, among those that test."""
    precision: Share
    recall: Share
    f1: Share


def score_types(task: str, classes: int) -> dict[str, Any]:
    """The scores in `result.json` by name, and the type of each."""
    names = LINK_SCORES if task == "link" else CLASS_SCORES
    types: dict[str, Any] = {f"{part}_{name}": Share for part in PARTS for name in names}
    if task == "classify":
        size = msgspec.Meta(min_length=classes, max_length=classes)
        row = Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], size]
        types["test_per_class"] = Annotated[list[ClassScores], size]
        types["test_confusion"] = Annotated[list[row], size]
    return types


Kind = TypeVar("Kind", bound=msgspec.Struct)


def decode(path: Path, kind: type[Kind]) -> Kind:
    """Read a JSON file of a run folder.

    Raises:
        InputError: it is missing, damaged, or of another version.
    """
    try:
        return convert(path.read_bytes(), kind)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; is this the folder of a run?") from None
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InputError(
            f"{path}: is damaged or of another version of Lumos ({one_line(error)})"
        ) from None


def convert(text: bytes, kind: type[Kind]) -> Kind:
    """Decode one JSON object; with `json`, because a loss may be NaN."""
    return msgspec.convert(json.loads(text), type=kind)


def config_of(path: Path, about: About) -> Config:
    """The configuration of a run folder.

    Raises:
        InputError: it is of another version, or its settings are refused.
    """
    if about.format != FORMAT:
        raise InputError(f"{path / 'run.json'}: is of another version of Lumos; train again")
    try:
        about.class_values()
        return about.config()
    except (LumosError, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{path / 'run.json'}: its content is refused ({error})") from None


def plain(content: Any) -> Any:
    """The same as JSON can carry it: infinity, paths and the names of parts as text."""
    if isinstance(content, dict):
        return {key: plain(value) for key, value in content.items()}
    if isinstance(content, float) and math.isinf(content):
        return "inf"
    if callable(content):
        return part_name(content)
    return str(content) if isinstance(content, Path) else content
