"""The table of an evaluation: for the terminal, for notebooks and for the page."""

from typing import NamedTuple

from lumos.evaluation.evaluated_systems import EvaluatedSystem
from lumos.evaluation.result import Evaluation, SystemScore
from lumos.progress import duration
from lumos.report.display import fragment, listed
from lumos.report.display import table as html_table
from lumos.report.display import title as heading
from lumos.runs.text import aligned
from lumos.training.metrics import HITS
from lumos.training.trainer import OWN

NAMES = {
    "test_accuracy": "accuracy",
    "test_macro_f1": "macro-F1",
    "test_balanced_accuracy": "balanced accuracy",
    "test_calibration_error": "calibration error",
    "test_auc": "ROC-AUC",
    "test_average_precision": "average precision",
    **{f"test_hits_at_{most}": f"hits@{most}" for most in HITS},
}
"""What tables call a metric."""
SHORT = {"test_balanced_accuracy": "balanced", "test_average_precision": "avg. precision"}
"""What narrow tables call it."""
SIDELINES = ("test_calibration_error",)
"""Metrics that stand in wide tables only."""


class Body(NamedTuple):
    """A table as text."""

    headings: list[str]
    lines: list[list[str]]


def unit(evaluation: Evaluation) -> tuple[float, int, str]:
    """Factor, decimals and unit of its scores: per cent for classify, shares for link."""
    return (1.0, 3, "") if evaluation.task == "link" else (100.0, 2, "%")


def body(evaluation: Evaluation, *, wide: bool = False) -> Body:
    """System, scores, the paired difference to own features, seeds, seconds.

    Args:
        wide: with every metric, and its whole name.
    """
    factor, digits, sign = unit(evaluation)
    metrics = [metric for metric in evaluation.metrics if wide or metric not in SIDELINES]
    names = NAMES if wide else {**NAMES, **SHORT}
    compared = any(row.minus_own is not None for row in evaluation.rows)
    headings = ["system", *(f"{names[metric]} {sign}".rstrip() for metric in metrics)]
    headings += [f"{names[metrics[0]]} minus own" if wide else "minus own"] * compared
    same = {len(runs.results) for runs in evaluation.runs} == {len(evaluation.seeds)}
    headings += ["seeds"] * (not same) + ["seconds a run" if wide else "seconds"]
    lines = []
    for runs in evaluation.runs:
        rows = [evaluation.row(runs.system.key, metric) for metric in metrics]
        main = rows[0]
        line = [main.system, *(_score(row, factor, digits) for row in rows)]
        line += [difference(main, factor, digits)] * compared
        line += [str(main.seeds)] * (not same)
        lines.append([*line, "" if main.seconds is None else f"{main.seconds:,.1f}"])
    return Body(headings, lines)


def _score(row: SystemScore, factor: float, digits: int) -> str:
    if row.mean is None:
        return "none"
    text = f"{factor * row.mean:.{digits}f}"
    return text if row.sd is None else f"{text} ± {factor * row.sd:.{digits}f}"


def difference(row: SystemScore, factor: float, digits: int) -> str:
    """Mean ± standard deviation of the paired difference to own features."""
    if row.minus_own is None:
        return ""
    text = f"{factor * row.minus_own:+.{digits}f}"
    return text if row.minus_own_sd is None else f"{text} ± {factor * row.minus_own_sd:.{digits}f}"


def title(evaluation: Evaluation) -> str:
    """Graph, task and seeds in a line."""
    count = len(evaluation.seeds)
    seeds = f"seed {evaluation.seeds[0]}"
    if count > 1:
        seeds = f"{count} seeds ({evaluation.seeds[0]} to {evaluation.seeds[-1]})"
    return (
        f"{evaluation.graph}: {evaluation.devices:,} devices, {evaluation.edges:,} edges · "
        f"{evaluation.task} · {seeds}"
    )


def remarks(evaluation: Evaluation) -> list[str]:
    """What a reader of the table should know, a sentence each."""
    sentences = ["± is the standard deviation over seeds."] * (len(evaluation.seeds) > 1)
    if any(row.minus_own is not None for row in evaluation.rows):
        own = EvaluatedSystem(OWN, evaluation.task).name
        sentences.append(f"minus own: the difference to {own}, paired by seed.")
    if evaluation.task == "link":
        sentences += few_negatives(evaluation)
    for runs in evaluation.runs:
        if runs.reasons:
            seeds = ", ".join(map(str, runs.reasons))
            sentences.append(f"{runs.system.name} has no result of seed {seeds}: {runs.reason}")
    sentences += [f"{name} is left out: {why}" for name, why in evaluation.left_out.items()]
    return [*sentences, *(f"note on the graph: {note}" for note in evaluation.notes)]


def few_negatives(evaluation: Evaluation) -> list[str]:
    """A sentence where hits@K are 1 by definition."""
    sizes = [
        result["split"]["test"]
        for runs in evaluation.runs
        for result in runs.results.values()
        if "split" in result
    ]
    empty = [f"hits@{most}" for most in HITS if sizes and min(sizes) < most]
    if not empty:
        return []
    return [
        f"{', '.join(empty)} would need as many pairs without an edge, and there are {min(sizes)}: "
        "every score is 1 by definition"
    ]


def protections(evaluation: Evaluation) -> dict[str, str]:
    """By name of a system, what protects label, features and edges."""
    rows = (evaluation.row(runs.system.key) for runs in evaluation.runs)
    return {row.system: row.protects for row in rows if row.protects}


def as_text(evaluation: Evaluation) -> str:
    """The table as plain text, with what protects each system below it."""
    table = body(evaluation)
    lines = [title(evaluation), "", *aligned(table.headings, table.lines, indent="")]
    lines += ["", *remarks(evaluation), "", "What protects label, features and edges:"]
    lines += [f"  {name}: {what}" for name, what in protections(evaluation).items()]
    return "\n".join([*lines, "", work(evaluation)])


def work(evaluation: Evaluation) -> str:
    """What was computed, and how long that took."""
    known = f"{evaluation.known} runs were known" * bool(evaluation.known)
    processor = f"All together took {duration(evaluation.cpu_seconds)} of processor time."
    if not evaluation.ran:
        return f"All {known}. {processor}"
    now = (
        f"{evaluation.ran} runs in {duration(evaluation.seconds)}, in {evaluation.processes} "
        f"{'process' if evaluation.processes == 1 else 'processes'}"
    )
    return f"{now}; {known}. {processor}" if known else f"{now}. {processor}"


def as_html(evaluation: Evaluation) -> str:
    """The table as HTML; every name is escaped."""
    scores = body(evaluation)
    parts = [heading("Evaluation", title(evaluation)), html_table(scores.headings, scores.lines)]
    return fragment(*parts, listed(remarks(evaluation)))
