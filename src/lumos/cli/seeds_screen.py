"""`lumos train --seeds`: several runs, their means, and paired differences of their arms."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from lumos.cli.common import Common, console, continued_by, print_json, say_runs
from lumos.graph import Graph
from lumos.training.config import Config
from lumos.training.given_split import settled

if TYPE_CHECKING:
    from lumos.evaluation.means import MeanScore
    from lumos.evaluation.seeds import SeededRuns


def several_seeds(
    graph: Graph,
    config: Config,
    seeds: int,
    source: Mapping[str, Any],
    split: str | None,
    out: Path | None,
    resume: bool,
    common: Common,
) -> None:
    """Train with each seed and print the means."""
    from lumos.evaluation.seeds import train_seeds

    again = None if out is None else f"the same command with --resume continues in {out}"
    with continued_by(again):
        found = train_seeds(
            graph,
            config,
            seeds=range(common.seed, common.seed + seeds),
            shards=common.shards,
            source=source,
            split=settled(split),
            out=out,
            resume=resume,
            progress=say_runs,
        )
    if common.json:
        print_json(found.summary())
    else:
        show(found, config, out)


def show(found: "SeededRuns", config: Config, out: Path | None) -> None:
    """The means for people."""
    from lumos.evaluation.table import NAMES, SHORT, SIDELINES
    from lumos.training.trainer import CONTROL, MAIN, OWN

    screen, first = console(), found.first
    seeds = sorted(found.results)
    screen.print(
        Text(
            f"{first['graph']}: {first['devices']:,} devices, {first['edges']:,} edges · "
            f"{first['task']} · profile {first['profile']} · {len(seeds)} seeds ({seeds[0]} to "
            f"{seeds[-1]})"
        )
    )
    metrics = [name for name in found.metrics if name in NAMES and name not in SIDELINES]
    percent = first["task"] == "classify"
    table = Table("", box=None)
    for name in metrics:
        heading = {**NAMES, **SHORT}[name]
        table.add_column(f"{heading} %" if percent else heading, justify="right")
    for arm in found.arms:
        table.add_row(arm, *(_written(found.mean(arm, name), percent) for name in metrics))
    for arm in found.arms[1:]:
        cells = (_written(found.difference(arm, name), percent, signed=True) for name in metrics)
        table.add_row(f"{MAIN} − {arm}", *cells)
    screen.print()
    screen.print(table)
    screen.print()
    screen.print("± is the standard deviation over seeds.")
    if found.arms[1:]:
        errors = ", ".join(
            f"{_error(found.difference(arm, metrics[0]), percent)} ({MAIN} − {arm})"
            for arm in found.arms[1:]
        )
        screen.print(f"Differences are paired by seed; standard error of the first: {errors}.")
    texts = config.profile.texts(config)
    names = {OWN: texts.own, CONTROL: texts.control}
    for arm in found.arms[1:]:
        screen.print(Text(f"{arm}: {names[arm]}"))
    if out is not None:
        screen.print(Text(f"run folders: {out}/seed-{seeds[0]} … seed-{seeds[-1]}"))


def _error(score: "MeanScore", percent: bool) -> str:
    if score.se is None:
        return "unknown"
    return f"{100 * score.se:.2f}" if percent else f"{score.se:.4f}"


def _written(score: "MeanScore", percent: bool, *, signed: bool = False) -> str:
    if score.mean is None:
        return "none"
    factor, digits = (100.0, 2) if percent else (1.0, 4)
    sign = "+" if signed else ""
    text = f"{factor * score.mean:{sign}.{digits}f}"
    return text if score.sd is None else f"{text} ± {factor * score.sd:.{digits}f}"
