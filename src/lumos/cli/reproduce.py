"""`lumos reproduce`: every evaluation figure of the paper, ours beside its numbers."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

import lumos
from lumos.cli.common import console, print_json, say
from lumos.errors import LumosError, UsageError

if TYPE_CHECKING:
    from lumos.experiments.reproduce import Told


WIDTH = 160
"""Of tables that go to a file."""


class CellsFailed(LumosError):
    """Some cells could not be computed; the others are there."""


def reproduce(
    *figures: str,
    graph: Annotated[list[str] | None, Parameter(negative="")] = None,
    profiles: Literal["both", "paper", "strict"] = "both",
    seeds: int | None = None,
    epochs: int | None = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    jobs: int | None = None,
    out: Path = Path("reproduction"),
    keep: Path | None = None,
    kept: Literal["exact", "any-code", "none"] = "exact",
    results: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    data_dir: Annotated[Path | None, Parameter(env_var="LUMOS_DATA")] = None,
) -> None:
    """Reproduce the paper's evaluation: tables, plots, JSON and one page, beside its numbers.

    Every run is written at once, so an interrupted command goes on when it is given again, and
    nothing runs twice.

    Parameters
    ----------
    figures
        classification, link-prediction, epsilon, ablation, workload, cost; all where none is named.
    graph
        facebook (default), lastfm, demo, …, or a path; may be given several times.
    profiles
        Which of our two profiles to run.
    seeds
        Seeds of classification and link prediction at ε = 2 [default: 3; 1 with --quick].
    epochs
        Epochs of the paper profile and the baselines, instead of the frozen ones.
    quick
        Few epochs, one seed: within ten minutes on two cores, not comparable with the paper.
    jobs
        Processes at a time [default: as many as cores, as far as memory allows].
    out
        Folder for cells, tables.md, rows.json, workload.json, figures and report.html.
    keep
        Also add all results to the compact collection there, to be committed.
    kept
        Use kept results of exactly this code, of any code (the output says so), or none.
    results
        Where kept results lie: a file, or a folder of reproduce-*.json [default: docs/results].
    json
        Print one JSON object on standard output, and nothing else there.
    data_dir
        Where the graphs lie (also LUMOS_DATA).
    """
    from lumos.experiments import reproduce as whole
    from lumos.experiments.cache import ResultCache, read_kept
    from lumos.experiments.dataset import dataset_of
    from lumos.experiments.figures import PROFILES
    from lumos.experiments.settings import frozen

    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs must be 1 or more, got {jobs}")
    if keep is not None and keep.exists():
        read_kept(keep)  # what cannot be added to is said before the work, not after it
    chosen = whole.chosen_figures(figures)
    settings = frozen("quick" if quick else "full").changed(seeds=seeds, epochs=epochs)
    files = [] if kept == "none" else _kept_files(results)
    store = ResultCache(out, files, any_code=kept == "any-code")
    names = list(dict.fromkeys(graph or ["facebook"]))
    subjects = tuple(dataset_of(name, data_dir) for name in names)
    for one in subjects:
        if sum(other.file == one.file for other in subjects) > 1:
            raise UsageError(
                f"two graphs are called {one.name!r}: rename a file, or run them apart"
            )
    asked = whole.Request(
        figures=chosen,
        subjects=subjects,
        profiles=PROFILES if profiles == "both" else (profiles,),
        frozen=settings,
        data_dir=data_dir,
        command=_command(chosen if figures else (), names, quick, seeds, epochs, profiles),
    )
    for one in asked.subjects:
        for note in one.notes:
            say(f"{one.name}: {note}")
    try:
        told = whole.reproduce(asked, store, jobs=jobs, keep_file=keep, say=say)
    except KeyboardInterrupt:
        say(f"interrupted; finished cells are in {out / 'cells'}: the same command goes on")
        raise
    if json:
        print_json(whole.summary(told, settings.form))
    else:
        _show(told, settings.mark, out)
    if told.failed:
        raise CellsFailed(
            f"{len(told.failed)} cells failed (their rows say why, {out / 'logs'} has more); "
            "the same command tries them again"
        )


def _show(told: "Told", mark: str, out: Path) -> None:
    from lumos.experiments import reported, tables
    from lumos.experiments.reproduce import duration

    screen = console()
    if not screen.is_terminal:
        screen.width = WIDTH
    for figure, caption in reported.CAPTIONS.items():
        of = [row for row in told.rows if row.figure == figure]
        for name, rows in tables.by_graph(of).items():
            title = f"{figure} on {name}: {caption}" + mark * (figure not in ("workload", "cost"))
            table, notes = tables.shown(rows, title)
            screen.print(table)
            for note in notes:
                screen.print(note, markup=False)
            screen.print()
    screen.print(
        f"{told.ran} cells computed in {duration(told.seconds)} (planned "
        f"{duration(told.planned_seconds)}; {duration(told.cpu_seconds)} of processor time in "
        f"{told.jobs} processes), {told.known} known"
    )
    if told.other_code:
        screen.print(f"{told.other_code} of the known cells are of another code version")
    screen.print(f"page: {out / 'report.html'} · tables: {out / 'tables.md'}", markup=False)


def _kept_files(given: Path | None) -> list[Path]:
    """The collections of kept results: those asked for, or those of the source tree."""
    if given is not None and given.is_file():
        return [given]
    if given is not None and not given.is_dir():
        raise UsageError(f"--results {given}: there is no such file or folder")
    folder = given or Path(lumos.__file__).parents[2] / "docs" / "results"
    return sorted(folder.glob("reproduce-*.json"))


def _command(
    figures: tuple[str, ...],
    graphs: list[str],
    quick: bool,
    seeds: int | None,
    epochs: int | None,
    profiles: str,
) -> str:
    """The command without folders, which are the reader's own."""
    parts = ["lumos", "reproduce", *figures]
    parts += [word for name in graphs for word in ("--graph", name) if graphs != ["facebook"]]
    parts += ["--quick"] * quick
    parts += ["--seeds", str(seeds)] if seeds is not None else []
    parts += ["--epochs", str(epochs)] if epochs is not None else []
    parts += ["--profiles", profiles] if profiles != "both" else []
    return shlex.join(parts)
