"""`lumos reproduce` in a row: plan, run what is missing, lay everything beside the paper."""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lumos.errors import UsageError
from lumos.experiments import plots, reported, tables
from lumos.experiments.cache import CachedResult, ResultCache, keep, record_of, write
from lumos.experiments.cell import Cell, Key, key_of
from lumos.experiments.cost import DeviceModel
from lumos.experiments.dataset import Dataset
from lumos.experiments.figures import (
    BALANCERS,
    BY_NAME,
    NAMES,
    NOT_RUN,
    Bench,
    CellOutcome,
    Row,
    balancer_cell,
    cells_of,
)
from lumos.experiments.scheduler import Ended, Room, Waiting, planned, run_all
from lumos.experiments.settings import PAPER, Form, Frozen
from lumos.experiments.worker import CellJob


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be reproduced."""

    figures: tuple[str, ...]
    subjects: tuple[Dataset, ...]
    profiles: tuple[str, ...]
    frozen: Frozen
    data_dir: Path | None
    command: str
    """How it was asked for, to be repeated."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What came of it."""

    rows: list[Row]
    ran: int
    """Cells that were computed now."""
    known: int
    """Cells that were there."""
    failed: list[str]
    """One line each."""
    refused: list[str]
    other_code: int
    """Cells that another code version computed."""
    planned_seconds: float
    seconds: float
    cpu_seconds: float
    """Of the cells that were computed now."""
    jobs: int
    files: list[Path]


@dataclass(eq=False)
class RunPlan:
    """Every cell with its key, and what is known of it."""

    asked: Request
    store: ResultCache
    keys: dict[Cell, Key] = field(default_factory=dict)
    found: dict[Cell, CachedResult] = field(default_factory=dict)
    reasons: dict[Cell, str] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)

    @staticmethod
    def of(asked: Request, store: ResultCache) -> "RunPlan":
        """Look up every cell; those without a result wait."""
        plan, places = RunPlan(asked, store), set[Key]()
        for subject in asked.subjects:
            for cell in cells_of(asked.figures, subject, asked.frozen, asked.profiles):
                key = plan.keys[cell] = key_of(cell, subject.fingerprint(cell))
                known = store.get(key)
                if known is not None:
                    plan.found[cell] = known
                    continue
                if key in places:
                    continue  # the same graph under another name
                places.add(key)
                job = CellJob(
                    cell=cell,
                    key=key,
                    data_dir=None if asked.data_dir is None else str(asked.data_dir),
                    place=store.place(key),
                    partial=store.partial(key),
                )
                plan.waiting.append(
                    Waiting(
                        job=job,
                        seconds=asked.frozen.seconds(cell, subject.edges),
                        megabytes=asked.frozen.megabytes(cell, subject.edges),
                    )
                )
        return plan

    def ended(self, end: Ended) -> None:
        """Take in how a cell ended."""
        found = self.store.get(end.job.key) if end.status == 0 else None
        for cell in (cell for cell, key in self.keys.items() if key == end.job.key):
            if found is not None:
                self.found[cell] = found
            else:
                self.reasons[cell] = end.reason

    def ask(self, cell: Cell) -> CellOutcome:
        """What is known of a cell."""
        found = self.found.get(cell)
        if found is not None:
            return CellOutcome(found.result, "", found.other_code)
        return CellOutcome(reason=self.reasons.get(cell, NOT_RUN))

    def bench(self, subject: Dataset) -> Bench:
        """The figures' way to results on one graph."""
        asked = self.asked
        return Bench(subject=subject, frozen=asked.frozen, ask=self.ask, profiles=asked.profiles)

    def rows(self) -> dict[str, list[Row]]:
        """Every row, by figure; rows of a quick form say so."""
        found = {}
        for figure in self.asked.figures:
            rows = [
                row
                for subject in self.asked.subjects
                for row in BY_NAME[figure](self.bench(subject))
            ]
            found[figure] = [self._marked(row) for row in rows]
        return found

    def _marked(self, row: Row) -> Row:
        """Scores of too few epochs say so, and explain nothing."""
        whole = row.system == NAMES["strict"] and not row.measure.startswith(AGAINST_OTHERS)
        if self.asked.frozen.comparable or row.figure in ("workload", "cost") or whole:
            return row  # the strict profile always has its own epochs
        return dataclasses.replace(row, notes=(QUICK, *row.notes), why="")


QUICK = "fewer epochs than the paper's 300: not comparable with its numbers"
AGAINST_OTHERS = (reported.AGAINST_CENTRALIZED, reported.AGAINST_LPGNN, reported.AGAINST_NAIVE)


def chosen_figures(names: Sequence[str]) -> tuple[str, ...]:
    """The figures that were named, in the paper's order; all where none was."""
    for name in names:
        if name not in reported.FIGURES:
            raise UsageError(
                f"there is no figure {name!r}; there are {', '.join(reported.FIGURES)}"
            )
    return tuple(figure for figure in reported.FIGURES if figure in names or not names)


def reproduce(
    asked: Request,
    store: ResultCache,
    *,
    jobs: int | None = None,
    keep_file: Path | None = None,
    say: Callable[[str], None],
) -> Told:
    """Run what is missing and write tables, plots, JSON and the page into the store's folder."""
    start = time.perf_counter()
    with store.alone():
        plan = RunPlan.of(asked, store)
        known = len(plan.found)
        room = Room.here(len(plan.waiting), jobs)
        expected = planned(plan.waiting, room)
        say(_beforehand(plan, room, expected))
        failed: list[str] = []
        refused: list[str] = []

        def told(end: Ended, left: int) -> None:
            plan.ended(end)
            words = end.job.cell.words()
            if end.status == 0:
                say(f"{words}: {end.seconds:.0f} s; {left} to come")
                return
            (refused if end.status == 2 else failed).append(f"{words}: {end.reason}")
            what = "refused" if end.status == 2 else "FAILED"
            say(f"{words}: {what}: {end.reason}; {left} to come")

        ended = run_all(plan.waiting, room, store.out / "logs", told)
        if keep_file is not None:
            keep(
                keep_file,
                (
                    record_of(Key(plan.keys[cell].run, found.code), cell, found.result)
                    for cell, found in plan.found.items()
                ),
            )
        rows = plan.rows()
        by_figure = _drawn(plan, rows)
        every = [row for figure in rows.values() for row in figure]
        result = Told(
            rows=every,
            ran=sum(end.status == 0 for end in ended),
            known=known,
            failed=failed,
            refused=refused,
            other_code=sum(found.other_code for found in plan.found.values()),
            planned_seconds=expected,
            seconds=time.perf_counter() - start,
            cpu_seconds=sum(
                plan.found[end.job.cell].result.get("cpu_seconds", 0.0)
                for end in ended
                if end.status == 0
            ),
            jobs=room.jobs,
            files=[],
        )
        files = _write(plan, rows, by_figure, result)
    return dataclasses.replace(result, files=files)


def _beforehand(plan: RunPlan, room: Room, expected: float) -> str:
    known = len(plan.found)
    if not plan.waiting:
        return f"{known} cells, all of them known"
    return (
        f"{len(plan.keys)} cells, {known} of them known; {len(plan.waiting)} to run in {room.jobs} "
        f"processes with {room.threads} thread(s) each: planned {duration(expected)}"
    )


def _drawn(plan: RunPlan, rows: dict[str, list[Row]]) -> dict[str, plots.Drawn]:
    return {
        figure: {
            name: drawing
            for subject in plan.asked.subjects
            for name, drawing in plots.drawings(figure, plan.bench(subject), of).items()
        }
        for figure, of in rows.items()
    }


def _write(
    plan: RunPlan, rows: dict[str, list[Row]], drawn: dict[str, plots.Drawn], result: Told
) -> list[Path]:
    from lumos.experiments.page import page

    out = plan.store.out
    about = heading(plan.asked, result)
    text = [
        tables.markdown(some, f"{figure} on {name}", [caption(figure), *_said(figure, about)])
        for figure, of in rows.items()
        for name, some in tables.by_graph(of).items()
    ]
    write(out / "tables.md", "\n".join(text))
    write(out / "rows.json", json.dumps([row.plain() for row in result.rows], indent=1) + "\n")
    files = [out / "report.html", out / "tables.md", out / "rows.json"]
    if "workload" in rows:
        files.append(out / "workload.json")
        write(files[-1], json.dumps(_distributions(plan)) + "\n")
    for drawings in drawn.values():
        for name, (svg, _) in drawings.items():
            path = out / "figures" / f"{name}.svg"
            write(path, svg)
            files.append(path)
    page(plan, rows, drawn, result, about).write(out / "report.html")
    return files


def _distributions(plan: RunPlan) -> dict[str, dict[str, Any]]:
    """By graph and balancer: [workload, devices with at most so much], the points of the plot."""
    found: dict[str, dict[str, Any]] = {}
    for subject in plan.asked.subjects:
        bench = plan.bench(subject)
        results = {
            balancer: plan.ask(balancer_cell(bench, balancer)).result for balancer in BALANCERS
        }
        found[subject.name] = {name: one["cdf"] for name, one in results.items() if one}
    return found


def heading(asked: Request, result: Told) -> list[str]:
    """What a reader of any table must know."""
    said = [f"Command: `{asked.command}`."]
    if not asked.frozen.comparable:
        epochs = asked.frozen.epochs["paper"]
        short = "Quick form" if asked.frozen.form == "quick" else "Shortened"
        said.append(
            f"**{short}**: {epochs['gcn']} epochs of GCN and {epochs['gat']} of GAT instead of "
            "300. Scores are not comparable with the paper's; they show that everything runs."
        )
    elif asked.frozen.patience:
        most = max(count for given in asked.frozen.epochs.values() for count in given.values())
        said.append(
            f"Up to {most} epochs{', as in the paper' * (most == PAPER)}; a run of the paper "
            f"profile or of a baseline ends after {asked.frozen.patience} epochs without a better "
            "validation score."
        )
    said.append(
        "ours: mean and standard deviation over seeds; control: the same run with releases that "
        "say nothing; over control: what the run is above it, on the seeds that have one."
    )
    if result.other_code:
        said.append(f"{result.other_code} cells were computed by another version of the code.")
    return said


def device_words() -> str:
    """The device and network model in a sentence."""
    device = DeviceModel()
    return (
        f"Simulated time: every round lasts {1000 * device.latency:g} ms and as long as its "
        f"slowest device, which sends {8e-6 * device.upload:g} Mbit/s, receives "
        f"{8e-6 * device.download:g} Mbit/s, adds {device.header} bytes to each message and "
        f"computes {device.flops / 1e9:g} GFLOP/s; messages and bytes of each device are the "
        "ledger's, work is counted on its own tree (two-layer GCN)."
    )


def _said(figure: str, about: list[str]) -> list[str]:
    return [*about, device_words()] if figure == "cost" else about


def caption(name: str) -> str:
    """What the paper calls a figure."""
    return f"The paper: {reported.CAPTIONS[name]}."


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def summary(result: Told, form: Form) -> dict[str, Any]:
    """What `lumos reproduce --json` prints."""
    return {
        "form": form,
        "rows": [row.plain() for row in result.rows],
        "ran": result.ran,
        "known": result.known,
        "failed": result.failed,
        "refused": result.refused,
        "other_code": result.other_code,
        "planned_seconds": round(result.planned_seconds, 1),
        "seconds": round(result.seconds, 1),
        "cpu_seconds": round(result.cpu_seconds, 1),
        "jobs": result.jobs,
        "files": [str(path) for path in result.files],
    }
