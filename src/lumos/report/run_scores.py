"""Scores of a run beside local model and control, single classes, and training by stages."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, Literal

from lumos.report.charts import COLOURS, SYSTEM_STYLES, dots, is_wide, lines
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
from lumos.training.profile import LOSS, RunSizes, SumStage
from lumos.training.trainer import CONTROL, MAIN, OWN, EpochEvent

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


def variant_styles(run: Run) -> dict[str, int]:
    """Return the style of each variant in charts, by its name: a control has the run's colour."""
    system = SYSTEM_STYLES.get(run.config.train.profile, 0)
    numbers = {MAIN: system, OWN: SYSTEM_STYLES[OWN], CONTROL: system + 2 * len(COLOURS)}
    return {variant_name(run, variant): number for variant, number in numbers.items()}


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
    if not run.scores:
        return Section("Estimates", [*map(Text, notes(run))])
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
        styles=variant_styles(run),
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
        styles=variant_styles(run),
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
    found = [" ".join(part for part in parts if part)]
    if model.choice:
        meaning = texts.choices.get(model.choice, model.choice)
        chooser = texts.chooser[0].upper() + texts.chooser[1:]
        found.append(f"{chooser} chose `{model.choice}`: {meaning}.")
    found += [f"Warning: {_sentence(warning)}" for warning in run.warnings]
    return found + [f"Note on the graph: {_sentence(note)}" for note in run.about.notes]


def _sentence(text: str) -> str:
    """Return a text with one full stop at its end; nothing where there is nothing."""
    return text.rstrip(". ") + "." if text else ""


def classes_section(run: Run) -> Section | None:
    """Return a table of all classes, and who is taken for whom; None where it was not measured."""
    rows: ClassRows | None = measured(run, MAIN, "test_per_class") if run.scores else None
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
        if counts is None or (variant != MAIN and is_wide(run.class_names)):
            continue
        title = f"{_TITLES[variant]}: who is taken for whom"
        read = HOW_TO_READ if variant == MAIN else f"The same of the variant `{variant}`."
        blocks.append(confusion_block(run.class_names, counts, title, read))
    if beside and is_wide(run.class_names):
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


# Training, stage by stage: losses, validation scores, its own estimates, its cost.

_SIGNIFICANT = 2.0
"""Standard deviations by which a series must move to be called visible."""
_MAX_ERROR = 0.2
"""Standard error of an accuracy that still tells something."""


def stages_of(run: Run) -> Sequence[SumStage]:
    """Return the stages of a run in order; one of all epochs where the profile describes none."""
    epochs = len(run.history)
    sums = run.config.profile.texts(run.config).sums
    if sums is None:
        return [SumStage(name="training", learns="", first=1, last=epochs, numbers=0)]
    return sums(
        RunSizes(
            epochs=epochs,
            devices=run.about.devices,
            features=run.about.features,
            classes=len(run.class_names),
            weights=run.model.weights,
        )
    )


class Movement:
    """The course of a noisy series: means of its first and its last third, and their error.

    The noise of one value is estimated from differences of neighbours, √(mean(Δ²)/2), which a slow
    course hardly moves (von Neumann 1941). Values that are missing or not finite are left out.
    """

    def __init__(self, values: Sequence[float | None]) -> None:
        finite = [v for v in values if v is not None and math.isfinite(v)] or [0.0]
        third = max(1, len(finite) // 3)
        self.first, self.last = fmean(finite[:third]), fmean(finite[-third:])
        steps = [after - before for before, after in pairwise(finite)]
        self.noise = math.sqrt(fmean([step**2 for step in steps]) / 2) if steps else 0.0
        self.error = self.noise / math.sqrt(third)

    @property
    def visible(self) -> bool:
        """True if the series moved by more than its noise explains."""
        return abs(self.last - self.first) > _SIGNIFICANT * math.sqrt(2) * self.error


def with_error(value: float, error: float) -> str:
    """Return a value and its error with as many decimals as the error has meaning."""
    digits = 3 if error <= 0 else max(0, min(6, 1 - math.floor(math.log10(error))))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def training_section(run: Run) -> Section:
    """Return the stages, what each learnt as far as it can be seen, and estimates of the run."""
    stages = stages_of(run)
    blocks: list[Block] = [_stage_table(run, stages)] if len(stages) > 1 else []
    hidden = []
    for stage in stages:
        losses = [event.loss for event in _events(run, stage)]
        if not any(loss is not None for loss in losses):
            continue
        moved = Movement(losses)
        if moved.visible:
            blocks.append(_loss(run, stage, alone=len(stages) == 1))
        else:
            hidden.append(Text(_hidden(stage, moved)))
    if any(event.score is not None for event in run.history):
        blocks.append(_validation(run))
    return Section("Training", [*blocks, *estimates(run), *hidden])


def curve(run: Run) -> Figure | None:
    """Return the figure that tells most of the course of training; None where nothing is seen."""
    figures = [block for block in training_section(run).blocks if isinstance(block, Figure)]
    scores = [figure for figure in figures if "Validation" in figure.svg]
    return next(iter(scores or figures), None)


def _stage_table(run: Run, stages: Sequence[SumStage]) -> Table:
    rows = []
    for stage in stages:
        epochs = f"{stage.first} to {stage.last}".replace(" ", "\N{NO-BREAK SPACE}")
        if stage.first > len(run.history) or stage.last < 1:
            epochs = "before" if stage.last < 1 else "after"
        elif stage.first == stage.last:
            epochs = str(stage.first)
        rows.append([stage.name, epochs, stage.numbers or None, stage.learns])
    caption = "The stages of training: every epoch is one sum over all devices"
    columns = ["stage", "epochs", "numbers in a sum", "what is learnt"]
    return Table(columns, rows, caption, stacked=True)


def _hidden(stage: SumStage, moved: Movement) -> str:
    return (
        f"The loss of the stage {stage.name} is not drawn, because noise hides its course: its "
        f"mean, as devices see it, was {with_error(moved.first, moved.error)} in the first third "
        f"of the epochs and {with_error(moved.last, moved.error)} in the last. More devices or a "
        "larger `feature_epsilon` would show it."
    )


def _events(run: Run, stage: SumStage, variant: str = MAIN) -> list[EpochEvent]:
    return run.histories[variant][max(0, stage.first - 1) : max(0, stage.last)]


def _loss(run: Run, stage: SumStage, *, alone: bool) -> Figure:
    texts = run.config.profile.texts(run.config)
    title = "Training loss" if alone else f"Training loss: {stage.name}"
    drawing = _lines(run, stage, title, lambda event: event.loss)
    about = "" if texts.loss == LOSS and stage.loss else texts.loss
    return Figure(drawing, f"{stage.loss} {about}".strip())


def _validation(run: Run) -> Figure:
    factor, name, unit, better = 100, "accuracy", "%", "Higher"
    if predicts_links(run):
        factor, name, unit, better = -1, "loss", "", "Lower"
    longest = max(map(len, run.histories.values()))
    stage = SumStage(name="", learns="", first=1, last=longest, numbers=0)

    def score(event: EpochEvent) -> float | None:
        return None if event.score is None else factor * event.score

    drawing = _lines(run, stage, f"Validation {name}", score, unit)
    about = f"Of the weights that each epoch started with. {better} is better."
    if run.model.best_epoch < len(run.history):
        about += f" The weights that epoch {run.model.best_epoch:,} started with were kept."
    return Figure(drawing, about)


def _lines(
    run: Run,
    stage: SumStage,
    title: str,
    value_of: Callable[[EpochEvent], float | None],
    unit: str = "",
) -> str:
    """Draw a value of each epoch by variant, and mark the epoch whose weights were kept."""
    longest, best = max(map(len, run.histories.values())), run.model.best_epoch
    epochs = range(stage.first, min(stage.last, longest) + 1)
    series: dict[str, tuple[list[float | None], None]] = {}
    for variant in (name for name in variants(run) or [MAIN] if name in run.histories):
        values = [value_of(event) for event in _events(run, stage, variant)]
        finite = [y if y is not None and math.isfinite(y) else None for y in values]
        series[variant_name(run, variant)] = (
            [*finite, *[None] * (len(epochs) - len(finite))],
            None,
        )
    inside = stage.first <= best <= stage.last and best < len(run.history)
    kept = {f"weights of epoch {best}": float(best)} if inside else {}
    return lines(
        epochs,
        series,
        unit=unit,
        title=title,
        x_title="epoch",
        reference_lines=kept,
        styles=variant_styles(run),
    )


def estimates(run: Run) -> list[Figure | Text]:
    """Return what the run measured of itself, without any true label, where it did."""
    return [*_selection(run), *_levels(run)]


def _selection(run: Run) -> list[Figure | Text]:
    """Return the accuracy that the noisy model selection of validation devices tells, beside the
    true one."""
    found = run.model.estimates
    names = {MAIN: "selected_accuracy", OWN: "own_selected_accuracy"}
    known = {
        variant: name
        for variant, name in names.items()
        if variant in run.scores and math.isfinite(found.get(name, math.nan))
    }
    if not known:
        return []
    error = max(found[f"{name}_error"] for name in known.values())
    if not error <= _MAX_ERROR:
        return [
            Text(
                f"The model selection of {run.split_sizes.validation:,} validation devices has a "
                f"standard error of {100 * error:.0f} points, so devices themselves do not know "
                "how accurate they are."
            )
        ]
    drawing = dots(
        [variant_name(run, variant) for variant in known],
        ["by the model selection", "by the observer"],
        [
            [100 * found[name], 100 * score_of(run, variant, "val")]
            for variant, name in known.items()
        ],
        [[100 * found[f"{name}_error"], None] for name in known.values()],
        unit="%",
        title="Accuracy of validation devices",
        digits=1,
    )
    about = (
        "The model selection is all that devices know of their accuracy: a noisy sum over "
        "randomized labels, ± its standard error. The observer has the true labels."
    )
    return [Figure(drawing, about)]


def _levels(run: Run) -> list[Figure | Text]:
    """Return what the run itself measured of each way to compare two devices, where it did."""
    prefix, found = "levels_auc_", run.model.estimates
    ways = [name for name in found if name.startswith(prefix) and f"{name}_error" in found]
    if not ways:
        return []
    drawing = dots(
        ["ROC-AUC"],
        [name.removeprefix(prefix) for name in ways],
        [[found[name] for name in ways]],
        [[found[f"{name}_error"] for name in ways]],
        [[0.5 for _ in ways]],
        title="What two devices can compare",
        digits=3,
        mark_name="guessing",
    )
    about = (
        "ROC-AUC of the score buckets of held-back edges against non-neighbours, ± its standard "
        "error: what devices know themselves, from noisy histograms. A way within its error of "
        "guessing tells nothing."
    )
    return [Figure(drawing, about)]


def cost_section(run: Run) -> Section:
    """Return a table per device and epoch, and the simulation in a sentence."""
    cost, per_epoch = run.cost, run.cost.per_epoch
    rows = []
    for name in ("messages_sent", "messages_received", "bytes_sent", "bytes_received"):
        mean, largest = (getattr(per_epoch, f"{name}_{which}") for which in ("mean", "largest"))
        rows.append([name.replace("_", " "), f"{mean:,.1f}", f"{largest:,.1f}"])
    weights = sum(array.size for array in run.model.weights.values())
    if run.about.deployed:
        words = (
            f"{len(run.history):,} epochs; {weights:,} weights. The run took {cost.seconds:,.1f} "
            f"seconds, {cost.seconds_per_epoch:.3f} per epoch."
        )
        means = [row[:2] for row in rows]
        caption = "What a device exchanges with the coordinator in one epoch"
        return Section(
            "Cost", [Table(["", "mean"], means, caption), Text(_widths(run)), Text(words)]
        )
    simulation = (
        f"{len(run.history):,} epochs of {per_epoch.rounds:,.0f} rounds on average; {weights:,} "
        f"weights. The simulation of all devices took {cost.seconds:,.1f} seconds, "
        f"{cost.seconds_per_epoch:.3f} per epoch, and {cost.peak_rss_mb:,.0f} MB at its peak."
    )
    table = Table(["", "mean", "largest"], rows, "What a device sends and receives in one epoch")
    return Section("Cost", [table, Text(_widths(run)), Text(simulation)])


def _widths(run: Run) -> str:
    """Return how wide sums are, from which the bytes follow."""
    stages = [stage for stage in stages_of(run) if stage.numbers]
    text = f"A device has {run.about.features:,} features."
    if not stages:
        return text
    widest = max(stages, key=lambda stage: stage.numbers)
    sums = sum(stage.last - stage.first + 1 for stage in stages)
    total = sum((stage.last - stage.first + 1) * stage.numbers for stage in stages)
    where = f", in the stage {widest.name}" if len(stages) > 1 else ""
    return (
        f"{text} The widest sum has {widest.numbers:,} numbers{where}; all {sums:,} sums of the "
        f"run have {total:,}."
    )
