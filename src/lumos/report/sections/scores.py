"""The scores beside own features and control, and what they were measured on."""

import math

from lumos.report.bar_chart import dots
from lumos.report.metric import (
    arm_name,
    arms,
    deviation,
    format_score,
    metric_name,
    predicts_links,
    score_of,
)
from lumos.report.page import Block, Figure, Section, Table, Text
from lumos.runs.run import Run


def section(run: Run) -> Section:
    """A figure, the same as a table, the split, and what to know."""
    blocks: list[Block] = [_figure(run), _table(run), *_levels(run)]
    blocks += [Text(note) for note in _notes(run)]
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


def _table(run: Run) -> Table:
    rows = [
        [
            arm_name(run, arm),
            format_score(run, score_of(run, arm, "val")),
            format_score(run, score_of(run, arm)),
        ]
        for arm in arms(run)
    ]
    metric = metric_name(run)
    caption = f"{metric[0].upper()}{metric[1:]}, measured by the observer of the simulation"
    return Table(["", "validation", "test"], rows, caption, beside=True)


def _levels(run: Run) -> list[Block]:
    """What the run itself measured of each way to compare two devices, where it did."""
    prefix, estimates = "levels_auc_", run.training.estimates
    ways = [name for name in estimates if name.startswith(prefix) and f"{name}_error" in estimates]
    if not ways:
        return []
    rows = [
        [name.removeprefix(prefix), f"{estimates[name]:.3f} ± {estimates[f'{name}_error']:.3f}"]
        for name in ways
    ]
    caption = (
        "ROC-AUC of the levels of held-back edges against those of strangers, from noisy "
        "histograms: known to the devices themselves"
    )
    return [Table(["compared", "ROC-AUC ± standard error"], rows, caption, beside=True)]


def _notes(run: Run) -> list[str]:
    training, split = run.training, run.training.split
    kind, after = "labelled devices", ""
    if predicts_links(run):
        kind, after = "edges", "Training sees training edges only."
        if run.config.profile.texts(run.config).trees is not None:
            after = "Trees, releases and training see training edges only."
    notes = [
        f"Of the {kind}, {split.train:,} train, {split.validation:,} validate and "
        f"{split.test:,} test; which ones is public. {after}"
    ]
    if training.choice:
        texts = run.config.profile.texts(run.config)
        meaning = texts.choices.get(training.choice, training.choice)
        chooser = texts.chooser[0].upper() + texts.chooser[1:]
        notes.append(f"{chooser} chose `{training.choice}`: {meaning}.")
    notes += [f"Note: {caution}." for caution in training.cautions]
    return notes + [f"Note on the graph: {note}." for note in run.about.notes]
