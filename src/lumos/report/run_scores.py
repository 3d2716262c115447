"""Scores of a run: the metric, the scores beside local model and control, and single classes."""

import math
from collections.abc import Mapping
from typing import Any, Literal

from lumos.report.charts import dots, is_wide
from lumos.report.page import (
    HOW_TO_READ,
    Block,
    ClassRows,
    Figure,
    Section,
    Table,
    Text,
    confusion_block,
    per_class_table,
)
from lumos.runs.run import Run
from lumos.training.metrics import standard_error
from lumos.training.trainer import CONTROL, MAIN, OWN

VARIANTS = (MAIN, OWN, CONTROL)
"""The run itself and what was trained beside it, in the order of the page."""
_RANKING = {
    "test_average_precision": "average precision",
    **{f"test_hits_at_{most}": f"hits@{most}" for most in (10, 50, 100)},
}
"""Scores of links beside ROC-AUC: their names on the page."""
_OTHERS = {
    "test_macro_f1": "macro-F1",
    "test_balanced_accuracy": "balanced accuracy",
    "test_calibration_error": "calibration error",
    **_RANKING,
}
"""Columns of the table beside the first two."""
_TITLES = {MAIN: "This run", OWN: "Local model", CONTROL: "Control"}


def predicts_links(run: Run) -> bool:
    """Return whether the run predicts links; otherwise it classifies."""
    return run.config.train.task == "link"


def variant_name(run: Run, variant: str) -> str:
    """Return the name of a variant."""
    texts = run.config.profile.texts(run.config)
    return {MAIN: "this run", OWN: texts.own, CONTROL: f"control: {texts.control}"}[variant]


def variants(run: Run) -> list[str]:
    """Return the variants of a run that have scores, itself first."""
    return [variant for variant in VARIANTS if variant in run.scores]


def score_of(run: Run, variant: str = MAIN, part: Literal["test", "val"] = "test") -> float:
    """Return the score of a variant on test or validation devices (classify) or edges (link)."""
    score: float = run.scores[variant][f"{part}_{'auc' if predicts_links(run) else 'accuracy'}"]
    return score


def measured(run: Run, variant: str, name: str) -> Any:
    """Return a score of a variant, a number or a list; None where it was not measured."""
    scores: Mapping[str, Any] = run.scores[variant]
    return scores.get(name)


def format_score(run: Run, score: float) -> str:
    """Return a score as people write it."""
    return f"{score:.4f}" if predicts_links(run) else f"{100 * score:.2f}\N{NO-BREAK SPACE}%"


def deviation(run: Run, score: float) -> float:
    """Return the standard deviation over the choice of the test set; NaN where that is empty."""
    count = run.split_sizes.test
    if count < 1:
        return math.nan
    return standard_error(score, count, "auc" if predicts_links(run) else "accuracy")


def scores_section(run: Run) -> Section:
    """Return a figure of the scores, the same as a table, the split, and what to know."""
    blocks: list[Block] = [_figure(run), *_ranking(run), _table(run)]
    return Section("Scores", [*blocks, *map(Text, notes(run))])


def _metric(run: Run) -> str:
    return "ROC-AUC" if predicts_links(run) else "accuracy"


def _figure(run: Run) -> Figure:
    factor, unit, digits = (1, "", 4) if predicts_links(run) else (100, "%", 2)
    scores = [score_of(run, variant) for variant in variants(run)]
    errors = [factor * deviation(run, score) for score in scores]
    known = not any(math.isnan(error) for error in errors)
    drawing = dots(
        [_metric(run)],
        [variant_name(run, variant) for variant in variants(run)],
        [[factor * score for score in scores]],
        [errors] if known else None,
        unit=unit,
        title=f"Test {_metric(run)}",
        digits=digits,
    )
    about = (
        "± is one standard deviation over the choice of the test set; it says nothing of other "
        "seeds. "
    )
    return Figure(drawing, about * known + "The axis does not begin at 0.")


def _ranking(run: Run) -> list[Block]:
    """Return how many edges are among the surest pairs, where links are predicted."""
    names = [name for name in _RANKING if measured(run, MAIN, name) is not None]
    if not names:
        return []
    drawing = dots(
        [_RANKING[name] for name in names],
        [variant_name(run, variant) for variant in variants(run)],
        [[measured(run, variant, name) for variant in variants(run)] for name in names],
        title="Edges among the surest pairs",
        digits=3,
    )
    about = (
        "hits@k: the share of held-back edges that are scored above all but k of the pairs that "
        "are none. Average precision: the area under the curve of precision over recall."
    )
    return [Figure(drawing, about)]


def _table(run: Run) -> Table:
    others = [name for name in _OTHERS if measured(run, MAIN, name) is not None]
    rows = []
    for variant in variants(run):
        further = [measured(run, variant, name) for name in others]
        scores = [format_score(run, score_of(run, variant, part)) for part in ("val", "test")]
        cells = [None if score is None else f"{score:.3f}" for score in further]
        rows.append([variant_name(run, variant), *scores, *cells])
    metric = _metric(run)
    caption = f"{metric[0].upper()}{metric[1:]}, measured by the observer of the simulation"
    caption += "; further scores on the test set" * bool(others)
    columns = ["", "validation", "test", *(_OTHERS[name] for name in others)]
    return Table(columns, rows, caption, beside=not others, stacked=bool(others))


def notes(run: Run) -> list[str]:
    """Return the split, who chose what, warnings, and notes on the graph: one line each."""
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
    lines += [f"Note: {_sentence(warning)}" for warning in model.warnings]
    return lines + [f"Note on the graph: {_sentence(note)}" for note in run.about.notes]


def _sentence(text: str) -> str:
    """Return a text with one full stop at its end; nothing where there is nothing."""
    return text.rstrip(". ") + "." if text else ""


def classes_section(run: Run) -> Section | None:
    """Return a table of all classes, and who is taken for whom; None where it was not measured."""
    rows: ClassRows | None = measured(run, MAIN, "test_per_class")
    if rows is None:
        return None
    beside = {
        variant: of_variant
        for variant in variants(run)[1:]
        if (of_variant := measured(run, variant, "test_per_class")) is not None
    }
    caption = "Test devices by class, in per cent"
    blocks: list[Block] = [
        Text(_hardest_class(rows, beside)),
        Text(
            "Precision: of those taken for the class, how many are of it. Recall: of the class, "
            "how many are found. F1 is their harmonic mean."
        ),
        per_class_table(rows, beside, caption),
    ]
    for variant in variants(run):
        counts = measured(run, variant, "test_confusion")
        if counts is None or (variant != MAIN and is_wide(run.classes)):
            continue
        title = f"{_TITLES[variant]}: who is taken for whom"
        read = HOW_TO_READ if variant == MAIN else f"The same of the variant `{variant}`."
        blocks.append(confusion_block(run.classes, counts, title, read))
    if beside and is_wide(run.classes):
        names = " and ".join(f"`run.{variant}`" for variant in beside)
        blocks.append(Text(f"The matrices of what stands beside the run are in {names}."))
    return Section("Single classes", blocks)


def _hardest_class(rows: ClassRows, beside: Mapping[str, ClassRows]) -> str:
    """Return which class is hardest, and which gains most over the local model."""
    present = [place for place, row in enumerate(rows) if row["devices"]]
    if not present:
        return "No test device has a label."
    hardest = min(present, key=lambda place: float(rows[place]["f1"]))
    text = (
        f"The hardest class is {rows[hardest]['class']} "
        f"(F1 {100 * rows[hardest]['f1']:.1f} %, {rows[hardest]['devices']:,} test devices)."
    )
    if own := beside.get(OWN):
        gains = {place: 100 * float(rows[place]["f1"] - own[place]["f1"]) for place in present}
        best, worst = max(present, key=gains.__getitem__), min(present, key=gains.__getitem__)
        changes = [
            f"{gains[place]:+.1f}".replace("-", "−") + f" points ({rows[place]['class']})"
            for place in (worst, best)
        ]
        text += f" Against the local model, F1 changes by {' to '.join(changes)}."
    return text
