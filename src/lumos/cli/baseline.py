"""`lumos baseline`: the systems that Lumos is compared with, on the same splits and scores."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from lumos.baselines.settings import ServerSettings, asked
from lumos.cli.common import Common, console, placed, print_json
from lumos.cli.options import AS_IT_IS, Reading, given, options_of
from lumos.cli.screen import columns_of, heading_of, paragraph, shown
from lumos.graph import load
from lumos.training.given_split import reading_of

if TYPE_CHECKING:
    from lumos.baselines.measure import Measured

    Options = Any
else:
    Options = options_of(
        "BaselineOptions",
        ServerSettings,
        backbone="gcn",
        epsilon="2",
        label_epsilon="1 for lpgnn, --epsilon for naive",
        delta="1e-05",
        low="0",
        high="1",
        one_bit="no",
        steps="4",
        label_steps="auto; 0 where --label-epsilon is inf",
        edge_sample="0",
        epochs="300",
        patience="0",
        learning_rate="0.01",
        weight_decay="classify: 5e-4 for centralized, 1e-3 for lpgnn on clean labels; 0 otherwise",
        dropout="classify: 0.5, but 0 for naive; link: 0",
        hidden="16",
        normalise="only for own --task classify",
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
        centralized, own, lpgnn, naive, or a registered one.
    graph
        demo, demo:60, facebook, twitch-ENGB, …, or a path.
    split
        Who trains, validates and tests, as in lumos train.
    """
    common.refuse("shards", because="one server holds what it gets")
    settings = asked(system=system, **given(options))
    from lumos.baselines import measure  # imports torch, which takes a second: not for --help

    loaded = load(graph, data_dir=common.data_dir, **{**reading_of(split), **given(reading)})
    measured = measure.baseline(loaded, settings, seed=common.seed, split=split, progress=True)
    if common.json:
        print_json(measured.summary())
    else:
        show(measured, verbose=common.verbose)


def show(measured: "Measured", *, verbose: bool) -> None:
    """The answer, the scores, what the server got; cost and settings if everything is asked for."""
    screen, summary = console(), measured.summary()
    classify, name = summary["task"] == "classify", summary["graph"] or "this graph"
    score = 100 * measured.metrics["test_accuracy" if classify else "test_auc"]
    done = (
        f"classifies {score:.1f} % of test devices rightly"
        if classify
        else f"tells a test edge from a pair of strangers in {score:.1f} % of comparisons (ROC-AUC)"
    )
    paragraph(screen, f"On {name}, {summary['system']} {done}.")
    screen.print()
    columns = columns_of(summary["task"], measured.metrics)
    table = Table(heading_of(summary["task"]), box=None, header_style="")
    for column in columns:
        table.add_column(column, justify="right")
    figures = (shown(measured.metrics[key], summary["task"]) for key in columns.values())
    table.add_row(summary["system"], *figures)
    screen.print(table)
    screen.print()
    paragraph(screen, " ".join(measured.notes))
    paragraph(screen, f"Split: {measured.split}.")
    if verbose:
        _show_details(measured, summary)


def _show_details(measured: "Measured", summary: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None)
    table.add_row("graph", f"{summary['devices']:,} devices, {summary['edges']:,} edges")
    table.add_row("epochs", f"{summary['epochs']}, weights of epoch {summary['best_epoch']}")
    table.add_row(
        "seconds",
        f"{summary['seconds']:.1f} in all, {summary['seconds_per_epoch']:.3f} per epoch; "
        f"{summary['peak_rss_mb']:,.0f} MB peak",
    )
    settings = summary["settings"].items()
    table.add_row("settings", ", ".join(f"{name} {value}" for name, value in settings))
    for note in measured.graph.notes:
        table.add_row("note", note)
    console().print(table)
