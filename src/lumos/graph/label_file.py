"""Label files: a text table with an id and a label in each row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lumos.graph.ids import shown
from lumos.graph.label_columns import id_column, label_column
from lumos.graph.labels import Labelled, LabelSource, label_classes
from lumos.graph.options import ReadOptions
from lumos.graph.text_table import TextTable, id_of


@dataclass(frozen=True)
class LabelRows:
    """The label file, row by row."""

    table: TextTable
    ids: tuple[int | str, ...]
    lines: tuple[int, ...]
    values: tuple[str, ...]
    """The cell of each row, "" where it is unknown."""
    column: int
    notes: tuple[str, ...] = ()

    def labelled(self, ids: Sequence[Any], options: ReadOptions) -> Labelled:
        """The classes of the devices `ids`; a device without a row is unknown."""
        value = dict(zip(self.ids, self.values, strict=True))
        line = dict(zip(self.ids, self.lines, strict=True))
        header = self.table.header
        named = repr(header[self.column]) if self.column < len(header) else str(self.column + 1)
        others = f" (it has: {', '.join(header)})" if header else ""
        several = self.table.width() > 2
        source = LabelSource(
            name=f"column {named}",
            file=self.table.file,
            place=lambda row: f"{self.table.file}, line {line[ids[row]]}: the label",
            other=f"name another column with `label_column`{others}" if several else "",
            ids=ids,
        )
        found = label_classes([value.get(device) for device in ids], source, options)
        return Labelled(found.labels, found.classes, self.notes + found.notes)


def read_labels(
    table: TextTable,
    options: ReadOptions,
    *,
    integers: bool,
    ids: int | None = None,
    label: int | None = None,
) -> LabelRows:
    """Read the labels of a table; an empty cell, NaN or -1 is an unknown label.

    Without a header to choose by, the label is the second of two columns, and further columns are
    further labels.

    Args:
        integers: whether ids are integers in this graph.
        ids: index of the column with the ids, where it is known.
        label: index of the column with the labels, where it is known.
    """
    ids = id_column(table) if ids is None else ids
    note = ""
    if label is None:
        label, note = label_column(table, ids, options)
    alone = label is None  # nothing tells columns apart: more than one of them is too many
    column = 1 if label is None else label
    first: dict[int | str, tuple[int, str]] = {}
    for line, row in table.rows():
        if len(row) <= max(ids, column):
            table.refuse(
                line,
                f"{len(row)} columns, but the id is in column {ids + 1} and the label in "
                f"column {column + 1}; leave the label empty if it is unknown",
            )
        if alone and any(row[2:]) and options.multilabel == "refuse":
            table.refuse(line, f"{_several(row[1], row[2])}, or one column with `label_column=2`")
        device = id_of(row[ids], table, line, integers)
        value = row[column]
        if value.casefold() in ("inf", "-inf"):
            table.refuse(line, f"the label is {shown(value)}; leave it empty if it is unknown")
        if device in first:
            if options.multilabel == "refuse":
                table.refuse(line, f"device {device}: {_several(first[device][1], value)}")
            continue
        first[device] = (line, value)
    return LabelRows(
        table=table,
        ids=tuple(first),
        lines=tuple(line for line, _ in first.values()),
        values=tuple(value for _, value in first.values()),
        column=column,
        notes=(note,) if note else (),
    )


def _several(one: str, other: str) -> str:
    return (
        f"more than one label ({shown(one)}, {shown(other)}); give each device one, "
        "or keep the first with `multilabel='first'`"
    )
