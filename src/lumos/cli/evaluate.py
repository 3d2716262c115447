"""`lumos evaluate`: several systems on one graph, over several seeds: one table and a page."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from lumos.cli.common import Common, as_options, console, continued_by, placed, print_json, say_runs
from lumos.cli.options import AS_IT_IS, Reading, given
from lumos.errors import LumosError
from lumos.graph import load
from lumos.training.given_split import reading_of

if TYPE_CHECKING:
    from lumos.evaluation.result import Evaluation

SHARED = Common()
WIDTH = 160
"""Of a table that goes to a file."""


class SystemsFailed(LumosError):
    """Some systems have no score; the others are there."""


def evaluate(
    graph: Annotated[str, placed("graph")],
    /,
    *,
    seeds: Annotated[int, placed("seeds")] = 3,
    systems: Annotated[
        list[str] | None, placed("systems", negative="", consume_multiple=True)
    ] = None,
    task: Annotated[str, placed("task")] = "classify",
    epsilon: Annotated[float | None, placed("epsilon")] = None,
    backbone: Annotated[str | None, placed("backbone")] = None,
    split: Annotated[str | None, placed("split")] = None,
    jobs: Annotated[int | None, placed("jobs")] = None,
    out: Annotated[Path | None, placed("out")] = None,
    reading: Annotated[Reading, Parameter(name="*")] = AS_IT_IS,
    common: Common = SHARED,
) -> None:
    """Compare Lumos, own features, the control and other systems on one graph.

    Every system is run with the same seeds and splits, and finished with its own defaults. With
    --out, an interrupted command goes on where it stopped.

    Parameters
    ----------
    graph
        demo, demo:60, facebook, twitch-ENGB, …, or a path.
    seeds
        Number of seeds, from --seed on.
    systems
        strict, paper, own, control, own-unprotected, centralized, lpgnn (all of these by default),
        naive, or a registered one.
    task
        classify: predict labels; link: predict edges.
    epsilon
        ε of what a device releases, in every system that has one.
    backbone
        gcn, gat or sage, in every system that has one.
    split
        Who trains, validates and tests, as in lumos train; a file is the same for all seeds.
    jobs
        Processes at a time [default: as many as cores].
    out
        Folder for report.html, evaluation.json and the results of single runs.
    """
    common_settings: dict[str, Any] = {"epsilon": epsilon, "backbone": backbone}
    common.refuse("shards", because="shards change no score")
    from lumos.evaluation.evaluate import evaluate_graph  # imports torch: not for --help

    settings = {name: value for name, value in common_settings.items() if value is not None}
    asked = {"seeds": seeds, "seed": common.seed, "task": task, "split": split, **settings}
    again = None if out is None else f"finished runs are in {out}: the same command continues"
    with continued_by(again):
        evaluation = evaluate_graph(
            lambda: load(
                graph, data_dir=common.data_dir, **{**reading_of(split), **given(reading)}
            ),
            command=_command(graph, systems, asked, given(reading)),
            systems=systems,
            seeds=seeds,
            seed=common.seed,
            task=task,
            split=split,
            jobs=jobs,
            out=out,
            progress=say_runs,
            settings=settings,
        )
    if common.json:
        print_json(evaluation.summary())
    else:
        show(evaluation, out)
    failed = [runs.system.name for runs in evaluation.runs if not runs.results]
    if failed:
        raise SystemsFailed(f"no score of {', '.join(failed)}: the table says why")


def _command(
    graph: str, systems: list[str] | None, asked: dict[str, Any], reading: dict[str, Any]
) -> str:
    """The command without folders, which are the reader's own."""
    usual = {"seed": 0, "task": "classify", "split": None}
    parts = ["lumos", "evaluate", graph]
    parts += ["--systems", *systems] if systems else []
    for name, value in {**asked, **reading}.items():
        if name not in usual or usual[name] != value:
            option = f"--{name.replace('_', '-')}"
            parts += [option] if value is True else [option, str(value)]
    return shlex.join(parts)


def show(evaluation: "Evaluation", out: Path | None) -> None:
    """The result for people."""
    from lumos.evaluation.table import body, protections, remarks, title, work

    screen = console()
    if not screen.is_terminal:
        screen.width = WIDTH
    table = Table(box=None, padding=(0, 1))
    headings, lines = body(evaluation, wide=screen.width >= WIDTH)
    for place, heading in enumerate(headings):
        table.add_column(Text(heading), justify="right" if place else "left")
    for line in lines:
        table.add_row(*map(Text, line))
    screen.print(Text(title(evaluation)))
    screen.print()
    screen.print(table)
    screen.print()
    for sentence in remarks(evaluation):
        screen.print(Text(as_options(sentence)))
    screen.print("What protects label, features and edges:")
    promises = Table(show_header=False, box=None, padding=(0, 1, 0, 2))
    for name, what in protections(evaluation).items():
        promises.add_row(Text(name), Text(what))
    screen.print(promises)
    screen.print(Text(work(evaluation)))
    if out is not None:
        screen.print(Text(f"page: {out / 'report.html'}"))
