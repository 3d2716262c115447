"""What a finished run left in its folder, read and checked: all that a report knows."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lumos.errors import InputError, LumosError
from lumos.exchange.topic import Door
from lumos.runs.folder import FORMAT
from lumos.storage import read_arrays
from lumos.training.config import Config
from lumos.typing import Ints

Number = float | str
"""A number, or "inf"."""


class Line(msgspec.Struct, frozen=True):
    """One topic of the ledger."""

    door: Door
    messages: int
    bytes: int
    learns: str
    ideal: bool


class Totals(msgspec.Struct, frozen=True):
    """A ledger added up."""

    messages: int
    bytes: int
    rounds: int
    comparisons: int
    comparison_bits: float
    epsilon_per_receiver: Number
    epsilon_collusion: Number
    topics: dict[str, Line]


class Each(msgspec.Struct, frozen=True):
    """What an epoch costs a device: the mean over devices, and the largest."""

    messages_sent_mean: float
    messages_sent_largest: float
    messages_received_mean: float
    messages_received_largest: float
    bytes_sent_mean: float
    bytes_sent_largest: float
    bytes_received_mean: float
    bytes_received_largest: float
    rounds: float


class Split(msgspec.Struct, frozen=True):
    """How many devices, or edges, do what."""

    train: int
    validation: int
    test: int


class Result(msgspec.Struct, frozen=True):
    """`result.json`: what `lumos train --json` printed. Scores by name are in `Record.scores`."""

    graph: str
    devices: int
    edges: int
    task: str
    profile: str
    backbone: str
    epsilon: Number
    epochs: int
    best_epoch: int
    improvements: list[str]
    balancer: str
    compare: str
    aggregate: str
    coins: str
    seed: int
    shards: int
    max_workload: int
    weights: int
    seconds: float
    seconds_per_epoch: float
    peak_rss_mb: float
    per_epoch: Each
    ledger: Totals
    tree_ledger: Totals
    exposed: str
    promises: list[dict[str, str]]
    choice: str
    caution: str
    notes: list[str]
    split: Split | None = None
    """None in folders of runs that did not write it yet."""

    def __post_init__(self) -> None:
        rows = self.promises
        if any("about" not in row or row.keys() != rows[0].keys() for row in rows):
            raise ValueError("the table of promises is no table")


class About(msgspec.Struct, frozen=True):
    """`run.json`: what was asked for."""

    lumos: str
    format: int
    source: dict[str, Any]
    fingerprint: str
    features: int
    classes: list[str]
    settings: dict[str, Any]
    versions: dict[str, str] = {}


class Epoch(msgspec.Struct, frozen=True):
    """A line of `metrics.jsonl`."""

    epoch: int
    loss: float | None
    score: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """A finished run."""

    path: Path
    about: About
    config: Config
    result: Result
    scores: dict[str, dict[str, float]]
    """By arm (run, own, ids, control), then validation and test; all but run may be missing."""
    history: dict[str, list[Epoch]] = field(repr=False)
    """By arm, a line per epoch; for those that have a history of their own."""
    workload: Ints = field(repr=False)
    """[devices] branches of each tree."""
    degree: Ints | None = field(repr=False)
    """[devices] neighbours in the training graph; None in older folders."""

    @staticmethod
    def open(path: Path) -> "Record":
        """Read a run folder.

        Raises:
            InputError: it is none, the run is not finished, or a file is damaged.
        """
        if not (path / "run.json").exists():
            raise InputError(f"{path}: is not the folder of a run; lumos train … --out makes one")
        about = _read(path / "run.json", About)
        if about.format != FORMAT:
            raise InputError(f"{path}: run.json is of another version of Lumos; train anew")
        if not (path / "result.json").exists():
            raise InputError(f"{path}: the run is not finished; go on with lumos train … --resume")
        result = _read(path / "result.json", Result)
        trees = read_arrays(path / "trees.npz")
        workload = trees.get("workload")
        if workload is None or workload.shape != (result.devices,):
            raise InputError(f"{path / 'trees.npz'}: is not of the run that result.json describes")
        return Record(
            path=path,
            about=about,
            config=_config(path, about),
            result=result,
            scores=_scores(path, result),
            history=_history(path),
            workload=workload,
            degree=trees.get("degree"),
        )

    @property
    def strict(self) -> bool:
        """Whether the run was of the strict profile."""
        return self.result.profile == "strict"

    @property
    def link(self) -> bool:
        """Whether the run predicts links."""
        return self.result.task == "link"


Kind = TypeVar("Kind", About, Result, Epoch)


def _read(path: Path, kind: type[Kind]) -> Kind:
    try:
        return _decoded(path.read_bytes(), kind)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise InputError(f"{path}: is damaged or of another version of Lumos ({error})") from None


def _decoded(text: bytes, kind: type[Kind]) -> Kind:
    return msgspec.convert(json.loads(text), type=kind)  # json: a loss may be NaN


def _config(path: Path, about: About) -> Config:
    settings = {n: math.inf if value == "inf" else value for n, value in about.settings.items()}
    book = settings.pop("book", None)
    settings["book"] = None if book is None else Path(str(book))
    try:
        return Config.of(**settings)
    except (LumosError, TypeError) as error:
        raise InputError(f"{path / 'run.json'}: its settings are refused ({error})") from None


def _scores(path: Path, result: Result) -> dict[str, dict[str, float]]:
    """Scores stand in result.json by names such as own_test_accuracy."""
    plain = json.loads((path / "result.json").read_text("utf-8"))
    what = "auc" if result.task == "link" else "accuracy"
    found: dict[str, dict[str, float]] = {}
    for arm in ("run", "own", "ids", "control"):
        prefix = "" if arm == "run" else f"{arm}_"
        names = {"validation": f"{prefix}val_{what}", "test": f"{prefix}test_{what}"}
        if all(isinstance(plain.get(name), float | int) for name in names.values()):
            found[arm] = {part: float(plain[name]) for part, name in names.items()}
    if "run" not in found:
        raise InputError(f"{path / 'result.json'}: has no test_{what}; train anew")
    return found


def _history(path: Path) -> dict[str, list[Epoch]]:
    found = {}
    for arm, folder in (("run", path), ("own", path / "own"), ("control", path / "control")):
        file = folder / "metrics.jsonl"
        if not file.exists():
            continue
        try:
            lines = file.read_bytes().splitlines()
            found[arm] = [_decoded(line, Epoch) for line in lines]
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise InputError(f"{file}: a line is damaged ({error})") from None
    return found
