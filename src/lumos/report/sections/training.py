"""How training went, epoch by epoch."""

import math
from collections.abc import Callable

from lumos.report.line_chart import lines
from lumos.report.page import Block, Figure, Section, Text
from lumos.report.record import Epoch, Record
from lumos.report.summary import ARMS

Courses = dict[str, tuple[list[float | None], None]]


def section(record: Record) -> Section:
    """The loss, and the validation score where there is one."""
    if not any(record.history.values()):
        return Section("Training", [Text("The run folder holds no history.")])
    epochs = [float(n + 1) for n in range(max(map(len, record.history.values())))]
    chosen: dict[str, float] = {}
    if not record.strict and record.config.train.select == "validation":
        chosen = {f"weights of epoch {record.result.best_epoch}": record.result.best_epoch}
    blocks: list[Block] = [_loss(record, epochs, chosen)]
    if any(epoch.score is not None for course in record.history.values() for epoch in course):
        blocks.append(_validation(record, epochs, chosen))
    return Section("Training", blocks)


def _loss(record: Record, epochs: list[float], chosen: dict[str, float]) -> Figure:
    stages = stage_starts(record)
    about = "Mean training loss of each epoch, as all devices learn it from a sum."
    if record.strict and record.config.strict.protect == "noise":
        about = (
            "Training loss of each epoch, as all devices learn it from a sum: clipped together "
            "with the updates and with the noise that protects them. So its size is not that of "
            "the true loss, and it may fall below 0."
        )
    if stages:
        about += " Dashed lines: here another part of the model begins to learn."
    courses = _courses(record, epochs, lambda epoch: epoch.loss)
    drawn = lines(epochs, courses, title="Training loss", x_title="epoch", rules=stages | chosen)
    return Figure(drawn, about)


def _validation(record: Record, epochs: list[float], chosen: dict[str, float]) -> Figure:
    turn, name, unit = (-1, "loss", "") if record.link else (100, "accuracy", "%")
    courses = _courses(
        record, epochs, lambda epoch: None if epoch.score is None else turn * epoch.score
    )
    drawn = lines(
        epochs, courses, unit=unit, title=f"Validation {name}", x_title="epoch", rules=chosen
    )
    better = "Lower" if record.link else "Higher"
    return Figure(drawn, f"Of the weights that each epoch started with. {better} is better.")


def _courses(record: Record, epochs: list[float], read: Callable[[Epoch], float | None]) -> Courses:
    """By arm, what `read` finds in each epoch; None where there is nothing, or no number."""
    found: Courses = {}
    for arm, course in record.history.items():
        values = [read(epoch) for epoch in course]
        finite = [y if y is not None and math.isfinite(y) else None for y in values]
        found[ARMS[arm]] = ([*finite, *[None] * (len(epochs) - len(finite))], None)
    return found


def stage_starts(record: Record) -> dict[str, float]:
    """By name, the epochs in which another part of a strict model begins to learn."""
    if not record.strict:
        return {}
    from lumos.strict.schedule import Schedule

    plan = Schedule(record.config, record.result.devices, 0)
    stages = [plan.stage(number) for number in range(record.result.epochs)]
    names = {"trust": "evidence", "backbone": "tree network"}
    return {
        names.get(stage, stage): float(number + 1)
        for number, stage in enumerate(stages)
        if number and stage != stages[number - 1]
    }
