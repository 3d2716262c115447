"""Blocks made from plain numbers: of one run, or of several runs together."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from lumos.report.charts import MAX_CLASSES, confusion, dots, is_wide
from lumos.report.page import Figure, Table

ClassRows = Sequence[Mapping[str, Any]]
"""[classes] of `class`, `devices`, `precision`, `recall` and `f1`, as `run.metrics` has them in
`test_per_class`."""

HOW_TO_READ = "Devices, and their share in the row; an empty cell is 0. The diagonal is right."
_MEASURES = {"precision": "precision", "recall": "recall", "f1": "F1"}


def per_class_table(rows: ClassRows, beside: Mapping[str, ClassRows], caption: str) -> Table:
    """Return precision, recall and F1 of each class in per cent, and F1 of others beside it.

    Args:
        rows: scores of the run.
        beside: by name, scores that are compared with it, as own features and the control; the
            first has all measures, the others F1.
        caption: caption of the table. Of many classes it has the largest, and the caption says so.
    """
    largest = list(range(len(rows)))
    if len(rows) > MAX_CLASSES:
        caption += f" (the {MAX_CLASSES} largest of {len(rows):,})"
        largest = sorted(largest, key=lambda place: -int(rows[place]["devices"]))[:MAX_CLASSES]
    shown = [("", rows, list(_MEASURES))]
    for name, others in beside.items():
        shown.append((f"{name}: ", others, list(_MEASURES) if len(shown) == 1 else ["f1"]))
    columns = [name + _MEASURES[measure] for name, _, measures in shown for measure in measures]
    cells: list[list[str | int | None]] = [
        [
            str(rows[place]["class"]),
            int(rows[place]["devices"]),
            *(f"{100 * of[place][name]:.1f}" for _, of, measures in shown for name in measures),
        ]
        for place in largest
    ]
    return Table(["class", "devices", *columns], cells, caption)


def confusion_block(
    names: Sequence[str], counts: Sequence[Sequence[int]], title: str, caption: str = HOW_TO_READ
) -> Figure | Table:
    """Return a heat map; of more classes than can be drawn, a table of the largest confusions.

    Args:
        names: [classes] names of the classes.
        counts: [classes][classes]: row: true class, column: predicted class.
        title: title of the drawing or the table.
        caption: a sentence below the drawing.
    """
    if len(names) <= MAX_CLASSES:
        return Figure(confusion(names, counts, title), caption, wide=is_wide(names))
    rows: list[list[str | int | None]] = [
        [names[true], names[taken], count, f"{100 * count / sum(counts[true]):.0f} %"]
        for count, true, taken in largest_confusions(counts)[:MAX_CLASSES]
    ]
    right = sum(counts[number][number] for number in range(len(names)))
    about = f"{title}: the largest confusions among {len(names):,} classes ({right:,} are right)"
    return Table(["true class", "taken for", "devices", "share of the class"], rows, about)


def largest_confusions(counts: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """Return (devices, true class, predicted class) of all confusions, the largest first."""
    wrong = [
        (count, true, taken)
        for true, row in enumerate(counts)
        for taken, count in enumerate(row)
        if true != taken and count
    ]
    return sorted(wrong, key=lambda found: (-found[0], found[1], found[2]))


def seeds_figure(
    scores: Mapping[str, Sequence[float]],
    title: str,
    *,
    unit: str = "",
    digits: int = 2,
    caption: str = "",
) -> Figure:
    """Draw the mean of each system, its standard deviation over seeds, and every seed by itself.

    Args:
        scores: by name of the system, a score for each seed; none where it could not be run.
        title: above the drawing.
        unit: behind every number, as "%".
        digits: decimals of the numbers.
        caption: a sentence more below the drawing.
    """
    means = [statistics.fmean(values) if values else None for values in scores.values()]
    spread = [statistics.stdev(values) if len(values) > 1 else None for values in scores.values()]
    most = max((len(values) for values in scores.values()), default=0)
    drawing = dots(
        [title],
        list(scores),
        [means],
        [spread],
        unit=unit,
        title=title,
        digits=digits,
        singles=[[values if len(values) > 1 else () for values in scores.values()]],
    )
    about = "One seed."
    if most > 1:
        about = (
            f"Means of {most} seeds; a stroke is one seed. ± is the standard deviation over seeds."
        )
    return Figure(drawing, f"{about} The axis does not begin at 0. {caption}".rstrip())
