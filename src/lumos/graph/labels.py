"""Labels: from the values that a source holds to one class per device, or unknown.

Every source comes here with one text per device, so that the same values mean the same everywhere:
empty, NaN and -1 are unknown; numbers are whole (1.0 is class 1) unless `label_bins` cuts them into
classes; classes are sorted by name, or by value where all are numbers. Values that can hardly be
classes are refused (`label_doubts`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lumos.errors import InputError
from lumos.graph.ids import shown
from lumos.graph.label_bins import binned
from lumos.graph.label_doubts import doubt_of
from lumos.graph.options import ReadOptions
from lumos.graph.text_table import INTEGER, NUMBER
from lumos.typing import Ints

UNKNOWN = ("", "-1")
LARGEST_WHOLE = 2.0**53
"""Beyond it a float no longer tells neighbouring whole numbers apart."""


@dataclass(frozen=True)
class Labelled:
    """The classes of all devices."""

    labels: Ints
    """[devices]: the index of the class, -1 where it is unknown."""
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What was decided on the way, one sentence each."""


@dataclass(frozen=True)
class LabelSource:
    """Where labels come from, as errors name it."""

    name: str
    """The column, array or attribute."""
    place: Callable[[int], str]
    """Where the label of a device stands."""
    file: str = ""
    """The file that holds it, if any."""
    other: str = ""
    """How another column is chosen, and which there are."""
    ids: Sequence[Any] = ()
    """[devices] the ids, to tell whether the labels are the ids again; may be empty."""

    @property
    def what(self) -> str:
        """The column, array or attribute, with its file."""
        return f"{self.file}: {self.name}" if self.file else self.name

    def or_other(self, remedy: str) -> str:
        """A remedy, and the choice of another column where there is one."""
        return ", or ".join(filter(None, (remedy, self.other)))


def label_classes(
    values: Sequence[str | None], source: LabelSource, options: ReadOptions
) -> Labelled:
    """The classes that `values` say, one text per device; None is unknown.

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
        return _binned(names, numbers, source, options.label_bins)
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
        if not INTEGER.fullmatch(name) and not (number.is_integer() and abs(number) < LARGEST_WHOLE)
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


def _binned(
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
    """The `class_names` that a graph of another library carries, checked; () where it has none."""
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
    """[devices] the index of each name among the `declared` ones, -1 for None; and those."""
    number: dict[str | None, int] = {name: index for index, name in enumerate(declared)}
    number[None] = -1
    for name in names:
        if name not in number:
            raise InputError(f"{what}: the label {shown(name)} is not among them; add it")
    return np.array([number[name] for name in names], dtype=np.int64), tuple(declared)
