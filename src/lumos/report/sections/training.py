"""What was learnt, stage by stage: losses, validation scores, and what the run knows of itself."""

import math
from collections.abc import Callable, Sequence

from lumos.report.line_chart import lines
from lumos.report.metric import arm_name, arms, predicts_links
from lumos.report.noisy_course import Movement, movement, with_error
from lumos.report.page import Block, Figure, Section, Table, Text
from lumos.report.self_estimates import estimates
from lumos.report.stages import stages_of
from lumos.runs.run import Run
from lumos.training.profile import LOSS, SumStage
from lumos.training.trainer import MAIN, EpochEvent

Series = dict[str, tuple[list[float | None], None]]


def section(run: Run) -> Section:
    """The stages, what each of them learnt as far as it can be seen, and estimates of the run."""
    stages = stages_of(run)
    blocks: list[Block] = [_stage_table(run, stages)] if len(stages) > 1 else []
    hidden = []
    for stage in stages:
        if not any(event.loss is not None for event in _events(run, stage)):
            continue
        moved = movement([event.loss for event in _events(run, stage)])
        if moved.visible:
            blocks.append(_loss(run, stage, alone=len(stages) == 1))
        else:
            hidden.append(_hidden(stage, moved))
    if any(event.score is not None for event in run.history):
        blocks.append(_validation(run))
    return Section("Training", [*blocks, *estimates(run), *map(Text, hidden)])


def curve(run: Run) -> Figure | None:
    """The one figure that tells most of the course of training; None where nothing is seen."""
    figures = [block for block in section(run).blocks if isinstance(block, Figure)]
    scores = [figure for figure in figures if "Validation" in figure.svg]
    return next(iter(scores or figures), None)


def _stage_table(run: Run, stages: Sequence[SumStage]) -> Table:
    rows = [
        [stage.name, _epochs_in_words(run, stage), stage.numbers or None, stage.learns]
        for stage in stages
    ]
    caption = "The stages of training: every epoch is one sum over all devices"
    columns = ["stage", "epochs", "numbers in a sum", "what is learnt"]
    return Table(columns, rows, caption, stacked=True)


def _epochs_in_words(run: Run, stage: SumStage) -> str:
    if stage.first > len(run.history) or stage.last < 1:
        return "before" if stage.last < 1 else "after"
    return (
        str(stage.first) if stage.first == stage.last else _joined(f"{stage.first} to {stage.last}")
    )


def _joined(words: str) -> str:
    """Words that stay on one line."""
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def _hidden(stage: SumStage, moved: Movement) -> str:
    return (
        f"The loss of the stage {stage.name} is not drawn, because noise hides its course: its "
        f"mean, as devices see it, was {with_error(moved.first, moved.error)} in the first third "
        f"of the epochs and {with_error(moved.last, moved.error)} in the last. More devices or a "
        "larger `update_epsilon` would show it."
    )


def _events(run: Run, stage: SumStage, arm: str = MAIN) -> list[EpochEvent]:
    return run.histories[arm][max(0, stage.first - 1) : max(0, stage.last)]


def _loss(run: Run, stage: SumStage, *, alone: bool) -> Figure:
    texts = run.config.profile.texts(run.config)
    drawing = lines(
        _epochs(run, stage),
        _series(run, stage, lambda event: event.loss),
        title="Training loss" if alone else f"Training loss: {stage.name}",
        x_title="epoch",
        reference_lines=_selected(run, stage),
    )
    about = "" if texts.loss == LOSS and stage.loss else texts.loss
    return Figure(drawing, f"{stage.loss} {about}".strip())


def _validation(run: Run) -> Figure:
    links = predicts_links(run)
    factor, name, unit = (-1, "loss", "") if links else (100, "accuracy", "%")
    stage = SumStage(name="", learns="", first=1, last=_longest(run), numbers=0)

    def score(event: EpochEvent) -> float | None:
        return None if event.score is None else factor * event.score

    drawing = lines(
        _epochs(run, stage),
        _series(run, stage, score),
        unit=unit,
        title=f"Validation {name}",
        x_title="epoch",
        reference_lines=_selected(run, stage),
    )
    better = "Lower" if links else "Higher"
    about = f"Of the weights that each epoch started with. {better} is better."
    if run.model.best_epoch < len(run.history):
        about += f" The weights that epoch {run.model.best_epoch:,} started with were kept."
    return Figure(drawing, about)


def _longest(run: Run) -> int:
    return max(map(len, run.histories.values()))


def _epochs(run: Run, stage: SumStage) -> list[float]:
    return [float(number) for number in range(stage.first, min(stage.last, _longest(run)) + 1)]


def _series(run: Run, stage: SumStage, value_of: Callable[[EpochEvent], float | None]) -> Series:
    """By arm, a value of each epoch; None where there is none, or no finite one."""
    count, series = len(_epochs(run, stage)), Series()
    for arm in (name for name in arms(run) if name in run.histories):
        values = [value_of(event) for event in _events(run, stage, arm)]
        finite = [y if y is not None and math.isfinite(y) else None for y in values]
        series[arm_name(run, arm)] = ([*finite, *[None] * (count - len(finite))], None)
    return series


def _selected(run: Run, stage: SumStage) -> dict[str, float]:
    """The epoch whose weights were kept, where it is not the last one."""
    best = run.model.best_epoch
    inside = stage.first <= best <= stage.last and best < len(run.history)
    return {f"weights of epoch {best}": float(best)} if inside else {}
