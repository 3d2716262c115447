"""Blocks about single classes, made from plain numbers: of a run, or of several runs together."""

from collections.abc import Mapping, Sequence
from typing import Any

from lumos.report.heat_map import MOST, confusion, is_wide
from lumos.report.page import Figure, Table

ClassRows = Sequence[Mapping[str, Any]]
"""[classes] of `class`, `devices`, `precision`, `recall` and `f1`, as `run.metrics` has them in
`test_per_class`."""

HOW_TO_READ = "Devices, and their share in the row; an empty cell is 0. The diagonal is right."
_MEASURES = {"precision": "precision", "recall": "recall", "f1": "F1"}


def per_class_table(rows: ClassRows, beside: Mapping[str, ClassRows], caption: str) -> Table:
    """Precision, recall and F1 of each class in per cent, and F1 of others beside it.

    Args:
        rows: of the run.
        beside: by name, of what is compared with it, as own features and the control; the first
            has all measures, the others F1.
        caption: of the table. Of many classes it has the largest, and the caption says so.
    """
    largest = sorted(range(len(rows)), key=lambda number: -int(rows[number]["devices"]))[:MOST]
    if len(rows) > MOST:
        caption += f" (the {MOST} largest of {len(rows):,})"
    else:
        largest = list(range(len(rows)))
    columns, cells = ["class", "devices", *_MEASURES.values()], []
    for number, name in enumerate(beside):
        columns += [f"{name}: {words}" for words in _shown_measures(number).values()]
    for place in largest:
        row = rows[place]
        cell: list[str | int | None] = [str(row["class"]), int(row["devices"])]
        cell += [_percent(row[measure]) for measure in _MEASURES]
        for number, of_other in enumerate(beside.values()):
            cell += [_percent(of_other[place][name]) for name in _shown_measures(number)]
        cells.append(cell)
    return Table(columns, cells, caption)


def _shown_measures(number: int) -> dict[str, str]:
    return _MEASURES if not number else {"f1": "F1"}


def confusion_block(
    names: Sequence[str], counts: Sequence[Sequence[int]], title: str, caption: str = HOW_TO_READ
) -> Figure | Table:
    """A heat map; of more classes than can be drawn, a table of the largest confusions.

    Args:
        names: [classes] names of the classes.
        counts: [classes][classes]: row: true class, column: predicted class.
        title: above the drawing or the table.
        caption: a sentence below the drawing.
    """
    if len(names) <= MOST:
        return Figure(confusion(names, counts, title), caption, wide=is_wide(names))
    rows: list[list[str | int | None]] = [
        [names[true], names[taken], count, f"{100 * count / sum(counts[true]):.0f} %"]
        for count, true, taken in largest_confusions(counts)[:MOST]
    ]
    right = sum(counts[number][number] for number in range(len(names)))
    about = f"{title}: the largest confusions among {len(names):,} classes ({right:,} are right)"
    return Table(["true class", "taken for", "devices", "share of the class"], rows, about)


def largest_confusions(counts: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """(devices, true class, predicted class) of all confusions, the largest first."""
    wrong = [
        (count, true, taken)
        for true, row in enumerate(counts)
        for taken, count in enumerate(row)
        if true != taken and count
    ]
    return sorted(wrong, key=lambda found: (-found[0], found[1], found[2]))


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
