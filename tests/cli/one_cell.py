"""One training cell of `lumos reproduce`, by itself."""

from pathlib import Path

from lumos.experiments.cache import key_of
from lumos.experiments.cell import Cell
from lumos.experiments.scheduler import PlannedJob, Resources, run_all
from lumos.experiments.worker import CellJob


def train_cell(out: Path) -> None:
    """Train the cell in a process of its own; the result is `cell.json` in `out`."""
    settings = {"profile": "paper", "compare": "ideal", "balancer": "greedy", "floor": False}
    cell = Cell.of("train", "demo:60", 0, **settings, epochs=120)
    job = CellJob(
        cell=cell,
        key=key_of(cell, "graph"),
        data_dir=None,
        path=out / "cell.json",
        partial=out / "partial",
    )
    planned = PlannedJob(job=job, seconds=1, megabytes=1)
    resources = Resources(jobs=1, threads=1, megabytes=10_000)
    run_all([planned], resources, out / "logs", lambda end, _: print(end))
