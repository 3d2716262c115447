"""Labels that come as an array or a list: numbers, truth values or text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumos.errors import InputError
from lumos.graph.ids import shown
from lumos.graph.label_doubts import unlikely
from lumos.graph.labels import (
    LARGEST_WHOLE,
    UNKNOWN,
    Labelled,
    LabelSource,
    indices_of_names,
    label_classes,
)
from lumos.graph.options import ReadOptions


def encode_array(
    values: Any,
    what: str,
    options: ReadOptions,
    *,
    file: str = "",
    other: str = "",
    ids: Any = None,
) -> Labelled:
    """Encode labels that come as an array: [devices], or [devices, 1].

    A wider array of zeros and ones says several labels per device; of another one,
    `label_column` chooses a column.

    Args:
        what: the name of the array.
        file: the file that holds it, if any.
        other: how another array is chosen; see `LabelSource`.
        ids: [devices] the ids of the devices, where they are known.
    """
    array = as_labels(values)
    where = f"{file}: {what}" if file else what
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 2 and array.shape[1] > 1:
        array = _one_column(array, where, options)
    if array.ndim != 1:
        raise InputError(f"{where}: one label per device is needed; got shape {list(array.shape)}")
    source = LabelSource(
        name=what,
        file=file,
        place=lambda row: f"{where}: row {row}",
        other=other,
        ids=range(len(array)) if ids is None else np.asarray(ids).tolist(),
    )
    return label_classes(texts_of(array, where), source, options)


def given_labels(labels: Any, classes: Sequence[str], bins: int | None, ids: Any) -> Labelled:
    """The classes of labels that a caller hands over.

    Whole numbers are indices of classes, so that a class that nobody has keeps its place; with
    declared `classes` nobody doubts them.
    """
    array = as_labels(labels)
    options = ReadOptions(label_bins=bins)
    if array.ndim != 1:
        return Labelled(array, tuple(classes))  # the graph refuses it
    if bins is not None:
        return encode_array(array, "labels", options, ids=ids)
    if array.dtype.kind == "O" and all(map(_is_number, array.tolist())):
        array = np.array([np.nan if text is None else float(text) for text in texts_of(array, "")])
    if array.dtype.kind == "f" and _is_whole(array):
        array = np.where(np.isnan(array), -1, array).astype(np.int64)
    if array.dtype.kind in "iub":
        known = array[array >= 0]
        if classes or not unlikely(len(np.unique(known)), len(known)):
            return Labelled(array, tuple(classes))
    elif classes and array.dtype.kind in "UO":
        names = texts_of(array, "labels")
        listed = [None if n in (None, *UNKNOWN) and n not in classes else n for n in names]
        return Labelled(*indices_of_names(listed, classes, "classes"))
    return encode_array(array, "labels", options, ids=ids)


def _is_number(value: Any) -> bool:
    """Whether an object is a number, or stands for a missing one."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_whole(array: np.ndarray[Any, Any]) -> bool:
    known = array[~np.isnan(array)]
    return bool(np.all((np.abs(known) < LARGEST_WHOLE) & (known == np.floor(known))))


def as_labels(values: Any) -> np.ndarray[Any, Any]:
    """Labels as an array: a list with None, or of text and NaN, as objects."""
    if isinstance(values, list | tuple) and any(isinstance(value, str) for value in values):
        # NumPy would make text of all of them, and of None and NaN too.
        made = np.empty(len(values), dtype=object)
        made[:] = values
        return made
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    try:
        return np.asarray(values)
    except ValueError:
        raise InputError(
            "labels: one label per device is needed; the rows differ in length"
        ) from None


def texts_of(array: np.ndarray[Any, Any], what: str) -> list[str | None]:
    """[devices] each label as text; None where it is NaN or missing."""
    if array.dtype.kind == "f":
        wrong = np.flatnonzero(np.isinf(array))
        if len(wrong):
            raise InputError(
                f"{what}: row {wrong[0]} is {array[wrong[0]]}; labels are classes, NaN or -1 where "
                "unknown"
            )
        return [_number(value) for value in array.tolist()]
    if array.dtype.kind in "iubU":
        return [str(value).strip() for value in array.tolist()]
    if array.dtype.kind == "O":
        return [_object(value, row, what) for row, value in enumerate(array.tolist())]
    raise InputError(f"{what}: numbers or text are needed; got {array.dtype}")


def _number(value: float) -> str | None:
    if value != value:
        return None
    return str(int(value)) if value.is_integer() and abs(value) < LARGEST_WHOLE else repr(value)


def _object(value: Any, row: int, what: str) -> str | None:
    if value is None or (isinstance(value, float) and value != value):
        return None
    # What stands for missing values elsewhere (pandas.NA, NaT) is not even equal to itself.
    if isinstance(value, float) and np.isfinite(value):
        return _number(value)
    if isinstance(value, str | int | np.integer | np.bool_):
        return str(value).strip()
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    raise InputError(f"{what}: row {row} is {shown(value)}; numbers or text are needed")


def _one_column(array: Any, what: str, options: ReadOptions) -> Any:
    column = options.label_column
    if column is not None and column.isdecimal() and int(column) < array.shape[1]:
        return array[:, int(column)]
    if options.multilabel == "refuse":
        raise InputError(
            f"{what}: {array.shape[1]} columns are several labels per device; keep the first with "
            "`multilabel='first'`, or one column with `label_column=0`"
        )
    if array.dtype.kind not in "iubf" or not np.isin(array, (0, 1)).all():
        raise InputError(f"{what}: several labels per device must be columns of zeros and ones")
    return np.where(array.any(axis=1), array.argmax(axis=1), -1)
