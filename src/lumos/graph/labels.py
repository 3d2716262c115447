"""Labels: one class per device, or unknown; class names in sorted order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lumos.errors import InputError
from lumos.graph.ids import shown
from lumos.graph.options import ReadOptions
from lumos.graph.text_table import INTEGER, TextTable, id_of
from lumos.typing import Ints

UNKNOWN = ("", "-1")


@dataclass(frozen=True)
class LabelRows:
    """The label file, row by row."""

    ids: tuple[int | str, ...]
    lines: tuple[int, ...]
    names: tuple[str | None, ...]
    """The class of each row, None where it is unknown."""


def read_labels(
    table: TextTable,
    options: ReadOptions,
    *,
    integers: bool,
    id_column: int = 0,
    label_column: int | None = None,
) -> LabelRows:
    """Read the labels of a table; an empty cell or -1 is an unknown label.

    With a `label_column` all others are ignored; without one, the label is the second of two
    columns, and further columns are further labels.
    """
    first: dict[int | str, tuple[int, str]] = {}
    for line, row in table.rows():
        label = 1 if label_column is None else label_column
        if len(row) <= max(id_column, label):
            table.refuse(
                line,
                f"{len(row)} columns, but the id is in column {id_column + 1} and the label in "
                f"column {label + 1}; leave the label empty if it is unknown",
            )
        if label_column is None and any(row[2:]) and options.multilabel == "refuse":
            table.refuse(line, _several(row[1], row[2]))
        device = id_of(row[id_column], table, line, integers)
        name = row[label]
        if name.casefold() in ("nan", "inf", "-inf"):
            table.refuse(line, f"the label is {shown(name)}; leave it empty if it is unknown")
        if device in first:
            if options.multilabel == "refuse":
                table.refuse(line, f"device {device}: {_several(first[device][1], name)}")
            continue
        first[device] = (line, name)
    return LabelRows(
        ids=tuple(first),
        lines=tuple(line for line, _ in first.values()),
        names=tuple(None if name in UNKNOWN else name for _, name in first.values()),
    )


def _several(one: str, other: str) -> str:
    return (
        f"more than one label ({shown(one)}, {shown(other)}); give each device one, "
        "or keep the first with `multilabel='first'`"
    )


def encode(names: Iterable[str | None]) -> tuple[Ints, tuple[str, ...]]:
    """Return the index of each class, -1 for None, and the sorted names.

    Names that are all integers are sorted as numbers.
    """
    listed = list(names)
    known = {name for name in listed if name is not None}
    numeric = all(INTEGER.fullmatch(name) and len(name) < 20 for name in known)
    classes = tuple(sorted(known, key=int) if numeric else sorted(known))
    number: dict[str | None, int] = {name: index for index, name in enumerate(classes)}
    number[None] = -1
    return np.array([number[name] for name in listed], dtype=np.int64), classes


def declared_classes(names: Any, what: str) -> tuple[str, ...]:
    """The `class_names` that a graph of another library carries, checked; () where it has none."""
    if names is None:
        return ()
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{what}: a list of names is needed; got {shown(names)}")
    if len(set(names)) < len(names):
        raise InputError(f"{what}: a name occurs twice; class names must be distinct")
    return tuple(names)


def encode_array(values: Any, what: str, options: ReadOptions) -> tuple[Ints, tuple[str, ...]]:
    """Encode labels that come as an array: [devices], or [devices, 1]; -1 is unknown.

    A wider array of zeros and ones says several labels per device.
    """
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 2 and array.shape[1] > 1:
        array = _first_label(array, what, options)
    if array.ndim != 1:
        raise InputError(f"{what}: one label per device is needed; got shape {list(array.shape)}")
    if array.dtype.kind == "f":
        wrong = np.flatnonzero(~np.isfinite(array))
        row = int(wrong[0]) if len(wrong) else 0
        value = array[row] if len(array) else array.dtype
        raise InputError(f"{what}: row {row} is {value}; labels are integers, -1 where unknown")
    if array.dtype.kind not in "iubU":
        raise InputError(f"{what}: integers or text are needed; got {array.dtype}")
    return encode(None if name in UNKNOWN else name for name in map(str, array.tolist()))


def _first_label(array: Any, what: str, options: ReadOptions) -> Any:
    if options.multilabel == "refuse":
        raise InputError(
            f"{what}: {array.shape[1]} columns are several labels per device; keep the first with "
            "`multilabel='first'`"
        )
    if array.dtype.kind not in "iubf" or not np.isin(array, (0, 1)).all():
        raise InputError(f"{what}: several labels per device must be columns of zeros and ones")
    return np.where(array.any(axis=1), array.argmax(axis=1), -1)


def aligned(rows: LabelRows, ids: Sequence[Any]) -> tuple[str | None, ...]:
    """Return the label of each of `ids`, None for a device without a row."""
    name = dict(zip(rows.ids, rows.names, strict=True))
    return tuple(name.get(device) for device in ids)
