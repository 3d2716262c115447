"""How training went, epoch by epoch."""

import math
from collections.abc import Callable

from lumos.report.line_chart import lines
from lumos.report.metric import arm_name, predicts_links
from lumos.report.page import Block, Figure, Section, Table, Text
from lumos.runs.events import EpochEvent
from lumos.runs.run import Run

Series = dict[str, tuple[list[float | None], None]]


def section(run: Run) -> Section:
    """The loss, and the validation score where there is one; the stages where there is no loss."""
    events = [event for history in run.histories.values() for event in history]
    measured = any(event.loss is not None for event in events)
    blocks: list[Block] = [_loss(run)] if measured else _stages(run)
    if any(event.score is not None for event in events):
        blocks.append(_validation(run))
    return Section("Training", blocks)


def _stages(run: Run) -> list[Block]:
    """What each epoch summed, where no loss was measured."""
    texts = run.config.profile.texts(run.config)
    first = {1: texts.first_stage} | {epoch: name for name, epoch in texts.stages.items()}
    starts = sorted(first)
    ends = [*(start - 1 for start in starts[1:]), len(run.history)]
    rows = [
        [first[start], str(start) if start == end else f"{start} to {end}"]
        for start, end in zip(starts, ends, strict=True)
    ]
    text = "Every epoch is one sum over all devices. No epoch measures a loss."
    return [Text(text), Table(["stage", "epochs"], rows, "The stages of training", beside=True)]


def _loss(run: Run) -> Figure:
    texts = run.config.profile.texts(run.config)
    stages = {name: float(epoch) for name, epoch in texts.stages.items()}
    dashed = " Dashed lines: here another part of the model begins to learn."
    drawing = lines(
        _epochs(run),
        _series(run, lambda event: event.loss),
        title="Training loss",
        x_title="epoch",
        reference_lines=stages | _selected(run),
    )
    return Figure(drawing, texts.loss + dashed * bool(stages))


def _validation(run: Run) -> Figure:
    factor, name, unit = (-1, "loss", "") if predicts_links(run) else (100, "accuracy", "%")
    drawing = lines(
        _epochs(run),
        _series(run, lambda event: None if event.score is None else factor * event.score),
        unit=unit,
        title=f"Validation {name}",
        x_title="epoch",
        reference_lines=_selected(run),
    )
    better = "Lower" if predicts_links(run) else "Higher"
    return Figure(drawing, f"Of the weights that each epoch started with. {better} is better.")


def _epochs(run: Run) -> list[float]:
    """The epochs of the longest history."""
    return [float(number + 1) for number in range(max(map(len, run.histories.values())))]


def _series(run: Run, value_of: Callable[[EpochEvent], float | None]) -> Series:
    """By arm, a value of each epoch; None where there is none, or no finite one."""
    count, series = len(_epochs(run)), Series()
    for arm, events in run.histories.items():
        values = [value_of(event) for event in events]
        finite = [y if y is not None and math.isfinite(y) else None for y in values]
        series[arm_name(run, arm)] = ([*finite, *[None] * (count - len(finite))], None)
    return series


def _selected(run: Run) -> dict[str, float]:
    """The epoch whose weights were kept, where it is not the last one."""
    best = run.training.best_epoch
    return {f"weights of epoch {best}": float(best)} if best < len(run.history) else {}
