"""`lumos baseline`: the systems that Lumos is compared with, on the same splits and scores."""

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from lumos.baselines.settings import BaselineSettings, ServerSettings
from lumos.cli.common import Common, console, print_json, progress_bar
from lumos.cli.options import given, options_of
from lumos.errors import UsageError
from lumos.graph import ReadOptions, load

if TYPE_CHECKING:
    from lumos.baselines.measure import Measured

    Options = Any
else:
    Options = options_of(
        "Options",
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

COMMON, NOTHING, REFUSE = Common(), Options(), ReadOptions()


def baseline(
    system: str,
    graph: str,
    /,
    *,
    options: Annotated[Options, Parameter(name="*")] = NOTHING,
    reading: Annotated[ReadOptions, Parameter(name="*")] = REFUSE,
    common: Common = COMMON,
) -> None:
    """Train and measure a system that Lumos is compared with.

    Parameters
    ----------
    system
        centralized, own, lpgnn, naive, or a registered one.
    graph
        demo, demo:60, facebook, twitch-ENGB, …, or a path.
    """
    if common.shards != 1:
        raise UsageError("`shards` has no meaning for a baseline: one server holds what it gets")
    settings = BaselineSettings(system=system, **given(options))
    from lumos.baselines import measure  # imports torch, which takes a second: not for --help

    loaded = load(graph, data_dir=common.data_dir, **vars(reading))
    with progress_bar(system) as bar:
        measured = measure.baseline(loaded, settings, seed=common.seed, progress=bar)
    if common.json:
        print_json(measured.summary())
    else:
        show(measured)


def show(measured: "Measured") -> None:
    """The result for people."""
    screen, summary = console(), measured.summary()
    noise = [
        f"{name} {summary[key]}"
        for name, key in (("ε", "epsilon"), ("label ε", "label_epsilon"))
        if summary[key] is not None
    ]
    parts = [summary["system"], summary["task"], summary["backbone"], *noise]
    screen.print(
        f"{summary['graph']}: {summary['devices']:,} devices, {summary['edges']:,} edges · "
        + " · ".join(filter(None, parts))
    )
    table = Table(show_header=False, box=None)
    kind, name = ("accuracy", "accuracy") if summary["task"] == "classify" else ("ROC-AUC", "auc")
    test, validation = (measured.metrics[f"{part}_{name}"] for part in ("test", "val"))
    if name == "accuracy":
        scores = f"test {100 * test:.2f} %, validation {100 * validation:.2f} %"
    else:
        scores = f"test {test:.4f}, validation {validation:.4f}"
    table.add_row(f"{kind} (observer)", scores)
    table.add_row("epochs", f"{summary['epochs']}, weights of epoch {summary['best_epoch']}")
    table.add_row(
        "seconds",
        f"{summary['seconds']:.1f} in all, {summary['seconds_per_epoch']:.3f} per epoch; "
        f"{summary['peak_rss_mb']:,.0f} MB peak",
    )
    settings = summary["settings"].items()
    table.add_row("settings", ", ".join(f"{name} {value}" for name, value in settings))
    screen.print(table)
    for note in summary["notes"]:
        screen.print(textwrap.fill(note, min(screen.width, 100)))
