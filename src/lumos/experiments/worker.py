"""What the process of one cell does: it writes the result in one piece and ends.

When whoever started it is gone, it goes too: no cell is computed for nobody.
"""

import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lumos.errors import InputError, LumosError
from lumos.experiments.cache import record_of, write
from lumos.experiments.cell import Cell, Key, code_version

PARENT_GONE = 3


@dataclass(frozen=True, kw_only=True)
class CellJob:
    """A cell, and where its result goes."""

    cell: Cell
    key: Key
    data_dir: str | None
    place: Path
    partial: Path


def child(job: CellJob, log: Path, threads: int) -> None:
    """The whole life of a cell's process.

    Args:
        job: the cell.
        log: where everything goes that it says.
        threads: threads of its own.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the keyboard's interrupt is the parent's
    threading.Thread(target=_follow, daemon=True).start()
    place = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(place, stream)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    try:
        finish(job)
    except LumosError as error:
        print(str(error), file=sys.stderr, flush=True)
        os._exit(error.exit_status)


def _follow() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(PARENT_GONE)


def finish(job: CellJob) -> None:
    """Compute a cell and write it."""
    if code_version(job.cell.kind, job.cell["profile"] == "strict") != job.key.code:
        raise LumosError("the source was changed since this was planned; start again")
    start = time.perf_counter()
    result = compute(job)
    result["wall_seconds"] = round(time.perf_counter() - start, 3)
    result["cpu_seconds"] = round(time.process_time(), 3)
    write(job.place, json.dumps(record_of(job.key, job.cell, result), indent=1) + "\n")
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

    config = Config.asked(**dict(job.cell.settings))
    resume = (job.partial / "run.json").exists()
    given: dict[str, Any] = {"config": config, "seed": job.cell.seed, "data_dir": _folder(job)}
    try:
        run = train(job.cell.graph, out=job.partial, resume=resume, **given)
    except InputError:
        if not resume:
            raise
        shutil.rmtree(job.partial)  # damaged: from the beginning
        run = train(job.cell.graph, out=job.partial, **given)
    summary = run.summary()
    scores = {
        name: value
        for name, value in summary.items()
        if name.endswith(("_accuracy", "_auc")) and isinstance(value, float)
    }
    told = {name: summary[name] for name in TOLD}
    return {**scores, **told, "left": _left(summary), "resumed": resume}


def _left(summary: dict[str, Any]) -> dict[str, Any]:
    """By topic of the ledgers: door, messages, bytes."""
    return {
        name: [str(line["door"]), line["messages"], line["bytes"]]
        for ledger in ("tree_ledger", "ledger")
        for name, line in summary[ledger]["topics"].items()
    }


TOLD = (
    "devices",
    "edges",
    "epochs",
    "best_epoch",
    "final_loss",
    "max_workload",
    "choice",
    "caution",
    "compare",
    "aggregate",
    "coins",
    "improvements",
    "per_epoch",
    "seconds",
    "seconds_per_epoch",
    "peak_rss_mb",
)
"""What is kept of a training run, beside its scores."""


def _baseline(job: CellJob) -> dict[str, Any]:
    from lumos.baselines import baseline

    measured = baseline(
        job.cell.graph, seed=job.cell.seed, data_dir=_folder(job), **dict(job.cell.settings)
    )
    return dict(measured.summary())


def _trees(job: CellJob) -> dict[str, Any]:
    from lumos.experiments.structure import measure
    from lumos.graph import load
    from lumos.memory import peak_rss_mb

    graph = load(job.cell.graph, data_dir=_folder(job), features=False)
    found = measure(graph, seed=job.cell.seed, **dict(job.cell.settings))
    return {**found, "peak_rss_mb": peak_rss_mb()}


def _cost(job: CellJob) -> dict[str, Any]:
    from lumos.experiments.cost import DeviceModel, measure
    from lumos.graph import load
    from lumos.memory import peak_rss_mb

    settings = dict(job.cell.settings)
    device = DeviceModel(**dict(settings.pop("device")))
    graph = load(job.cell.graph, data_dir=_folder(job))
    found = measure(graph, seed=job.cell.seed, device=device, **settings)
    return {**found, "peak_rss_mb": peak_rss_mb()}


def _folder(job: CellJob) -> Path | None:
    return None if job.data_dir is None else Path(job.data_dir)
