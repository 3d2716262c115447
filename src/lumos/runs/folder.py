"""The run folder: settings, trees, metrics, checkpoints, model. Plain JSON and npz, no pickle.

run.json            versions, graph, seed, shards, settings
trees.npz           who carries which edge, workloads, degrees, and the ledger of balancing
metrics.jsonl       one line per epoch
checkpoint.npz      where the run stands
model.npz           the selected weights by name
embeddings.npz      ids and embeddings of all devices, and what else predictions need
ledger.npz          the ledger of training
result.json         what `lumos train --json` printed
own/, control/      metrics.jsonl and checkpoint.npz of the arms beside the run
"""

import dataclasses
import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

import lumos
from lumos.errors import InputError, UsageError
from lumos.exchange.ledger_report import LedgerReport, TopicLine
from lumos.graph import Graph
from lumos.graph.fingerprint import fingerprint
from lumos.runs.events import EpochEvent
from lumos.runs.schema import FORMAT, About, decode, plain
from lumos.runs.tree_summary import TreeSummary
from lumos.storage import read_arrays, write_arrays, write_json, write_text
from lumos.training.config import Config
from lumos.training.outcome import CONTROL, MAIN, OWN
from lumos.typing import Arrays

ARMS = {MAIN: "", OWN: "own", CONTROL: "control"}
"""Where each arm keeps its metrics and checkpoints."""


class RunFolder:
    """The folder of one run, or of one of the arms beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def arm(self, name: str) -> "RunFolder":
        """The folder of an arm: this one for the run itself."""
        folder = RunFolder(self.path / ARMS[name])
        folder.path.mkdir(parents=True, exist_ok=True)
        return folder

    @staticmethod
    def create(path: Path, about: About) -> "RunFolder":
        """Make the folder of a new run.

        Raises:
            UsageError: there is a run already, or this cannot be a folder.
        """
        folder = RunFolder(path)
        known = path / "run.json"
        if known.exists() and (folder.started() or not _is_run_file(known)):
            raise UsageError(
                f"{path}: there is a run already; go on with `resume`, or choose another `out`"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: cannot be a folder ({error.strerror})") from None
        (path / "trees.npz").unlink(missing_ok=True)  # of a run that never came to an epoch
        write_json(known, msgspec.to_builtins(about))
        return folder

    @staticmethod
    def resume(path: Path, about: About, *, repeatable: bool) -> "RunFolder":
        """Find the folder of an interrupted run.

        Args:
            about: the run that is to go on.
            repeatable: whether its coins can be tossed again.

        Raises:
            UsageError: there is none to resume, or it is another run.
        """
        known = path / "run.json"
        if not known.exists():
            raise UsageError(f"{path}: there is no run to resume; leave `resume` out")
        _same_run(path, decode(known, About), about)
        if not repeatable:
            raise UsageError(
                f"{path}: a run with `coins='system'` cannot be resumed, because its secrets were "
                "never written; start a new one"
            )
        return RunFolder(path)

    def started(self) -> bool:
        """Whether the run here, or an arm beside it, has come to its first epoch."""
        metrics = (self.path / place / "metrics.jsonl" for place in ARMS.values())
        return any(file.exists() and file.stat().st_size > 0 for file in metrics)

    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return (self.path / "result.json").exists()

    def add_metrics(self, event: EpochEvent) -> None:
        """One more line of metrics."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(_line(event))

    def write_metrics(self, events: list[EpochEvent]) -> None:
        """All lines of metrics."""
        write_text(self.path / "metrics.jsonl", "".join(map(_line, events)))

    def metrics(self, arm: str) -> list[EpochEvent] | None:
        """All epochs, or None where no metrics were written.

        Raises:
            InputError: a line is damaged.
        """
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return None
        try:
            return [_event(line, arm) for line in path.read_bytes().splitlines()]
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise InputError(f"{path}: a line is damaged ({error})") from None

    def truncate_metrics(self, epochs: int, arm: str = MAIN) -> list[EpochEvent]:
        """The metrics of the first `epochs` epochs; later lines are removed from the file."""
        path = self.path / "metrics.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        if len(lines) < epochs:
            raise InputError(
                f"{path}: has {len(lines)} lines for {epochs} epochs; restart without `resume`"
            )
        try:
            events = [_event(line, arm) for line in lines[:epochs]]
        except (ValueError, msgspec.MsgspecError):
            raise InputError(f"{path}: a line is damaged; restart without `resume`") from None
        self.write_metrics(events)
        return events

    def checkpoint(self) -> Arrays | None:
        """The last checkpoint, if there is one."""
        path = self.path / "checkpoint.npz"
        return read_arrays(path) if path.exists() else None

    def save_checkpoint(self, arrays: Mapping[str, npt.ArrayLike]) -> None:
        """Replace the checkpoint."""
        write_arrays(self.path / "checkpoint.npz", arrays)

    def save_trees(self, trees: TreeSummary) -> None:
        """Keep the trees, and what they cost."""
        about = {
            "balancer": trees.balancer,
            "compare": trees.compare,
            "history": trees.history,
            "seconds": trees.seconds,
        }
        write_arrays(
            self.path / "trees.npz",
            {
                "keep": trees.keep,
                "workload": trees.workload,
                "degree": trees.degree,
                "about": json.dumps(about),
                **_ledger_arrays(trees.ledger),
            },
        )

    def trees(self) -> TreeSummary | None:
        """The trees, if the run got so far.

        Raises:
            InputError: the file is damaged.
        """
        path = self.path / "trees.npz"
        if not path.exists():
            return None
        arrays = read_arrays(path)
        try:
            about = json.loads(str(arrays["about"]))
            return TreeSummary(
                balancer=about["balancer"],
                compare=about["compare"],
                history=[(int(step), int(largest)) for step, largest in about["history"]],
                seconds=float(about["seconds"]),
                keep=arrays["keep"],
                workload=arrays["workload"],
                degree=arrays["degree"],
                ledger=_ledger(arrays),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: is damaged ({error}); restart without `resume`") from None

    def save_ledger(self, ledger: LedgerReport) -> None:
        """Keep the ledger of training."""
        write_arrays(self.path / "ledger.npz", _ledger_arrays(ledger))

    def ledger(self) -> LedgerReport:
        """The ledger of training.

        Raises:
            InputError: the file is missing or damaged.
        """
        path = self.path / "ledger.npz"
        try:
            return _ledger(read_arrays(path))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: is damaged ({error}); train again") from None


def describe(
    graph: Graph, source: Mapping[str, Any], config: Config, seed: int, shards: int
) -> About:
    """What `run.json` says of a run."""
    return About(
        lumos=lumos.__version__,
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "numpy", "scipy")},
        },
        graph=graph.name,
        source=plain(dict(source)),
        fingerprint=fingerprint(graph),
        seed=seed,
        shards=shards,
        devices=graph.devices,
        edges=graph.edges,
        features=graph.feature_count,
        classes=list(graph.classes) if config.train.task == "classify" else [],
        notes=list(graph.notes),
        settings=plain(config.flat()),
    )


def _same_run(path: Path, there: About, wanted: About) -> None:
    if there.format != FORMAT:
        raise InputError(f"{path}: run.json is of another version of Lumos; start a new run")
    if there.fingerprint != wanted.fingerprint:
        raise UsageError(
            f"{path}: the run there is of another graph ({there.graph}); start a new one"
        )
    for name in ("seed", "shards"):
        if getattr(there, name) != getattr(wanted, name):
            raise UsageError(
                f"{path}: the run there has `{name}={getattr(there, name)}`, "
                f"not {getattr(wanted, name)}"
            )
    for name, value in wanted.settings.items():
        if there.settings.get(name) != value:
            raise UsageError(
                f"{path}: the run there has `{name}={there.settings.get(name)!r}`, not {value!r}"
            )


def _is_run_file(path: Path) -> bool:
    """Whether a `run.json` is one of ours, of whatever version."""
    try:
        return "format" in json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _line(event: EpochEvent) -> str:
    record = msgspec.to_builtins(event)
    del record["arm"]  # the folder says which it is
    return json.dumps(record) + "\n"


def _event(line: bytes, arm: str) -> EpochEvent:
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    return msgspec.convert({**record, "arm": arm}, EpochEvent)


def _ledger_arrays(ledger: LedgerReport) -> dict[str, npt.ArrayLike]:
    fields = {field.name: getattr(ledger, field.name) for field in dataclasses.fields(ledger)}
    arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in fields.items() if name not in arrays}
    rest["topics"] = {name: vars(line) for name, line in ledger.topics.items()}
    return {
        "ledger": json.dumps(rest),
        **{f"ledger/{name}": array for name, array in arrays.items()},
    }


def _ledger(arrays: Arrays) -> LedgerReport:
    rest = json.loads(str(arrays["ledger"]))
    rest["topics"] = {name: TopicLine(**line) for name, line in rest["topics"].items()}
    rest["comparison_lengths"] = tuple(rest["comparison_lengths"])
    known: dict[str, Any] = {
        name.removeprefix("ledger/"): array
        for name, array in arrays.items()
        if name.startswith("ledger/")
    }
    return LedgerReport(**rest, **known)
