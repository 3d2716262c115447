"""The scores beside own features and control, and what they were measured on."""

import math

from lumos.report.bar_chart import dots
from lumos.report.metric import (
    arm_name,
    arms,
    deviation,
    format_score,
    measured,
    metric_name,
    predicts_links,
    score_of,
)
from lumos.report.page import Block, Figure, Section, Table, Text
from lumos.runs.run import Run
from lumos.training.trainer import MAIN

HITS = {f"test_hits_at_{most}": f"hits@{most}" for most in (10, 50, 100)}
RANKING = {"test_average_precision": "average precision", **HITS}
"""Scores of links beside ROC-AUC: what they are called."""
OTHERS = {
    "test_macro_f1": "macro-F1",
    "test_balanced_accuracy": "balanced accuracy",
    "test_calibration_error": "calibration error",
    **RANKING,
}
"""Columns of the table beside the first two."""


def section(run: Run) -> Section:
    """A figure, the same as a table, the split, and what to know."""
    blocks: list[Block] = [_figure(run), *_ranking(run), _table(run)]
    blocks += [Text(note) for note in notes(run)]
    return Section("Scores", blocks)


def _figure(run: Run) -> Figure:
    factor, unit, digits = (1, "", 4) if predicts_links(run) else (100, "%", 2)
    scores = [score_of(run, arm) for arm in arms(run)]
    errors = [factor * deviation(run, score) for score in scores]
    known = not any(math.isnan(error) for error in errors)
    drawing = dots(
        [metric_name(run)],
        [arm_name(run, arm) for arm in arms(run)],
        [[factor * score for score in scores]],
        [errors] if known else None,
        unit=unit,
        title=f"Test {metric_name(run)}",
        digits=digits,
    )
    about = (
        "± is one standard deviation over the choice of the test set; it says nothing of other "
        "seeds. "
    )
    return Figure(drawing, about * known + "The axis does not begin at 0.")


def _ranking(run: Run) -> list[Block]:
    """How many edges are among the pairs that a run is surest of, where links are predicted."""
    names = [name for name in RANKING if measured(run, MAIN, name) is not None]
    if not names:
        return []
    drawing = dots(
        [RANKING[name] for name in names],
        [arm_name(run, arm) for arm in arms(run)],
        [[measured(run, arm, name) for arm in arms(run)] for name in names],
        title="Edges among the surest pairs",
        digits=3,
    )
    about = (
        "hits@k: the share of held-back edges that are scored above all but k of the pairs that "
        "are none. Average precision: the area under the curve of precision over recall."
    )
    return [Figure(drawing, about)]


def _table(run: Run) -> Table:
    others = [name for name in OTHERS if measured(run, MAIN, name) is not None]
    rows = [
        [
            arm_name(run, arm),
            format_score(run, score_of(run, arm, "val")),
            format_score(run, score_of(run, arm)),
            *(_number(measured(run, arm, name)) for name in others),
        ]
        for arm in arms(run)
    ]
    metric = metric_name(run)
    caption = f"{metric[0].upper()}{metric[1:]}, measured by the observer of the simulation"
    if others:
        caption += "; further scores on the test set"
    columns = ["", "validation", "test", *(OTHERS[name] for name in others)]
    return Table(columns, rows, caption, beside=not others, stacked=bool(others))


def _number(score: float | None) -> str | None:
    return None if score is None else f"{score:.3f}"


def notes(run: Run) -> list[str]:
    """The split, who chose what, cautions, and notes on the graph: one line each."""
    model, texts = run.model, run.config.profile.texts(run.config)
    after = "Which device does what is public."
    if predicts_links(run):
        after = "Training sees training edges only."
        if texts.trees is not None:
            after = "Trees, releases and training see training edges only."
    parts = (f"Split: {_sentence(run.about.split.origin)}", after, _sentence(texts.validation))
    lines = [" ".join(part for part in parts if part)]
    if model.choice:
        meaning = texts.choices.get(model.choice, model.choice)
        chooser = texts.chooser[0].upper() + texts.chooser[1:]
        lines.append(f"{chooser} chose `{model.choice}`: {meaning}.")
    lines += [f"Note: {_sentence(caution)}" for caution in model.cautions]
    return lines + [f"Note on the graph: {_sentence(note)}" for note in run.about.notes]


def _sentence(text: str) -> str:
    """With one full stop at its end; nothing where there is nothing."""
    return text.rstrip(". ") + "." if text else ""
