"""Labels: from the values that a source holds to one class per device, or unknown; and roles.

Every source comes here with one text per device, so that the same values mean the same everywhere:
empty, NaN and -1 are unknown; numbers are whole (1.0 is class 1) unless `label_bins` cuts them into
classes; classes are sorted by name, or by value where all are numbers. Values that can hardly be
classes are refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from lumos.errors import InputError
from lumos.graph.arrays import as_array, refuse_width, shown
from lumos.graph.io import ReadOptions
from lumos.graph.io.text_table import INTEGER, NUMBER
from lumos.typing import Doubles, Flags, Ints

UNKNOWN = ("", "-1")
MAX_WHOLE = 2.0**53
"""Beyond it a float no longer tells neighbouring whole numbers apart."""


@dataclass(frozen=True)
class Labelled:
    """The classes of all devices."""

    labels: Ints
    """[devices]: the index of the class, -1 where it is unknown."""
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """Decisions on the way, one sentence each."""
    values: NDArray[Any] | None = None
    """[classes] the label of each class as the source has it; None: its name."""


@dataclass(frozen=True)
class LabelSource:
    """The source of labels, as errors name it."""

    name: str
    """The column, array or attribute."""
    place: Callable[[int], str]
    """Function from a row to the place of its label."""
    file: str = ""
    """The file that holds it, if any."""
    other: str = ""
    """Remedy: the choice of another column, and those that there are."""
    ids: Sequence[Any] = ()
    """[devices] the ids, to tell whether the labels are the ids again; may be empty."""

    @property
    def what(self) -> str:
        """The column, array or attribute, with its file."""
        return f"{self.file}: {self.name}" if self.file else self.name

    def or_other(self, remedy: str) -> str:
        """Return a remedy, and the choice of another column where there is one."""
        return ", or ".join(filter(None, (remedy, self.other)))


def label_classes(
    values: Sequence[str | None], source: LabelSource, options: ReadOptions
) -> Labelled:
    """Return the classes that `values` say, one text per device; None is unknown.

    Raises:
        InputError: the values are no classes: fractions, negative numbers, or nearly all different.
    """
    names = [
        None if value is None or value == "" or value.casefold() == "nan" else value
        for value in values
    ]
    distinct = {name for name in names if name is not None}
    numbers: dict[str, float] | None = None
    if distinct and all(NUMBER.fullmatch(name) for name in distinct):
        numbers = {name: float(name) for name in distinct}
    if options.label_bins is not None:
        return _binned_labels(names, numbers, source, options.label_bins)
    notes: tuple[str, ...] = ()
    if numbers is None:
        names = [None if name in UNKNOWN else name for name in names]
    else:
        _refuse_no_class(names, numbers, source)
        text = {name: _whole(name, number) for name, number in numbers.items()}
        names = [None if name is None else text[name] for name in names]
        classes = set(names) - {None, "-1"}
        if "-1" in names and classes == {"1"}:
            notes = ("labels: -1 is unknown, so all others are of class 1; call classes 0 and 1",)
        names = [None if name == "-1" else name for name in names]
    doubt = doubt_of(names, source.ids, numeric=numbers is not None)
    if doubt is not None:
        cut = "cut measurements into classes with `label_bins=4`" if doubt.measured else ""
        remedy = source.or_other(cut) or "give devices that belong together the same label"
        raise InputError(f"{source.what}: {doubt.reason}; {remedy}")
    labels, found = encode(names)
    return Labelled(labels, found, notes)


def _whole(name: str, number: float) -> str:
    return name if INTEGER.fullmatch(name) else str(int(number))


def _refuse_no_class(
    names: Sequence[str | None], numbers: dict[str, float], source: LabelSource
) -> None:
    """Refuse fractions, and negative numbers beside -1."""
    fractions = {
        name
        for name, number in numbers.items()
        if not INTEGER.fullmatch(name) and not (number.is_integer() and abs(number) < MAX_WHOLE)
    }
    negative = {name for name, number in numbers.items() if number < 0 and number != -1}
    for row, name in enumerate(names) if fractions or negative else ():
        if name in fractions:
            raise InputError(
                f"{source.place(row)} is {shown(name)[1:-1]}, no class: such numbers are "
                f"measurements; {source.or_other('cut them into classes with `label_bins=4`')}"
            )
        if name in negative and not fractions:
            raise InputError(
                f"{source.place(row)} is {name}; only -1 (unknown) may be negative; "
                f"{source.or_other('number the classes from 0')}"
            )


def _binned_labels(
    names: Sequence[str | None], numbers: dict[str, float] | None, source: LabelSource, bins: int
) -> Labelled:
    if numbers is None:
        row = next((i for i, name in enumerate(names) if name and not NUMBER.fullmatch(name)), None)
        where = f"{source.what} has none" if row is None else f"{source.place(row)} is text"
        remedy = source.or_other("leave it out")
        raise InputError(f"{where}, and `label_bins` needs numbers; {remedy}")
    # -1 is unknown as everywhere, unless the numbers are such that may be negative.
    signed = any(number < 0 and number != -1 for number in numbers.values())
    known = {name: n for name, n in numbers.items() if np.isfinite(n) and (signed or n != -1)}
    rows = [row for row, name in enumerate(names) if name in known]
    if len(set(known.values())) < 2:
        raise InputError(f"{source.what}: all labels are the same number; there is nothing to cut")
    index, classes = binned(np.array([known[names[row] or ""] for row in rows]), bins)
    labels = np.full(len(names), -1, dtype=np.int64)
    labels[rows] = index
    note = (
        f"labels: {source.name} is cut into {len(classes)} classes: {', '.join(classes)}; the "
        "borders were computed from all labels and are public"
    )
    return Labelled(labels, classes, (note,))


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
    """Check and return the `class_names` of a graph of another library; () where it has none."""
    if names is None:
        return ()
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{what}: a list of names is needed; got {shown(names)}")
    if len(set(names)) < len(names):
        raise InputError(f"{what}: a name occurs twice; class names must be distinct")
    return tuple(names)


def indices_of_names(
    names: Sequence[str | None], declared: Sequence[str], what: str
) -> tuple[Ints, tuple[str, ...]]:
    """Return [devices] the index of each name among the `declared` ones, -1 for None; and those."""
    number: dict[str | None, int] = {name: index for index, name in enumerate(declared)}
    number[None] = -1
    for name in names:
        if name not in number:
            raise InputError(f"{what}: the label {shown(name)} is not among them; add it")
    return np.array([number[name] for name in names], dtype=np.int64), tuple(declared)


FEW_DEVICES = 20
"""Up to this number, devices may all be of different classes: a graph to try things out."""
MIN_PER_CLASS = 2
"""With fewer devices per class, on average, nearly every device has a class of its own."""
MANY_CLASSES, MIN_PER_MANY = 100, 5
"""Above this number of classes, each needs that number of devices on average: numbers of days,
prices, ages in days repeat a few times by chance."""


class Doubt(NamedTuple):
    """The reason why labels are no classes."""

    reason: str
    measured: bool
    """True if they may be measurements, which bins would make classes of."""


def doubt_of(names: Sequence[str | None], ids: Sequence[Any], *, numeric: bool) -> Doubt | None:
    """Return why labels that are nearly all different are no classes; None where they may be.

    Args:
        names: [devices] the class of each device, None where it is unknown.
        ids: [devices] the ids, or nothing.
        numeric: whether all of them are numbers.
    """
    known = [name for name in names if name is not None]
    different = len(set(known))
    if not unlikely(different, len(known)):
        return None
    kind = "ids or measurements" if numeric else "names"
    same = sum(name == str(device) for name, device in zip(names, ids, strict=False))
    if 2 * same > len(known):
        kind, numeric = "the ids again", False
    reason = f"{different:,} different labels on {len(known):,} devices are {kind}, no classes"
    return Doubt(reason, numeric)


def unlikely(classes: int, devices: int) -> bool:
    """Return whether there are too many classes for the number of devices."""
    if devices <= FEW_DEVICES:
        return False
    per_class = devices / max(classes, 1)
    return per_class < MIN_PER_CLASS or (classes > MANY_CLASSES and per_class < MIN_PER_MANY)


def binned(values: Doubles, bins: int) -> tuple[Ints, tuple[str, ...]]:
    """Return [values] the class of each value, and the names of the classes: their ranges.

    A class is an interval `low to < high` whose borders are among the values. The border after the
    share k / `bins` of the values is the value whose predecessors are closest to that share, so
    that equal values share a class; borders that coincide are one. At most `bins` different values
    are a class each. The names leave out the smallest and the largest value.

    Args:
        values: at least two different ones, finite.
        bins: the number of classes, at least 2.
    """
    distinct, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(distinct) <= bins:
        return index.astype(np.int64), _texts(distinct)
    below = np.cumsum(counts)[:-1]  # values below distinct[1], distinct[2], …
    shares = np.arange(1, bins) * len(values) / bins
    right = np.searchsorted(below, shares).clip(1, len(below) - 1) if len(below) > 1 else None
    if right is None:
        nearest = np.zeros(len(shares), dtype=np.int64)
    else:
        nearest = np.where(shares - below[right - 1] <= below[right] - shares, right - 1, right)
    borders = distinct[1:][np.unique(nearest)]
    return np.searchsorted(borders, values, side="right").astype(np.int64), _ranges(borders)


def _ranges(borders: Doubles) -> tuple[str, ...]:
    texts = _texts(borders)
    middle = [f"{low} to < {high}" for low, high in pairwise(texts)]
    return (f"< {texts[0]}", *middle, f"≥ {texts[-1]}")


def _texts(values: Doubles) -> tuple[str, ...]:
    """Return short decimal texts, longer ones where short ones would coincide."""
    short = [f"{value:.6g}" for value in values.tolist()]
    whole = [str(int(v)) if v.is_integer() and abs(v) < 2**53 else repr(v) for v in values.tolist()]
    if all(value.is_integer() for value in values.tolist()) or len(set(short)) < len(short):
        return tuple(whole)
    return tuple(short)


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
    found = label_classes(texts_of(array, where), source, options)
    return found if options.label_bins else in_type_of(array, found)


def in_type_of(labels: np.ndarray[Any, Any], found: Labelled) -> Labelled:
    """Return the same classes, with values in the type of the labels that they were found in.

    Args:
        labels: [devices] numbers, truth values, text or objects.
        found: with a name for each class: the text of its label.
    """
    if labels.dtype.kind == "O":
        known = labels[found.labels >= 0].tolist()
        truths = [isinstance(value, bool | np.bool_) for value in known]
        if len(set(truths)) > 1 or not all(map(_is_number_or_truth, known)):
            return found
        labels = np.array(known)
    if labels.dtype.kind not in "biuf":
        return found
    if labels.dtype.kind == "b":
        values = np.array([name == str(True) for name in found.classes], labels.dtype)
    else:
        whole = labels.dtype.kind in "iu"
        values = np.array([(int if whole else float)(name) for name in found.classes], labels.dtype)
    return replace(found, values=values)


def given_labels(labels: Any, classes: Sequence[str], bins: int | None, ids: Any) -> Labelled:
    """Return the classes of labels that a caller hands over.

    Whole numbers are indices of classes, so that a class that nobody has keeps its place; with
    declared `classes` nobody doubts them.
    """
    array = as_labels(labels)
    kind = array.dtype
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
        if classes:
            return Labelled(array, tuple(classes))
        if not unlikely(len(np.unique(known)), len(known)):
            count = 1 + int(known.max()) if len(known) else 0
            refuse_width(count, len(array), "labels: number of classes")
            values = np.arange(count)
            return Labelled(array, (), values=values.astype(array.dtype if kind == "O" else kind))
    elif classes and array.dtype.kind in "UO":
        names = texts_of(array, "labels")
        listed = [None if n in (None, *UNKNOWN) and n not in classes else n for n in names]
        return Labelled(*indices_of_names(listed, classes, "classes"))
    return encode_array(array, "labels", options, ids=ids)


def _is_number(value: Any) -> bool:
    """Return whether an object is a number, or stands for a missing one."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_number_or_truth(value: Any) -> bool:
    return isinstance(value, int | float | np.number | np.bool_)


def _is_whole(array: np.ndarray[Any, Any]) -> bool:
    known = array[~np.isnan(array)]
    return bool(np.all((np.abs(known) < MAX_WHOLE) & (known == np.floor(known))))


def as_labels(values: Any) -> np.ndarray[Any, Any]:
    """Return labels as an array: a list with None, or of text and NaN, as objects."""
    if isinstance(values, list | tuple) and any(isinstance(value, str) for value in values):
        # NumPy would make text of all of them, and of None and NaN too.
        made = np.empty(len(values), dtype=object)
        made[:] = values
        return made
    try:
        return as_array(values)
    except ValueError:
        raise InputError(
            "labels: one label per device is needed; the rows differ in length"
        ) from None


def texts_of(array: np.ndarray[Any, Any], what: str) -> list[str | None]:
    """Return [devices] each label as text; None where it is NaN or missing."""
    if array.dtype.kind == "f":
        wrong = np.flatnonzero(np.isinf(array))
        if len(wrong):
            raise InputError(
                f"{what}: row {wrong[0]} is {array[wrong[0]]}; labels are classes, NaN or -1 where "
                "unknown"
            )
        return [_float_text(value) for value in array.tolist()]
    if array.dtype.kind in "iubU":
        return [str(value).strip() for value in array.tolist()]
    if array.dtype.kind == "O":
        return [_object_text(value, row, what) for row, value in enumerate(array.tolist())]
    raise InputError(f"{what}: numbers or text are needed; got {array.dtype}")


def _float_text(value: float) -> str | None:
    if value != value:
        return None
    return str(int(value)) if value.is_integer() and abs(value) < MAX_WHOLE else repr(value)


def _object_text(value: Any, row: int, what: str) -> str | None:
    if value is None or (isinstance(value, float) and value != value):
        return None
    # What stands for missing values elsewhere (pandas.NA, NaT) is not even equal to itself.
    if isinstance(value, float) and np.isfinite(value):
        return _float_text(value)
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


MASKS = ("train_mask", "val_mask", "test_mask")
"""Masks as PyG names them."""
SPELLINGS = (
    ("train_mask", "train_idx", "idx_train", "train_indices"),
    ("val_mask", "valid_mask", "val_idx", "valid_idx", "idx_val", "val_indices"),
    ("test_mask", "test_idx", "idx_test", "test_indices"),
)
"""Names of masks, or of lists of rows, for training, validation and test."""
MASK_NAMES = frozenset(name for names in SPELLINGS for name in names)


class Role(IntEnum):
    """The part of a device in `classify`."""

    NOBODY = -1
    """It has no label: it takes part, and is only predicted."""
    TRAIN = 0
    VALIDATION = 1
    TEST = 2


def checked_roles(roles: Any, devices: int) -> Ints:
    """Check that `roles` is [devices] of 0 (trains), 1 (validates), 2 (tests) or -1 (none)."""
    array = np.asarray(roles)
    if array.shape != (devices,):
        shape = list(array.shape)
        raise InputError(f"roles: one role per device is needed, [{devices}]; got {shape}")
    if array.dtype.kind not in "iu" or (len(array) and not -1 <= array.min() <= array.max() <= 2):
        raise InputError("roles: 0 trains, 1 validates, 2 tests, -1 none of them; got other values")
    return array.astype(np.int64, copy=False)


def roles_of_masks(train: Any, validation: Any, test: Any, labels: Any, what: str) -> Ints:
    """Return [devices] roles from masks [devices] of truth values, or of zeros and ones.

    A device in no mask has no role. Without a validation mask, or with an empty one, no device
    validates.

    Args:
        labels: [devices] the index of each class, -1 where it is unknown.
        what: the source in errors, e.g. the file.

    Raises:
        InputError: the masks overlap, are no masks of these devices, hold a device without a label,
            or there is nobody to train or to test.
    """
    return _roles(list(zip(MASKS, (train, validation, test), strict=True)), labels, what)


def roles_in(
    source: Mapping[str, Any], labels: Any, options: ReadOptions, what: str = ""
) -> tuple[Ints | None, tuple[str, ...]]:
    """Return the roles that masks, or lists of rows, in `source` say, and notes; None without any.

    Args:
        source: arrays by name, e.g. those of an npz; None stands for an absent one.
        labels: [devices] the index of each class, or None.
    """
    present = [name for name in source if name in MASK_NAMES and source[name] is not None]
    if not present:
        return None, ()
    listed = ", ".join(present)
    if options.masks == "ignore":
        return None, (f"{listed}: ignored, as asked",)
    if labels is None:
        return None, (f"{listed}: not used, because no device has a label",)
    named: list[tuple[str, Any]] = []
    try:
        for spellings in SPELLINGS:
            name = next((name for name in spellings if name in present), spellings[0])
            rows = source.get(name)
            if rows is not None and not name.endswith("_mask"):
                rows = _mask_of_rows(rows, len(labels), name, what)
            named.append((name, rows))
        return _roles(named, labels, what), ()
    except InputError as error:
        raise InputError(f"{error}, or ignore this split with `masks='ignore'`") from None


def _roles(named: list[tuple[str, Any]], labels: Any, what: str) -> Ints:
    """Return [devices] roles from the masks for training, validation and test, with their names."""
    labels = np.asarray(labels)
    there = ", ".join(name for name, mask in named if mask is not None)
    for name, mask in (named[Role.TRAIN], named[Role.TEST]):
        if mask is None:
            _refuse_mask(what, f"{there or 'no mask'} without {name}; give both")
    roles = np.full(len(labels), Role.NOBODY, np.int64)
    for role, (name, mask) in zip((Role.TRAIN, Role.VALIDATION, Role.TEST), named, strict=True):
        if mask is None:
            continue
        rows = np.flatnonzero(_checked_mask(mask, len(labels), name, what))
        if not len(rows) and role != Role.VALIDATION:
            _refuse_mask(what, f"{name} holds no device; choose some")
        taken = rows[roles[rows] >= 0]
        if len(taken):
            other = named[roles[taken[0]]][0]
            _refuse_mask(
                what,
                f"{len(taken):,} devices are in {other} and in {name}, the first is row "
                f"{taken[0]}; put each into one",
            )
        unknown = rows[labels[rows] < 0]
        if len(unknown):
            _refuse_mask(
                what,
                f"{len(unknown):,} devices of {name} have no label, the first is row "
                f"{unknown[0]}; take them out of it",
            )
        roles[rows] = role
    return roles


def masks_of(roles: Ints) -> dict[str, Flags]:
    """Return the masks that say the same as `roles`, each [devices]."""
    return {name: np.asarray(roles == role) for role, name in enumerate(MASKS)}


def _checked_mask(mask: Any, devices: int, name: str, what: str) -> Flags:
    array = np.asarray(mask)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 2 and array.shape[0] == devices:
        _refuse_mask(
            what,
            f"{name} has {array.shape[1]} columns, which are several splits; choose one: "
            "`split={'train': data.train_mask[:, 0], 'val': …, 'test': …}`",
        )
    if array.shape != (devices,):
        _refuse_mask(
            what, f"{name} has the shape {list(array.shape)}; one value per device, [{devices}]"
        )
    if array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all():
        _refuse_mask(what, f"{name} holds {array.dtype} values; use truth values or zeros and ones")
    return array.astype(bool)


def _mask_of_rows(rows: Any, devices: int, name: str, what: str) -> Flags:
    """Return [devices] which devices a list of rows names."""
    array = np.asarray(rows)
    mask = np.zeros(devices, bool)
    if array.dtype == bool and array.shape == (devices,):
        return array
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        _refuse_mask(what, f"{name} is no list of rows; use whole numbers")
    if array.size and not 0 <= array.min() <= array.max() < devices:
        _refuse_mask(what, f"{name} holds rows beyond 0 … {devices - 1}; correct them")
    mask[array.astype(np.int64)] = True
    if mask.sum() < array.size:
        _refuse_mask(what, f"{name} holds a row twice; name each once")
    return mask


def _refuse_mask(what: str, problem: str) -> NoReturn:
    raise InputError(f"{what + ': ' if what else ''}{problem}")
