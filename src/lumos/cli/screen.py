"""A run on the screen: answer, scores, guarantee, one advice; the rest by `--verbose`."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lumos.cli.common import (
    Common,
    as_options,
    console,
    continued_by,
    facts_table,
    print_json,
    say_runs,
)
from lumos.graph import Graph
from lumos.training.config import Config
from lumos.training.given_split import settled
from lumos.training.guarantees import shown_cells

if TYPE_CHECKING:
    from lumos.evaluation.evaluate import SeededRuns
    from lumos.evaluation.result import MeanScore
    from lumos.runs.run import Run
    from lumos.training.metrics import Scores

CLASSIFY = {
    "validation": "val_accuracy",
    "test": "test_accuracy",
    "macro-F1": "test_macro_f1",
    "balanced": "test_balanced_accuracy",
}
LINK = {
    "validation": "val_auc",
    "test": "test_auc",
    "average precision": "test_average_precision",
    "hits@50": "test_hits_at_50",
}
"""Columns of the table, as far as a run has these scores."""
TITLE_WIDTH = 15
"""Columns before the lines of a guarantee."""


def show(run: "Run", out: Path | None, *, verbose: bool) -> None:
    """Print a run for people.

    Args:
        out: its folder, if it was written.
        verbose: print everything that is known of it too.
    """
    from lumos.runs.text import advice, answer, guarantee, split_used

    screen = console()
    paragraph(screen, answer(run))
    screen.print()
    screen.print(score_table(run))
    screen.print()
    for title, text in guarantee(run):
        paragraph(screen, text, title)
    if hint := advice(run):
        paragraph(screen, f"Advice: {hint}.")
    paragraph(screen, f"Split: {split_used(run)}.")
    if verbose:
        show_details(run)
    if out is not None:
        screen.print(f"run folder: {out} (lumos predict {out}, lumos report {out})")
    elif not verbose:
        screen.print("(--verbose prints what it cost and who learns what; --out FOLDER keeps it)")


def score_table(run: "Run") -> Table:
    """Return a table of the observer's scores of every variant."""
    texts, task = run.config.profile.texts(run.config), run.config.train.task
    columns = columns_of(task, run.metrics)
    table = Table(heading_of(task), box=None, header_style="")
    for name in columns:
        table.add_column(name, justify="right")
    variants: dict[str, Scores | None] = {
        "this run": run.metrics,
        texts.own: run.own,
        f"control: {texts.control}": run.control,
    }
    for name, scores in variants.items():
        if scores is not None:
            table.add_row(name, *(shown(scores[key], task) for key in columns.values()))
    return table


def heading_of(task: str) -> str:
    """Return the heading of a table of scores, which are the observer's."""
    return "accuracy (observer), %" if task == "classify" else "ROC-AUC (observer)"


def columns_of(task: str, scores: Mapping[str, Any]) -> dict[str, str]:
    """Return the measured scores that a table shows, by heading."""
    known = CLASSIFY if task == "classify" else LINK
    return {name: key for name, key in known.items() if key in scores}


def shown(score: float, task: str) -> str:
    """Return a score as text: in percent, or between 0 and 1 for links."""
    return f"{100 * score:.1f}" if task == "classify" else f"{score:.4f}"


def paragraph(screen: Console, text: str, title: str = "") -> None:
    """Print sentences of the library: settings as options, wrapped in a terminal.

    Args:
        title: stands before the text, which is then indented.
    """
    first = f"{title:<{TITLE_WIDTH}}" if title else ""
    text = first + as_options(text)
    if screen.is_terminal:
        width, later = min(screen.width, 100), " " * len(first)
        text = textwrap.fill(text, width, subsequent_indent=later, break_on_hyphens=False)
    screen.print(text)


def show_details(run: "Run") -> None:
    """Print settings, estimates, cost, guarantees, exposure and topics."""
    screen = console()
    screen.print()
    config, ledger = run.config, run.ledger
    summary = run.summary()
    noisy = config.profile_settings.epsilon < float("inf")
    epsilon = f"ε = {config.profile_settings.epsilon:g}" if noisy else "no noise (ε = inf)"
    budget = config.profile.texts(config).budget or epsilon
    used = not config.profile.ignores("output", config)
    screen.print(
        f"{run.about.graph}: {run.about.devices:,} devices, {run.about.edges or 0:,} edges · "
        f"{config.train.task} · profile {config.train.profile} · "
        + f"{config.model.network} · " * used
        + budget
    )
    balanced = config.trees.balancer != "none"
    trees = f"trees {config.trees.balancer}, comparisons {run.trees.compare} · " * balanced
    screen.print(
        f"{trees}updates {config.train.aggregate} · randomness {config.train.randomness} · "
        f"seed {run.about.seed}"
    )
    for note in run.about.notes:
        screen.print(f"note: {note}")
    for improvement in config.improvements():
        screen.print(as_options(f"differs from the paper: {improvement}"))
    _show_choice(run)
    screen.print()
    each = run.cost.per_epoch
    best = run.model.best_epoch
    chosen = f", weights of epoch {best}" if best < summary["epochs"] else ""
    rows = {
        "epochs": f"{summary['epochs']}{chosen}",
        "per device": f"{ledger.messages_sent.mean():,.0f} messages and "
        f"{ledger.bytes_sent.mean():,.0f} bytes sent in all, {ledger.rounds:,} rounds",
        "per device and epoch": f"{each.messages_sent_mean:,.1f} messages and "
        f"{each.bytes_sent_mean:,.0f} bytes sent, at most {each.messages_sent_largest:,.0f} and "
        f"{each.bytes_sent_largest:,.0f}; {each.rounds:,.0f} rounds",
    }
    if noisy:
        edges = f"; {ledger.edge_epsilon:g} on its edges" * (ledger.edge_epsilon > 0)
        spent = (
            f"{ledger.epsilon_per_receiver:g} per receiver, {ledger.epsilon_collusion:,g} if all "
            "receivers of a device collude (largest)"
        )
        if not ledger.epsilon_collusion:
            spent = "0 on features and labels: no release depends on them"
        rows["ε of messages"] = spent + edges
    if ledger.scores:
        rows["answers in training"] = (
            f"{ledger.scores:,} pairs learnt the bucket of their score, "
            f"{ledger.comparison_bits / ledger.scores:g} bits each"
        )
    rows["seconds"] = (
        f"{run.cost.seconds:.1f} in all, {run.cost.seconds_per_epoch:.3f} per epoch; "
        f"{summary['peak_rss_mb']:,.0f} MB peak"
    )
    screen.print(facts_table(rows.items()))
    screen.print()
    if run.guarantees:
        _show_guarantees(run.guarantees)
    screen.print("What was exposed, and to whom:")
    screen.print(textwrap.fill(as_options(run.model.exposed), min(screen.width, 100)))
    screen.print()
    _show_topics(run)


def _show_topics(run: "Run") -> None:
    table = Table("topic", "door", box=None)
    table.add_column("messages", justify="right")
    table.add_column("bytes", justify="right")
    for report in (run.trees.ledger, run.ledger):
        for name, line in report.topics.items():
            table.add_row(name, line.door, f"{line.messages:,}", f"{line.bytes:,}")
    console().print(table)
    console().print("(who learns what from each topic: --json, or docs/privacy.md)")
    console().print()


def _show_guarantees(guarantees: list[dict[str, Any]]) -> None:
    """Print the guarantees by adversary: one block for rows with the same guarantees."""
    screen = console()
    screen.print("What is guaranteed (docs/strict-guarantees.md explains each entry):")
    about: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for row in guarantees:  # rows with the same guarantees are printed once
        about.setdefault(tuple(shown_cells(row).items()), []).append(row["about"])
    for cells, names in about.items():
        screen.print(f" {', '.join(names)}")
        screen.print(facts_table(cells, left=2))
    screen.print()


def _show_choice(run: "Run") -> None:
    """Print the run's own estimates, its choice, and the origin of its scores."""
    texts = run.config.profile.texts(run.config)
    what = "accuracy" if run.config.train.task == "classify" else "auc"
    if what == "accuracy":
        console().print(
            f"calibration error {100 * run.metrics['test_calibration_error']:.2f} points"
        )
    estimates = run.model.estimates
    if measured := [name for name in estimates if f"{name}_error" in estimates and what == "auc"]:
        levels = ", ".join(
            f"{name.removeprefix('levels_auc_')} {estimates[name]:.3f} ± "
            f"{estimates[f'{name}_error']:.3f}"
            for name in measured
        )
        console().print(f"AUC of score buckets, held-back edges against non-neighbours: {levels}")
    elif estimates:
        console().print(
            "estimated without true labels, by the private model selection: accuracy "
            f"{100 * estimates['selected_accuracy']:.1f} ± "
            f"{100 * estimates['selected_accuracy_error']:.1f} %, local model "
            f"{100 * estimates['own_selected_accuracy']:.1f} ± "
            f"{100 * estimates['own_selected_accuracy_error']:.1f} %"
        )
    if run.model.choice:
        choice = run.model.choice
        meaning = f" ({texts.choices[choice]})" if what == "auc" and choice in texts.choices else ""
        console().print(f"{texts.chooser} chose: {choice}{meaning}")
    for warning in run.warnings:
        console().print(as_options(f"warning: {warning}"))
    console().print("(scores are the observer's, from true data: no guarantee covers them)")


# `lumos train --seeds`: several runs, their means, and paired differences of their variants.


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
    from lumos.evaluation.evaluate import train_seeds

    again = None if out is None else f"the same command with --resume continues in {out}"
    with continued_by(lambda: again):
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
        show_seeds(found, config, out)


def show_seeds(found: "SeededRuns", config: Config, out: Path | None) -> None:
    """Print the means over seeds."""
    from lumos.evaluation.page import NAMES, SHORT, SIDELINES
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
    for variant in found.variants:
        table.add_row(variant, *(_written(found.mean(variant, name), percent) for name in metrics))
    for variant in found.variants[1:]:
        cells = (
            _written(found.difference(variant, name), percent, signed=True) for name in metrics
        )
        table.add_row(f"{MAIN} − {variant}", *cells)
    screen.print()
    screen.print(table)
    screen.print()
    screen.print("± is the standard deviation over seeds.")
    if found.variants[1:]:
        errors = ", ".join(
            f"{_error(found.difference(variant, metrics[0]), percent)} ({MAIN} − {variant})"
            for variant in found.variants[1:]
        )
        screen.print(f"Differences are paired by seed; standard error of the first: {errors}.")
    texts = config.profile.texts(config)
    names = {OWN: texts.own, CONTROL: texts.control}
    for variant in found.variants[1:]:
        screen.print(Text(f"{variant}: {names[variant]}"))
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
