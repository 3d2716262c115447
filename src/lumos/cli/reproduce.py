"""`lumos reproduce`: every evaluation figure of the paper, ours beside its numbers."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import lumos
from lumos.cli.common import console, continued_by, placed, print_json, say
from lumos.errors import LumosError, UsageError, one_of

if TYPE_CHECKING:
    from lumos.experiments.reproduction import Reproduction

WIDTH = 160
"""Of tables that go to a file."""
BOTH = "both"


class CellsFailed(LumosError):
    """Some cells could not be computed; the others are there."""


def reproduce(
    *figures: Annotated[str, placed("figures")],
    graph: Annotated[list[str] | None, placed("graph", negative="")] = None,
    profiles: Annotated[str, placed("profiles")] = BOTH,
    seeds: Annotated[int | None, placed("seeds")] = None,
    epochs: Annotated[int | None, placed("epochs")] = None,
    quick: Annotated[bool, placed("quick", negative="")] = False,
    jobs: Annotated[int | None, placed("jobs")] = None,
    out: Annotated[Path, placed("out")] = Path("reproduction"),
    keep: Annotated[Path | None, placed("keep")] = None,
    kept: Annotated[Literal["exact", "any-code", "none"], placed("kept")] = "exact",
    results: Annotated[Path | None, placed("results")] = None,
    json: Annotated[bool, placed("json", negative="")] = False,
    data_dir: Annotated[Path | None, placed("data_dir", env_var="LUMOS_DATA")] = None,
) -> None:
    """Reproduce the paper's evaluation: tables, plots, JSON and one page, beside its numbers.

    Every result is written as soon as it is computed. An interrupted command continues when it is
    run again, and nothing is computed twice.

    Parameters
    ----------
    figures
        classification, link-prediction, epsilon, ablation, workload, cost; all by default.
    graph
        facebook (default), lastfm, demo, …, or a path; may be given several times.
    profiles
        Which of our two profiles to run: both, paper or strict.
    seeds
        Seeds of classification and link prediction at ε = 2 [default: 3; 1 with --quick].
    epochs
        Epochs of the paper profile and the baselines, instead of the frozen ones. Runs that fewer
        epochs cut are in tables of their own, without differences and plots.
    quick
        One seed, and as many whole runs as are expected to finish within ten minutes on two cores;
        the output lists those that are left out.
    jobs
        Processes at a time [default: as many as cores, as far as memory allows].
    out
        Folder for cells, tables.md, rows.json, workload.json, figures and report.html.
    keep
        Also add all results to this compact file, to be committed.
    kept
        Use kept results of exactly this result version, of any code (the output says so), or none.
    results
        Kept results: a file, or a folder of reproduce-*.json [default: docs/results].
    json
        Print one JSON object on standard output, and nothing else there.
    data_dir
        Folder of the graphs (also LUMOS_DATA).
    """
    from lumos.experiments import reproduce as experiment
    from lumos.experiments.cache import ResultCache, read_kept
    from lumos.experiments.dataset import dataset_of
    from lumos.experiments.figures.names import EVALUATED_PROFILES
    from lumos.experiments.request import Request, chosen_figures
    from lumos.experiments.settings import load_settings

    one_of("profiles", profiles, (BOTH, *EVALUATED_PROFILES))
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs must be 1 or more, got {jobs}")
    if keep is not None and keep.exists():
        read_kept(keep)  # a file that cannot be added to is refused before the work, not after it
    chosen = chosen_figures(figures)
    settings = load_settings("quick" if quick else "full").changed(seeds=seeds, epochs=epochs)
    files = [] if kept == "none" else _kept_files(results)
    cache = ResultCache(out, files, any_version=kept == "any-code")
    names = list(dict.fromkeys(graph or ["facebook"]))
    datasets = tuple(dataset_of(name, data_dir) for name in names)
    for dataset in datasets:
        if sum(other.file == dataset.file for other in datasets) > 1:
            raise UsageError(
                f"two graphs are called {dataset.name!r}: rename a file, or run them apart"
            )
    request = Request(
        figures=chosen,
        datasets=datasets,
        profiles=EVALUATED_PROFILES if profiles == BOTH else (profiles,),
        settings=settings,
        data_dir=data_dir,
        command=_command(chosen if figures else (), names, quick, seeds, epochs, profiles),
    )
    for dataset in datasets:
        for note in dataset.notes:
            say(f"{dataset.name}: {note}")
    with continued_by(f"finished cells are in {out / 'cells'}: the same command continues"):
        outcome = experiment.reproduce(request, cache, jobs=jobs, keep_file=keep, on_message=say)
    if json:
        print_json(outcome.summary(settings.form))
    else:
        _show(outcome, out)
    if outcome.failed:
        raise CellsFailed(
            f"{len(outcome.failed)} cells failed (their rows say why, {out / 'logs'} has more); "
            "the same command tries them again"
        )


def _show(outcome: "Reproduction", out: Path) -> None:
    from lumos.experiments import reported, row_tables
    from lumos.experiments.sentences import duration

    screen = console()
    if not screen.is_terminal:
        screen.width = WIDTH
    for figure, caption in reported.CAPTIONS.items():
        of_figure = [row for row in outcome.rows if row.figure == figure]
        for name, rows in row_tables.tables(of_figure).items():
            table, notes = row_tables.terminal_table(rows, f"{figure} on {name}: {caption}")
            screen.print(table)
            for note in notes:
                screen.print(note, markup=False)
            screen.print()
        for sentence in row_tables.left_out(of_figure):
            screen.print(f"{figure}: {sentence}\n")
    screen.print(
        f"{outcome.ran} cells computed in {duration(outcome.seconds)} (planned "
        f"{duration(outcome.planned_seconds)}; {duration(outcome.cpu_seconds)} of processor time "
        f"in {outcome.jobs} processes), {outcome.known} known"
    )
    if outcome.left_out:
        screen.print(
            f"{len(outcome.left_out)} cells left out: with them it would take "
            f"{duration(sum(outcome.left_out.values()))} of processor time more; run it without "
            "--quick"
        )
    if outcome.other_version:
        screen.print(f"{outcome.other_version} of the known cells are of another result version")
    screen.print(f"page: {out / 'report.html'} · tables: {out / 'tables.md'}", markup=False)


def _kept_files(results: Path | None) -> list[Path]:
    """The collections of kept results: `results`, or those of the source tree."""
    if results is not None and results.is_file():
        return [results]
    if results is not None and not results.is_dir():
        raise UsageError(f"--results {results}: there is no such file or folder")
    folder = results or Path(lumos.__file__).parents[2] / "docs" / "results"
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
    parts += ["--profiles", profiles] if profiles != BOTH else []
    return shlex.join(parts)
