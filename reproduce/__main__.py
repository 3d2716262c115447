"""Reproduce the paper's evaluation: tables, plots, JSON and one page, beside its numbers.

    python -m reproduce [FIGURE …] [--graph facebook] [--quick]
    make reproduce ARGS="--graph facebook --quick"

Figures: classification, link-prediction, epsilon, ablation, workload, cost, and dense, which the
paper does not have. Every result is stored
as soon as it is computed: an interrupted command continues when it is run again.
"""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lumos.cli.common import console, print_json, say
from lumos.errors import LumosError, UsageError
from lumos.evaluation.pool import Job, JobEnd, ResultCache, finite, processes, run_jobs
from reproduce import tables
from reproduce.documents import write_documents
from reproduce.evaluation import NOT_RUN, PROFILES, Outcome, PaperEvaluation
from reproduce.figures import FIGURES, SHORT_FIGURES, runs_of
from reproduce.page import Reproduction
from reproduce.reported import CAPTIONS
from reproduce.runs import Run, compute, keep, read_results
from reproduce.settings import Dataset, Settings, dataset_of

RESULTS = Path(__file__).parents[1] / "docs" / "results"
WIDTH = 160
"""Width of tables that go to a file."""
INTERRUPTED = 130
"""Exit status after Ctrl-C."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return 0: done, 1: failed, 2: bad usage or input, 130: interrupted."""
    given = _parser().parse_args(words)
    try:
        if given.write_docs:
            changed = write_documents()
            say(f"reproduce: {', '.join(changed) if changed else 'no page'} changed")
            return 0
        found = reproduce(given)
    except LumosError as error:
        say(f"reproduce: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        say(f"reproduce: interrupted; the same command continues in {given.out}")
        return INTERRUPTED
    if given.json:
        rows = [row.as_json() for of_figure in found.rows.values() for row in of_figure]
        about = ("ran", "known", "committed", "failed", "seconds")
        print_json({"rows": rows, **{name: getattr(found, name) for name in about}})
    else:
        _show(found, given.out)
    if found.failed:
        say(
            f"reproduce: {len(found.failed)} runs failed ({given.out / 'logs'} has more); the same "
            "command tries them again"
        )
    return 1 if found.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reproduce", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="figures; all by default")
    parser.add_argument(
        "--graph", action="append", help="facebook (default), lastfm, demo, … or a path; repeatable"
    )
    parser.add_argument("--profiles", default="both", choices=("both", *PROFILES))
    parser.add_argument("--seeds", type=int, help="seeds at ε = 2 (default: 3, with --quick 1)")
    parser.add_argument(
        "--epochs", type=int, help="epochs of the paper profile and baselines (default: 300)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one seed, GCN only, without the figures epsilon and ablation unless named",
    )
    parser.add_argument("--jobs", type=int, help="processes at a time (default: as many as cores)")
    parser.add_argument("--out", type=Path, default=Path("out/reproduction"), help="folder")
    parser.add_argument("--keep", type=Path, help="also add what was computed to this file")
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        help="committed results: a file, a folder of reproduce-*.json, or none "
        "(default: docs/results)",
    )
    parser.add_argument(
        "--again", choices=PROFILES, help="compute runs of this profile anew, after it has changed"
    )
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help="run nothing; write the tables of README and docs, and the picture, from docs/results",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=os.environ.get("LUMOS_DATA"),
        help="folder of the graphs (also LUMOS_DATA)",
    )
    return parser


def reproduce(given: argparse.Namespace) -> Reproduction:
    """Run what is missing, and write all files.

    Raises:
        UsageError: there is no such figure, graph or file.
    """
    start = time.perf_counter()
    for name in given.figures:
        if name not in FIGURES:
            raise UsageError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
    if given.jobs is not None and given.jobs < 1:
        raise UsageError(f"--jobs must be 1 or more, got {given.jobs}")
    wanted = given.figures or (SHORT_FIGURES if given.quick else tuple(FIGURES))
    settings = Settings(
        seeds=(1 if given.quick else 3) if given.seeds is None else given.seeds,
        backbones=("gcn",) if given.quick else ("gcn", "gat"),
        epochs=given.epochs,
    )
    committed = {
        key: record
        for key, record in read_results(_files(given.results)).items()
        if given.again is None or record["settings"].get("profile") != given.again
    }
    if given.keep is not None and given.keep.exists():
        read_results([given.keep])  # refused before the work, not after it
    data_dir = None if given.data_dir is None else Path(given.data_dir)
    names = dict.fromkeys(given.graph or ["facebook"])
    datasets = [dataset_of(name, data_dir) for name in names]
    if len({dataset.file for dataset in datasets}) < len(datasets):
        raise UsageError("two graphs have the same name: rename a file, or run them apart")
    profiles = PROFILES if given.profiles == "both" else (given.profiles,)
    figures = [figure for figure in FIGURES if figure in wanted]
    runs = {
        run: dataset
        for dataset in datasets
        for run in runs_of(figures, dataset, settings, profiles)
    }
    cache = ResultCache(given.out)
    with cache.locked():
        work = _Work(runs, cache, committed, again=given.again)
        work.run(given.jobs, data_dir)
        if given.keep is not None:
            keep(given.keep, work.computed())
        evaluations = [
            PaperEvaluation(
                dataset=dataset, settings=settings, lookup=work.lookup, profiles=profiles
            )
            for dataset in datasets
        ]
        found = Reproduction(
            evaluations=evaluations,
            rows={figure: [row for one in evaluations for row in FIGURES[figure](one)]
                  for figure in figures},
            settings=settings,
            command=_command(given),
            ran=work.ran,
            known=len(work.results) - work.ran - work.committed,
            committed=work.committed,
            failed=[f"{run.describe()}: {reason}" for run, reason in work.reasons.items()],
            seconds=round(time.perf_counter() - start, 1),
        )  # fmt: skip
        found.write(given.out)
    return found


class _Work:
    """The runs of a reproduction: their results, and those that are missing."""

    def __init__(
        self,
        runs: dict[Run, Dataset],
        cache: ResultCache,
        committed: dict[str, dict[str, Any]],
        again: str | None,
    ) -> None:
        self.results: dict[Run, dict[str, Any]] = {}
        self.reasons: dict[Run, str] = {}
        self.committed = self.ran = 0
        self._runs, self._cache = runs, cache
        for run, dataset in runs.items():
            anew = again is not None and dict(run.settings).get("profile") == again
            result = None if anew else cache.get(run.key(dataset))
            if result is None and (record := committed.get(run.key(dataset, package=""))):
                result = record["result"]
                self.committed += 1
            if result is not None:
                self.results[run] = result

    def run(self, jobs: int | None, data_dir: Path | None) -> None:
        """Run what is missing."""
        keys = {run.key(dataset): run for run, dataset in self._runs.items()}
        planned = [  # one job where the same graph stands under two names
            Job(name=key, call=compute, arguments={"run": run, "data_dir": data_dir})
            for key, run in keys.items()
            if run not in self.results
        ]
        say(
            f"{len(self._runs)} runs, {len(self.results)} of them known; {len(planned)} to run in "
            f"{processes(len(planned), jobs)} processes"
        )
        run_jobs(planned, at_once=jobs, logs=self._cache.folder / "logs", on_end=self._on_end)

    def _on_end(self, end: JobEnd, remaining: int) -> None:
        run: Run = end.job.arguments["run"]
        alike = [one for one, dataset in self._runs.items() if one.key(dataset) == end.job.name]
        if end.status:
            self.reasons |= dict.fromkeys(alike, end.reason)
        else:
            self.ran += len(alike)
            self.results |= dict.fromkeys(alike, finite(end.result))
            self._cache.put(end.job.name, self.results[run], run=run.describe())
        how = f"FAILED: {end.reason}" if end.status else f"{end.seconds:.0f} s"
        say(f"{run.describe()}: {how}; {remaining} to come")

    def lookup(self, run: Run) -> Outcome:
        """Return the result of a run, or why there is none."""
        if run in self.results:
            return Outcome(self.results[run], "")
        return Outcome(None, self.reasons.get(run, NOT_RUN))

    def computed(self) -> dict[str, tuple[Run, dict[str, Any]]]:
        """Return the results of the folder, by key without package."""
        return {
            run.key(dataset, package=""): (run, result)
            for run, dataset in self._runs.items()
            if (result := self._cache.get(run.key(dataset))) is not None
        }


def _files(results: Path) -> list[Path]:
    """Return the files of committed results."""
    if results.is_dir():
        return sorted(results.glob("reproduce-*.json"))
    if not results.exists() and str(results) != "none":
        raise UsageError(f"--results {results}: there is no such file or folder")
    return [] if str(results) == "none" else [results]


def _command(given: argparse.Namespace) -> str:
    """Return the command without folders, which are the reader's own."""
    parts = ["python", "-m", "reproduce", *given.figures]
    parts += [word for name in given.graph or [] for word in ("--graph", name)]
    parts += ["--quick"] * given.quick
    for name in ("seeds", "epochs"):
        value = getattr(given, name)
        parts += [] if value is None else [f"--{name}", str(value)]
    parts += ["--profiles", given.profiles] if given.profiles != "both" else []
    return shlex.join(parts)


def _show(found: Reproduction, out: Path) -> None:
    screen = console()
    if not screen.is_terminal:
        screen.width = WIDTH
    for figure, rows in found.rows.items():
        for name, some in tables.by_graph(rows).items():
            table, notes = tables.terminal_table(some, f"{figure} on {name}: {CAPTIONS[figure]}")
            screen.print(table)
            for note in notes:
                screen.print(note)
            screen.print()
    screen.print(found.work())
    screen.print(f"page: {out / 'report.html'} · tables: {out / 'tables.md'}")


if __name__ == "__main__":
    sys.exit(main())
