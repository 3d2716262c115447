"""Effect of ε: scores over ε, and the gain over ε = 0.5.

The paper's ε covers no label. That of the strict profile covers the label in symbol and sums (pure
ε); beside it stands the same profile with true labels in its sums, where ε is the symbol's alone.
Strict links release nothing, so they have one row and a line across the plot: the ε of their sums
is another quantity than that of the axis.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lumos.experiments import reported
from lumos.experiments.figures.evaluation import PaperEvaluation
from lumos.experiments.figures.names import MEASURES, ONE_SCORE, SYSTEM_NAMES, TRUE_LABELS
from lumos.experiments.figures.plots import SCORE_NAMES, PaperFigure, Plot, Plots, title
from lumos.experiments.figures.row import Row
from lumos.experiments.figures.scores import Scores, relative
from lumos.report import lines
from lumos.training.profile import PAPER, STRICT

Marks = list[float | None]

PROMISES = {
    STRICT: "a label has pure ε against everybody, in symbol and sums",
    TRUE_LABELS: "ε is the symbol's; sums use true labels, under the noise of updates only",
}
"""By variant: what ε promises a label."""


def epsilon_rows(evaluation: PaperEvaluation) -> list[Row]:
    """Scores of both tasks with GCN, then the gains."""
    rows, derived = [], []
    seeds = range(evaluation.settings.other_seeds)
    for task, measure in MEASURES.items():
        for variant in _variants(evaluation, task):
            name = SYSTEM_NAMES[variant]
            if (variant, task) in ONE_SCORE:
                scores = evaluation.only_score(variant, task, seeds)
                rows.append(
                    evaluation.row(
                        "epsilon", name, measure.name, scores, digits=measure.digits, task=task
                    )
                )
                continue
            by_epsilon = {
                e: _scores(evaluation, variant, task, e, seeds)
                for e in evaluation.settings.epsilons
            }
            least = by_epsilon[min(by_epsilon)]
            for e, scores in by_epsilon.items():
                about: dict[str, Any] = {"task": task, "backbone": "gcn", "epsilon": e}
                rows.append(
                    evaluation.row(
                        "epsilon", name, measure.name, scores, digits=measure.digits, **about
                    )
                )
                if e > min(by_epsilon):
                    gain, about["why"] = _gain(scores, least), variant
                    derived.append(
                        evaluation.row("epsilon", name, reported.RELATIVE_TO_HALF, gain, **about)
                    )
    return rows + derived


def _variants(evaluation: PaperEvaluation, task: str) -> list[str]:
    """The variants of a task, the strict profile's side by side."""
    variants = list(evaluation.variants)
    if task == "classify" and STRICT in variants:
        variants.insert(variants.index(STRICT) + 1, TRUE_LABELS)
    return variants


def _scores(
    evaluation: PaperEvaluation, variant: str, task: str, epsilon: float, seeds: Sequence[int]
) -> Scores:
    """Scores, with a note on what ε promises a label."""
    scores = evaluation.train(variant, task, "gcn", epsilon, seeds)
    if task != "classify" or variant not in PROMISES or not scores.by_seed:
        return scores
    return replace(scores, notes=(*scores.notes, PROMISES[variant]))


def _gain(scores: Scores, least: Scores) -> Scores:
    """The gain of the scores, and that of their controls."""
    gain = relative(scores, least)
    controls = relative(Scores(scores.control), Scores(least.control))
    return Scores(gain.by_seed, {} if scores.cut or least.cut else controls.by_seed, gain.notes)


def epsilon_plots(evaluation: PaperEvaluation, rows: Sequence[Row]) -> Plots:
    """A line for each system and each control, by task."""
    plots: Plots = {}
    for task in SCORE_NAMES:
        plot = _plot(evaluation, [row for row in rows if row.task == task], task)
        if plot is not None:
            plots[f"epsilon-{evaluation.dataset.file}-{task}"] = plot
    return plots


def _plot(evaluation: PaperEvaluation, rows: Sequence[Row], task: str) -> Plot | None:
    epsilons = evaluation.settings.epsilons
    scored = [row for row in rows if row.measure == MEASURES[task].name and not row.cut]
    series: dict[str, Any] = {}
    theirs: Marks = []
    levels = {
        f"{row.system} {row.ours:.3f}": row.ours
        for row in scored
        if row.epsilon is None and row.ours is not None
    }
    for system in dict.fromkeys(row.system for row in scored if row.epsilon is not None):
        by = {row.epsilon: row for row in scored if row.system == system}
        if not any(row.ours is not None for row in by.values()):
            continue
        series[system] = ([by[e].ours for e in epsilons], [by[e].spread for e in epsilons])
        control = [by[e].control for e in epsilons]
        if any(value is not None for value in control):
            series[f"{system}: control"] = (control, None)
        if system == SYSTEM_NAMES[PAPER] and (start := by[min(epsilons)].ours) is not None:
            theirs = _paper_marks(rows, epsilons, start)
    if not series:
        return None
    most = 100.0 if task == "classify" else 1.0
    possible = [mark if mark and mark <= most else None for mark in theirs]
    marked = any(value is not None for value in possible)
    svg = lines(
        epsilons,
        series,
        {SYSTEM_NAMES[PAPER]: possible} if marked else None,
        unit="%" if task == "classify" else "",
        title=title(evaluation, f"{SCORE_NAMES[task]} over ε"),
        x_title="ε",
        y_title=SCORE_NAMES[task],
        mark_name="the paper's gain over ε = 0.5",
        at_points=True,
        levels=levels,
    )
    sentences = []
    if levels:
        sentences.append("Level line: the strict profile, which releases nothing, so has no ε.")
    if marked:
        sentences.append("Diamonds: the paper's relative gains, applied to our score at ε = 0.5.")
    if possible != theirs:
        sentences.append("Some of its gains would carry ours beyond what is possible.")
    return Plot(svg, " ".join(sentences) or "The paper has no figure of this.")


def _paper_marks(rows: Sequence[Row], epsilons: Sequence[float], start: float) -> Marks:
    """The paper's gains, applied to our score at the least ε."""
    gains = {row.epsilon: row.paper for row in rows if row.measure == reported.RELATIVE_TO_HALF}
    by_epsilon = [gains.get(e) for e in epsilons]
    return [None if gain is None else start * (1 + gain / 100) for gain in by_epsilon]


EPSILON = PaperFigure(rows=epsilon_rows, plots=epsilon_plots)
