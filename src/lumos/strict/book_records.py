"""The records of a book: their arrays, draws of labels, and charges of runs.

**Arrays.** Each record declares types, sizes and permitted values of its arrays. A book is read
only if every array is what its record declares. So an amount below 0, an array that was shortened,
or one of another type is refused, and never counted as a budget that is left.

**Labels.** A record has all draws of one form and one list of classes. A device is charged for the
largest ε at which it has drawn its label, not for the sum over levels: see `lumos.ldp.labels`.
After a change of its label earlier draws no longer count: the next ones are independent of them,
and are charged in full.

**Charges.** A charge is a list of amounts that add up from run to run: ε of propagated labels,
score queries of calibration, and μ² of sums for each question of a table of guarantees (Gaussian
mechanisms compose by μ²).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.ldp.labels import LabelForm
from lumos.typing import Arrays, Doubles, Flags, Ints

ENTRIES, PACKED = "entries", "packed entries"
"""Sizes that follow from the number of entries: one for each, or one bit for each."""
ROUNDING = 1e-9
"""Largest relative difference of two rounded sums of the same amounts."""

Sizes = dict[str, int]


class Column(NamedTuple):
    """One array of a record."""

    kind: str
    """The numpy type: f8 numbers, i8 whole numbers, u1 bytes, u8 marks; U text of any length."""
    shape: tuple[str | int, ...]
    """Sizes: a number, `ENTRIES`, `PACKED`, or a name that all arrays of the record share."""
    fill: float = 0
    """Value of entries that are added later."""
    least: float = 0
    """Smallest value."""
    below: str = ""
    """The size that whole numbers stay below."""

    def check(self, array: npt.NDArray[Any], sizes: Sizes) -> str:
        """Return a problem with an array, empty if there is none; add new names to `sizes`."""
        text = array.dtype.kind == "U"
        if not (text if self.kind == "U" else array.dtype == np.dtype(self.kind)):
            return "has another type"
        if array.ndim != len(self.shape):
            return "has another shape"
        for wanted, found in zip(self.shape, array.shape, strict=True):
            size = wanted if isinstance(wanted, int) else sizes.setdefault(wanted, found)
            if size != found:
                return "has another length"
        if text or not array.size:
            return ""
        if not np.isfinite(array).all():
            return "has a number that is not finite"
        if array.min() < self.least:
            return f"has a number below {self.least:g}"
        if self.below and array.max() >= sizes.get(self.below, 0):
            return "names something that is not there"
        return ""

    def padded(self, array: npt.NDArray[Any], sizes: Sizes) -> npt.NDArray[Any]:
        """Return the array with room for all entries."""
        wider = [
            (0, sizes[wanted] - found if wanted in (ENTRIES, PACKED) else 0)
            for wanted, found in zip(self.shape, array.shape, strict=True)
        ]
        if not any(more for _, more in wider):
            return array
        return np.pad(array, wider, constant_values=self.fill)


def entry_sizes(entries: int) -> Sizes:
    """Return the sizes that follow from the number of entries."""
    return {ENTRIES: entries, PACKED: -(-entries // 8)}


class RecordForm(NamedTuple):
    """The arrays of one kind of record, of which a book may have several by name."""

    columns: Mapping[str, Column]
    named: bool = True
    """True if records of this kind have names: `kind/name/array`, not `kind/array`."""

    def check(self, arrays: Mapping[str, npt.NDArray[Any]], sizes: Sizes) -> str:
        """Return a problem with the arrays of one record; empty if there is none."""
        for name in self.columns.keys() ^ arrays.keys():
            return f"{name!r} is {'unknown' if name in arrays else 'missing'}"
        own = dict(sizes)
        for name, column in self.columns.items():
            if problem := column.check(arrays[name], own):
                return f"{name!r} {problem}"
        return ""


def records_in(book: Arrays, kind: str, form: RecordForm) -> dict[str, Arrays]:
    """Return the arrays of all records of a kind, by prefix and by their names in the record."""
    found: dict[str, Arrays] = {}
    for place, array in book.items():
        if place.startswith(f"{kind}/"):
            prefix, _, name = place.rpartition("/")
            if form.named or prefix == kind:
                found.setdefault(prefix, {})[name] = array
    return found


LABELS_FORM = RecordForm(
    {
        "label": Column("i8", (ENTRIES,), -1, -1),
        "changes": Column("i8", (ENTRIES,)),
        "levels": Column("f8", ("levels",)),
        "values": Column("i8", ("levels", ENTRIES), -1, -1),
        "paid": Column("f8", ("levels", ENTRIES)),
        "payer": Column("i8", ("levels", ENTRIES), -1, -1, "runs"),
    }
)
"""As a book has it."""


def unpaid(record: Arrays) -> bool:
    """Return whether the charges of draws do not add up to their largest ε."""
    drawn = np.where(record["values"] >= 0, record["levels"][:, None], 0.0)
    paid, largest = record["paid"].sum(axis=0), drawn.max(axis=0, initial=0.0)
    return bool((np.abs(paid - largest) > ROUNDING * largest).any())


@dataclass(kw_only=True, eq=False)
class LabelRecord:
    """The record of all entries of a book; rows of the two-dimensional arrays are levels."""

    name: str
    """Identifies the form and the list of classes."""
    label: Ints = field(repr=False)
    """[entries] the label that was drawn, -1 for none: kept to notice a change."""
    changes: Ints = field(repr=False)
    """[entries] how often it has changed."""
    levels: Doubles
    """[levels] ε."""
    values: Ints = field(repr=False)
    """[levels, entries] the draws, -1 for none."""
    paid: Doubles = field(repr=False)
    """[levels, entries] ε charged for a draw: the increase of the largest ε."""
    payer: Ints = field(repr=False)
    """[levels, entries] number of the run that was charged, -1 for none."""

    @classmethod
    def read(cls, book: Arrays, name: str, entries: int) -> "LabelRecord":
        """Read a record from the arrays of a book; an empty one if it has none of this name."""
        names = {array: f"labels/{name}/{array}" for array in LABELS_FORM.columns}
        if names["label"] in book:
            return cls(name=name, **{array: book[place] for array, place in names.items()})
        return cls(
            name=name,
            label=np.full(entries, -1),
            changes=np.zeros(entries, np.int64),
            levels=np.empty(0),
            values=np.empty((0, entries), np.int64),
            paid=np.empty((0, entries)),
            payer=np.empty((0, entries), np.int64),
        )

    def arrays(self) -> Arrays:
        """Return the arrays of a book."""
        return {
            f"labels/{self.name}/{array}": getattr(self, array) for array in LABELS_FORM.columns
        }

    def problem(self, form: LabelForm) -> str:
        """Return a problem with the values of the record; empty if there is none."""
        if self.label.max(initial=-1) >= form.size:
            return "a label is of no class"
        if self.values.max(initial=-1) >= form.alphabet:
            return "a draw is no value of a label"
        return ""

    def see(self, entries: Ints, labels: Ints) -> None:
        """Record the labels of these entries; drop draws of a label that has changed."""
        before = self.label[entries]
        changed = entries[(before >= 0) & (before != labels)]
        self.changes[changed] += 1
        self.values[:, changed] = -1
        self.paid[:, changed] = 0
        self.payer[:, changed] = -1
        self.label[entries] = labels

    def earlier(self, entries: Ints, labels: Ints) -> Ints:
        """Return [entries] the number of labels before this one."""
        before = self.label[entries]
        count: Ints = self.changes[entries] + ((before >= 0) & (before != labels))
        return count

    def largest(self, entries: Ints) -> Doubles:
        """Return [entries] the largest ε of a draw; 0 for none."""
        drawn = np.where(self.values[:, entries] >= 0, self.levels[:, None], 0.0)
        largest: Doubles = drawn.max(axis=0, initial=0.0)
        return largest

    def draws(self, entries: Ints) -> dict[float, Ints]:
        """Return copies of the draws of these entries, by ε."""
        rows = zip(self.levels.tolist(), self.values, strict=True)
        return {level: values[entries] for level, values in rows}

    def keep(self, entries: Ints, draws: dict[float, Ints]) -> None:
        """Store draws by ε; those that were stored before are unchanged."""
        everyone = len(self.label)
        for level, values in draws.items():
            if level not in self.levels:
                self.levels = np.append(self.levels, level)
                self.values = np.vstack([self.values, np.full(everyone, -1)])
                self.paid = np.vstack([self.paid, np.zeros(everyone)])
                self.payer = np.vstack([self.payer, np.full(everyone, -1)])
            self.values[self._row(level), entries] = values

    def charge(self, entries: Ints, level: float, epsilon: Doubles, payer: int) -> None:
        """Record [entries] ε that a run paid for draws at this level; 0 is no payment."""
        charged = epsilon > 0
        row = self._row(level)
        self.paid[row, entries[charged]] = epsilon[charged]
        self.payer[row, entries[charged]] = payer

    def paid_by(self, entries: Ints, payer: int) -> Doubles:
        """Return [entries] ε that one run was charged."""
        mine: Flags = self.payer[:, entries] == payer
        paid: Doubles = np.where(mine, self.paid[:, entries], 0.0).sum(axis=0)
        return paid

    def _row(self, level: float) -> int:
        return int(np.flatnonzero(self.levels == level)[0])


def class_digest(classes: Sequence[str] | None) -> str:
    """Return a short digest of the names of classes in their order; empty without names."""
    if classes is None:
        return ""
    return blake2b(json.dumps(list(classes)).encode(), digest_size=8).hexdigest()


CHARGES_FORM = RecordForm(
    {
        "spent": Column("f8", ("amounts", ENTRIES)),
        "runs": Column("U", ("charges",)),
        "devices": Column("u1", ("charges", PACKED)),
    }
)
"""As a book has it."""


@dataclass(frozen=True, kw_only=True)
class Charge:
    """Amounts that one run costs a device, and their limits over all runs."""

    name: str
    """The account: each is counted apart."""
    amounts: tuple[float, ...]
    limits: tuple[float, ...]
    """Limit of each amount, over all runs."""
    reason: str = ""
    """First half of the message of a refusal: what would exceed which limit …"""
    advice: str = ""
    """… and what to do about it."""


@dataclass(kw_only=True, eq=False)
class RunCharges:
    """One account: total amounts, and the entries that each run charged."""

    name: str
    spent: Doubles = field(repr=False)
    """[amounts, entries] totals of all runs."""
    runs: npt.NDArray[np.str_]
    """[charges] run and amounts of each charge."""
    charged: Flags = field(repr=False)
    """[charges, entries] whether the entry was charged."""

    @classmethod
    def read(cls, book: Arrays, name: str, entries: int, amounts: int = 1) -> "RunCharges":
        """Read an account from the arrays of a book; an empty one if it has none of this name."""
        packed = book.get(f"charged/{name}/devices", np.empty((0, -(-entries // 8)), np.uint8))
        return cls(
            name=name,
            spent=book.get(f"charged/{name}/spent", np.zeros((amounts, entries))),
            runs=book.get(f"charged/{name}/runs", np.empty(0, "<U1")),
            charged=np.unpackbits(packed, axis=1, count=entries).astype(np.bool_),
        )

    def arrays(self) -> Arrays:
        """Return the arrays of a book."""
        return {
            f"charged/{self.name}/spent": self.spent,
            f"charged/{self.name}/runs": self.runs,
            f"charged/{self.name}/devices": np.packbits(self.charged, axis=1),
        }

    def uncharged(self, entries: Ints, run: str, charge: Charge) -> Ints:
        """Return the entries that this run has not charged with these amounts."""
        earlier = self.charged[self.runs == _key(run, charge)].any(axis=0)
        new: Ints = entries[~earlier[entries]]
        return new

    def add(self, entries: Ints, run: str, charge: Charge) -> None:
        """Charge these entries."""
        key = _key(run, charge)
        if not (self.runs == key).any():
            self.runs = np.append(self.runs, key)
            self.charged = np.vstack([self.charged, np.zeros(self.spent.shape[1], np.bool_)])
        self.charged[np.flatnonzero(self.runs == key)[0], entries] = True
        self.spent[:, entries] += np.array(charge.amounts)[:, None]


def miscounted(record: Arrays, amounts: int) -> bool:
    """Return whether the totals of an account do not match its charges.

    Args:
        record: the arrays of an account, as `CHARGES_FORM` has them.
        amounts: number of amounts of a charge.
    """
    try:
        each = [[float(amount) for amount in key.split()[1:]] for key in record["runs"].tolist()]
    except ValueError:
        return True
    if len(record["spent"]) != amounts or any(len(of) != amounts for of in each):
        return True
    entries = record["spent"].shape[1]
    charged = np.unpackbits(record["devices"], axis=1, count=entries).astype(np.float64)
    expected = np.array(each).reshape(len(each), amounts).T @ charged
    return not np.allclose(record["spent"], expected, rtol=ROUNDING, atol=0)


def _key(run: str, charge: Charge) -> str:
    return f"{run} {' '.join(repr(float(amount)) for amount in charge.amounts)}"
