"""The process of one job: computes the result, writes it atomically and ends.

It also ends when its parent has died.
"""

import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lumos.errors import InputError, LumosError
from lumos.experiments.cache import Key, write_record
from lumos.experiments.cell import Cell
from lumos.experiments.job import Job
from lumos.experiments.result_versions import result_kind, version_of
from lumos.graph import Graph

PARENT_GONE = 3
"""Exit status."""


@dataclass(frozen=True, kw_only=True)
class CellJob:
    """A cell, and where its result goes."""

    cell: Cell
    key: Key
    data_dir: str | None
    path: Path
    """The file of the result."""
    partial: Path
    """The run folder until it is finished."""
    graph: Graph | None = field(default=None, repr=False)
    """The graph, where it is not to be loaded by the name in the cell."""
    split: Any = field(default=None, repr=False)
    """As `lumos.train` takes it."""
    whole: bool = False
    """Whether the result has everything that a run or a baseline says of itself."""

    @property
    def name(self) -> str:
        """Of its log."""
        return str(self.key)

    def run(self) -> None:
        """Compute the cell and write it."""
        finish(self)


def child(job: Job, log: Path, threads: int) -> None:
    """Entry point of a job's process.

    Args:
        job: what to compute.
        log: file for standard output and standard error.
        threads: number of threads of torch.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the keyboard's interrupt is the parent's
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    try:
        job.run()
    except LumosError as error:
        print(str(error), file=sys.stderr, flush=True)
        os._exit(error.exit_status)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(PARENT_GONE)


def finish(job: CellJob) -> None:
    """Compute a cell and write it."""
    version = version_of(job.cell)
    if version != job.key.version:
        raise LumosError(
            f"result version of {result_kind(job.cell)} is {version}, planned was "
            f"{job.key.version}: the source was changed meanwhile; start again"
        )
    start = time.perf_counter()
    result = compute(job)
    result["wall_seconds"] = round(time.perf_counter() - start, 3)
    result["cpu_seconds"] = round(time.process_time(), 3)
    write_record(job.path, job.key, job.cell, result)
    shutil.rmtree(job.partial, ignore_errors=True)


def compute(job: CellJob) -> dict[str, Any]:
    """The result of a cell, as plain numbers."""
    cell = job.cell
    if cell.kind == "trees":
        return _trees(job)
    if cell.kind == "cost":
        return _cost(job)
    if cell.kind == "baseline":
        return _baseline(job)
    return _train(job)


def _train(job: CellJob) -> dict[str, Any]:
    from lumos.runs.train import train
    from lumos.training.config import Config

    config = Config.of(**dict(job.cell.settings))  # of ours, not of somebody who asks
    resume = (job.partial / "run.json").exists()
    arguments: dict[str, Any] = {"config": config, **_arguments(job)}
    try:
        run = train(out=job.partial, resume=resume, **arguments)
    except InputError:
        if not resume:
            raise
        shutil.rmtree(job.partial)  # a damaged checkpoint: start over
        run = train(out=job.partial, **arguments)
    summary = run.summary()
    if job.whole:
        arms = {
            arm: round(sum(event.seconds for event in events), 3)
            for arm, events in run.histories.items()
        }
        return {**summary, "arm_seconds": arms, "resumed": resume}
    scores = {
        name: value
        for name, value in summary.items()
        if name.endswith(("_accuracy", "_auc")) and isinstance(value, float)
    }
    fields = {name: summary[name] for name in SUMMARY_FIELDS}
    fields["caution"] = "; ".join(summary["cautions"])
    return {**scores, **fields, "ledger": _ledger(summary), "resumed": resume}


def _ledger(summary: dict[str, Any]) -> dict[str, list[Any]]:
    """By topic of both ledgers: door, messages, bytes."""
    return {
        name: [str(line["door"]), line["messages"], line["bytes"]]
        for ledger in ("tree_ledger", "ledger")
        for name, line in summary[ledger]["topics"].items()
    }


SUMMARY_FIELDS = (
    "devices",
    "edges",
    "epochs",
    "best_epoch",
    "final_loss",
    "max_workload",
    "choice",
    "compare",
    "aggregate",
    "coins",
    "improvements",
    "per_epoch",
    "seconds",
    "seconds_per_epoch",
    "peak_rss_mb",
)
"""What is kept of the summary of a training run, beside its scores."""


def _baseline(job: CellJob) -> dict[str, Any]:
    from lumos.baselines import baseline

    measured = baseline(**_arguments(job), **dict(job.cell.settings))
    summary = measured.summary()
    if job.whole:
        return summary
    further = [name for name in measured.metrics if not name.endswith(("_accuracy", "_auc"))]
    return {name: value for name, value in summary.items() if name not in further}


def _trees(job: CellJob) -> dict[str, Any]:
    from lumos.experiments.tree_results import measure_trees
    from lumos.graph import load
    from lumos.machine import peak_rss_mb

    graph = load(job.cell.graph, data_dir=_data_dir(job), features=False)
    measured = measure_trees(graph, seed=job.cell.seed, **dict(job.cell.settings))
    return {**measured, "peak_rss_mb": peak_rss_mb()}


def _cost(job: CellJob) -> dict[str, Any]:
    from lumos.experiments.device_model import DeviceModel
    from lumos.experiments.epoch_cost import measure_epoch
    from lumos.graph import load
    from lumos.machine import peak_rss_mb

    settings = dict(job.cell.settings)
    device = DeviceModel(**dict(settings.pop("device")))
    graph = load(job.cell.graph, data_dir=_data_dir(job))
    measured = measure_epoch(graph, seed=job.cell.seed, device=device, **settings)
    return {**measured, "peak_rss_mb": peak_rss_mb()}


def _arguments(job: CellJob) -> dict[str, Any]:
    """What `train` and `baseline` have in common."""
    split = {} if job.split is None else {"split": job.split}
    return {
        "graph": job.cell.graph if job.graph is None else job.graph,
        "seed": job.cell.seed,
        "data_dir": _data_dir(job),
        **split,
    }


def _data_dir(job: CellJob) -> Path | None:
    return None if job.data_dir is None else Path(job.data_dir)
