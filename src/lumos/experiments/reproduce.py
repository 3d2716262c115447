"""The whole of `lumos reproduce`: plan, run what is missing, write everything."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lumos.experiments.cache import Key, ResultCache, keep, record_of
from lumos.experiments.output import write_files
from lumos.experiments.plan import RunPlan
from lumos.experiments.reproduction import Reproduction
from lumos.experiments.request import Request
from lumos.experiments.scheduler import JobEnd, Resources, expected_seconds, run_all
from lumos.experiments.sentences import duration
from lumos.experiments.worker import CellJob

Message = Callable[[str], None]
"""Callback `(line)`, called with a line of progress."""


def reproduce(
    request: Request,
    cache: ResultCache,
    *,
    jobs: int | None = None,
    keep_file: Path | None = None,
    on_message: Message,
) -> Reproduction:
    """Run what is missing and write tables, plots, JSON and the page into the cache's folder.

    Args:
        request: what to reproduce.
        cache: results so far.
        jobs: number of processes; as many as cores where None.
        keep_file: collection to which all results are added.
        on_message: callback `(line)`, called before the first job and after each.
    """
    start = time.perf_counter()
    with cache.locked():
        plan = RunPlan.of(request, cache)
        known = len(plan.results)
        resources = Resources.available(len(plan.jobs), jobs)
        expected = expected_seconds(plan.jobs, resources)
        on_message(_announcement(plan, resources, expected))
        ends = _run(plan, resources, on_message)
        if keep_file is not None:
            keep(
                keep_file,
                (
                    record_of(Key(plan.keys[cell].run, cached.version), cell, cached.result)
                    for cell, cached in plan.results.items()
                ),
            )
        rows = plan.rows()
        finished = [end.job.cell for end in ends if end.status == 0]
        outcome = Reproduction(
            rows=[row for of_figure in rows.values() for row in of_figure],
            ran=len(finished),
            known=known,
            failed=[_line(end) for end in ends if end.status not in (0, 2)],
            refused=[_line(end) for end in ends if end.status == 2],
            other_version=sum(cached.other_version for cached in plan.results.values()),
            left_out={cell.describe(): seconds for cell, seconds in plan.left_out.items()},
            planned_seconds=expected,
            seconds=time.perf_counter() - start,
            cpu_seconds=sum(plan.results[c].result.get("cpu_seconds", 0.0) for c in finished),
            jobs=resources.jobs,
            files=[],
        )
        return dataclasses.replace(outcome, files=write_files(plan, rows, outcome))


def _run(plan: RunPlan, resources: Resources, on_message: Message) -> Sequence[JobEnd[CellJob]]:
    """Run the jobs of a plan, with a line for each."""

    def on_end(end: JobEnd[CellJob], remaining: int) -> None:
        plan.on_end(end)
        what = f"{end.seconds:.0f} s"
        if end.status:
            what = f"{'refused' if end.status == 2 else 'FAILED'}: {end.reason}"
        on_message(f"{end.job.cell.describe()}: {what}; {remaining} to come")

    return run_all(plan.jobs, resources, plan.cache.out / "logs", on_end)


def _line(end: JobEnd[CellJob]) -> str:
    return f"{end.job.cell.describe()}: {end.reason}"


def _announcement(plan: RunPlan, resources: Resources, expected: float) -> str:
    known = len(plan.results)
    left_out = f", {len(plan.left_out)} left out" * bool(plan.left_out)
    if not plan.jobs and not left_out:
        return f"{known} cells, all of them known"
    return (
        f"{len(plan.keys)} cells, {known} of them known{left_out}; {len(plan.jobs)} to run in "
        f"{resources.jobs} processes with {resources.threads} thread(s) each: planned "
        f"{duration(expected)}"
    )
