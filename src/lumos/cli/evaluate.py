"""`lumos baseline`: the systems that Lumos is compared with, on the same splits and scores."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from lumos.baselines.systems import ServerSettings, asked
from lumos.cli.common import (
    Common,
    as_options,
    console,
    continued_by,
    facts_table,
    placed,
    print_json,
    say_runs,
)
from lumos.cli.options import AS_IT_IS, Reading, given, options_of
from lumos.cli.screen import paragraph, table_of
from lumos.errors import LumosError
from lumos.graph import load
from lumos.training.given_split import reading_of

_OPTIONS = (
    *("task", "backbone", "feature_epsilon", "label_epsilon", "edge_epsilon", "variant"),
    *("one_bit", "steps", "label_steps", "edge_sample", "epochs", "patience"),
)
"""Settings that `lumos baseline` has as options; all others are for Python."""

if TYPE_CHECKING:
    from lumos.baselines.measure import Measured
    from lumos.evaluation.result import Evaluation

    Options = Any
else:
    Options = options_of(
        "BaselineOptions",
        ServerSettings,
        only=_OPTIONS,
        backbone="gcn",
        feature_epsilon="8, but 2 for naive",
        label_epsilon="3, but --feature-epsilon for naive",
        edge_epsilon="16, but --feature-epsilon for naive",
        variant="auto; hard for gat",
        one_bit="no",
        steps="4, but 2 for gap",
        label_steps="auto; 0 where --label-epsilon is inf",
        edge_sample="0",
        epochs="300",
        patience="0",
    )

COMMON, NOTHING = Common(), Options()


def baseline(
    system: Annotated[str, placed("system")],
    graph: Annotated[str, placed("graph")],
    /,
    *,
    options: Annotated[Options, Parameter(name="*")] = NOTHING,
    reading: Annotated[Reading, Parameter(name="*")] = AS_IT_IS,
    split: Annotated[str | None, placed("split")] = None,
    common: Common = COMMON,
) -> None:
    """Train and measure a system that Lumos is compared with.

    Parameters
    ----------
    system
        centralized, own, lpgnn, naive, blink, lpgnn-blink, gap, or a registered one.
    graph
        demo, demo:60, facebook, twitch-ENGB, …, or a path.
    split
        Who trains, validates and tests, as in lumos train.
    """
    settings = asked(system=system, **given(options))
    from lumos.baselines import measure  # imports torch, which takes a second: not for --help

    loaded = load(graph, data_dir=common.data_dir, **{**reading_of(split), **given(reading)})
    measured = measure.baseline(loaded, settings, seed=common.seed, split=split, progress=True)
    if common.json:
        print_json(measured.summary())
    else:
        show_baseline(measured)


def show_baseline(measured: "Measured") -> None:
    """Print the answer, the scores and what the server received."""
    from lumos.runs.text import table_of_scores

    screen, summary = console(), measured.summary()
    classify, name = summary["task"] == "classify", summary["graph"] or "this graph"
    score = 100 * measured.metrics["test_accuracy" if classify else "test_auc"]
    what = "accuracy" if classify else "ROC-AUC"
    paragraph(screen, f"Test {what} of {summary['system']} on {name}: {score:.1f} %.")
    screen.print()
    scores = table_of_scores({summary["system"]: measured.metrics}, summary["task"])
    screen.print(table_of(*scores))
    screen.print()
    paragraph(screen, " ".join(measured.notes))
    paragraph(screen, f"Split: {measured.split}.")


# `lumos evaluate`: several systems on one graph, over several seeds: one table and a page.

SHARED = Common()
WIDTH = 160
"""Width of a table that is written to a file."""


class SystemsFailed(LumosError):
    """Raised when some systems have no score, after the others were printed."""


def evaluate(
    graph: Annotated[str, placed("graph")],
    /,
    *,
    seeds: Annotated[int, placed("seeds")] = 3,
    systems: Annotated[
        list[str] | None, placed("systems", negative="", consume_multiple=True)
    ] = None,
    task: Annotated[str, placed("task")] = "classify",
    label_epsilon: Annotated[float | None, placed("label_epsilon")] = None,
    feature_epsilon: Annotated[float | None, placed("feature_epsilon")] = None,
    edge_epsilon: Annotated[float | None, placed("edge_epsilon")] = None,
    epsilon: Annotated[float | None, placed("epsilon")] = None,
    backbone: Annotated[str | None, placed("backbone")] = None,
    split: Annotated[str | None, placed("split")] = None,
    jobs: Annotated[int | None, placed("jobs")] = None,
    out: Annotated[Path | None, placed("out")] = None,
    reading: Annotated[Reading, Parameter(name="*")] = AS_IT_IS,
    common: Common = SHARED,
) -> None:
    """Compare Lumos, the local model, the control and other systems on one graph.

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
    label_epsilon
        ε of a device's label, in every system that protects labels [default: 3].
    feature_epsilon
        ε of a device's features, in every system that protects them [default: 8].
    edge_epsilon
        ε of one undirected edge, in every system with such a setting [default: 16].
    epsilon
        The paper profile's ε of features towards one receiver [default: 2].
    backbone
        gcn, gat or sage, in every system that has one.
    split
        Who trains, validates and tests, as in lumos train; a file is the same for all seeds.
    jobs
        Processes at a time [default: as many as cores].
    out
        Folder for report.html, evaluation.json and the results of single runs.
    """
    common_settings: dict[str, Any] = {
        "label_epsilon": label_epsilon,
        "feature_epsilon": feature_epsilon,
        "edge_epsilon": edge_epsilon,
        "epsilon": epsilon,
        "backbone": backbone,
    }
    from lumos.evaluation.evaluate import evaluate as compare  # imports torch: not for --help

    settings = {name: value for name, value in common_settings.items() if value is not None}
    asked = {"seeds": seeds, "seed": common.seed, "task": task, "split": split, **settings}
    again = None if out is None else f"finished runs are in {out}: the same command continues"
    with continued_by(lambda: again):
        evaluation = compare(
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
            **settings,
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
    """Print the result."""
    from lumos.evaluation.page import body, protections, remarks, title, work

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
    screen.print(facts_table(protections(evaluation).items(), left=2))
    screen.print(Text(work(evaluation)))
    if out is not None:
        screen.print(Text(f"page: {out / 'report.html'}"))
