"""A run in words: its answer in one sentence, its guarantee, one advice, and `print(run)`.

Settings stand in backticks, as in errors; the command line turns them into its options.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lumos.training.guarantees import guarantees_something
from lumos.training.metrics import beyond_noise

if TYPE_CHECKING:
    from lumos.runs.run import Run
    from lumos.training.config import Config


def answer(run: "Run") -> str:
    """Return the scores of the run and of the local model, and the meaning of their difference.

    A difference is called noise below two standard errors of two independent scores on a test set
    of this size. The variants share their test set, so this is cautious.
    """
    classify = run.config.train.task == "classify"
    what, tested = ("accuracy" if classify else "auc"), run.split_sizes.test
    score = run.metrics[f"test_{what}"]
    name = run.about.graph or "this graph"
    measure, cases = ("accuracy", "devices") if classify else ("ROC-AUC", "edges")
    texts = run.config.profile.texts(run.config)
    parts = [
        f"Test {measure} on {name}: {_score(score, what)} ({tested:,} {cases}), {_profile(run)}",
    ]
    scores = {texts.own: run.own, f"control ({texts.control})": run.control}
    known = {who: found[f"test_{what}"] for who, found in scores.items() if found is not None}
    parts += [f"{who}: {_score(found, what)}" for who, found in known.items()]
    if known:  # the last one is what the run is compared with: the control, if there was one
        over = " over the control" * (run.control is not None)
        parts[-1] += f", so {_added(score, list(known.values())[-1], tested, what, over)}"
    return "; ".join(parts) + "."


def _profile(run: "Run") -> str:
    """Return the profile, its variant, and the trees that it was trained on."""
    config = run.config
    texts = config.profile.texts(config)
    details = [texts.variant]
    if "balancer" not in texts.unused_settings:
        details.append(
            f"balancer {config.trees.balancer}, largest workload {run.trees.max_workload or 0:,}"
        )
    shown = ", ".join(filter(None, details))
    return f"profile {config.train.profile}" + f" ({shown})" * bool(shown)


def guarantee(run: "Run") -> list[tuple[str, str]]:
    """Return the whole guarantee in plain words, or what is not protected.

    A line is a title and its sentences; the last one has no title.
    """
    more = ""
    guaranteed = guarantees_something(run.guarantees)
    if guaranteed and run.config.train.task == "classify" and run.scores:
        more = (
            f"They do not cover what the model itself predicts: "
            f"{_share(run.metrics['test_accuracy'])} of the test labels, from features and "
            "neighbours, as it should."
        )
    return guarantee_lines(run.config, run.guarantees, len(run.class_names), more)


def guarantee_lines(
    config: "Config", guarantees: Sequence[Mapping[str, Any]], classes: int, more: str = ""
) -> list[tuple[str, str]]:
    """Return the lines of `guarantee`, also of what a real device knows of a run.

    Args:
        guarantees: the table of guarantees.
        classes: number of classes.
        more: a sentence about this run.
    """
    lines = list(config.profile.texts(config).guarantee(guarantees, classes))
    closing = [lines.pop()[1]] if not lines[-1][0] else []
    closing += [more] * bool(more)
    real = {"aggregate": "secure", "randomness": "system"}
    needed = [
        f"`{name}='{value}'`"
        for name, value in real.items()
        if getattr(config.train, name) != value
    ]
    if needed:
        guaranteed = guarantees_something(guarantees)
        needs = f"; the guarantee needs {' and '.join(needed)}" if guaranteed else ""
        closing.append(f"This was a simulation{needs}.")
    return [*lines, ("", " ".join(closing))]


def guarantee_text(run: "Run") -> str:
    """Return the same in one paragraph."""
    return " ".join(f"{title}: {text}" if title else text for title, text in guarantee(run))


def advice(run: "Run") -> str:
    """Return the most useful next step; empty where there is none."""
    if run.warnings:
        return run.warnings[0]
    if run.control is None and run.config.train.randomness == "seeded":
        control = run.config.profile.texts(run.config).control
        return f"`control=True` shows what messages contribute: it adds a run with {control}"
    return ""


def estimate_texts(estimates: Mapping[str, float]) -> dict[str, str]:
    """Return a run's own estimates of its scores by name, each with its standard error.

    Args:
        estimates: as `Outcome.estimates` has them.
    """
    names = {"selected_accuracy": "accuracy", "own_selected_accuracy": "accuracy of local model"}
    names |= {
        name: f"ROC-AUC of {name.removeprefix('levels_auc_')}"
        for name in estimates
        if name.startswith("levels_auc_") and not name.endswith("_error")
    }
    found = {}
    for name, words in names.items():
        if f"{name}_error" in estimates:
            value, error = estimates[name], estimates[f"{name}_error"]
            links = name.startswith("levels_auc_")
            shown = (
                f"{value:.3f} ± {error:.3f}"
                if links
                else f"{100 * value:.1f} ± {100 * error:.1f} %"
            )
            found[words] = shown
    return found


def split_used(run: "Run") -> str:
    """Return the origin of the split, its sizes, and the use of validation."""
    use = run.config.profile.texts(run.config).validation
    return run.about.split.origin + f". {use}" * bool(use)


def _added(score: float, other: float, tested: int, what: str, over: str) -> str:
    """Return the meaning of the difference to another variant of the run."""
    gain = score - other
    who = "messages" if over or what == "auc" else "neighbours"
    if score == other:
        return f"{who} add nothing{over}"
    if not beyond_noise(score, other, tested, what):
        noise = "within the noise of a test set of this size"
        return f"{who} add {_points(gain, what, '+')}{over}, {noise}"
    return f"{who} {'add' if gain > 0 else 'cost'} {_points(abs(gain), what)}{over}"


def _score(score: float, what: str) -> str:
    return f"{score:.3f}" if what == "auc" else _share(score)


def _points(gain: float, what: str, sign: str = "") -> str:
    return f"{gain:{sign}.3f}" if what == "auc" else f"{100 * gain:{sign}.1f} points"


def _share(score: float) -> str:
    return f"{100 * score:.1f} %"


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
"""Columns of a table of scores, as far as a run has them."""


def headline(run: "Run") -> str:
    """Return task, graph, profile and seed of a run in one line."""
    about, train = run.about, run.config.train
    name = about.graph.strip() or "a graph in memory"
    edges = "" if about.edges is None else f", {about.edges:,} edges"
    return (
        f"{train.task} on {name} ({about.devices:,}{' real' * about.deployed} devices{edges}), "
        f"profile {train.profile}, seed {about.seed}"
    )


def score_table(run: "Run") -> tuple[list[str], list[list[str]]]:
    """Return headings and rows: a variant in each row, the observer's scores in the columns."""
    if not run.scores:
        estimates = estimate_texts(run.model.estimates)
        return ["estimated by noisy sums", *estimates], [["this run", *estimates.values()]]
    texts, task = run.config.profile.texts(run.config), run.config.train.task
    variants = {"this run": run.metrics, texts.own: run.own}
    variants[f"control: {texts.control}"] = run.control
    return table_of_scores({name: some for name, some in variants.items() if some}, task)


def table_of_scores(
    scores: Mapping[str, Mapping[str, Any]], task: str
) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of scores by name: in percent, or between 0 and 1 for links."""
    first, classify = next(iter(scores.values())), task == "classify"
    columns = {name: key for name, key in (CLASSIFY if classify else LINK).items() if key in first}
    factor, digits = (100, 1) if classify else (1, 4)
    rows = [
        [name, *(f"{factor * some[key]:.{digits}f}" for key in columns.values())]
        for name, some in scores.items()
    ]
    return ["accuracy (observer), %" if classify else "ROC-AUC (observer)", *columns], rows


def run_text(run: "Run") -> str:
    """Return the text of `print(run)`."""
    columns, rows = score_table(run)
    lines = [f"Run: {headline(run)}", *aligned(columns, rows)]
    for title, text in guarantee(run):
        words = f"{title}: {text}" if title else text
        lines += textwrap.wrap(words, 98, initial_indent="  ", subsequent_indent="    ")
    for warning in run.warnings:
        words = f"Warning: {warning}."
        lines += textwrap.wrap(words, 98, initial_indent="  ", subsequent_indent="    ")
    if run.folder is not None:
        lines.append(f"  folder: {run.folder}")
    return "\n".join(lines)


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Return a table as lines of text: the first column flush left, all others flush right."""
    table = [columns, *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(columns))]
    return [
        indent
        + "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
