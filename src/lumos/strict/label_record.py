"""All draws of labels of one form and one list of classes, as the release book keeps them.

A device is charged for the largest ε at which it has drawn its label, not for the sum over levels:
see `lumos.encode.label_draws`. After a change of its label earlier draws no longer count: the next
ones are independent of them, and are charged in full.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from lumos.encode.label_form import LabelForm
from lumos.strict.book_columns import ENTRIES, ROUNDING, Column, RecordForm
from lumos.typing import Arrays, Doubles, Flags, Ints

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
    """Whether a draw has cost more or less than its ε: all increases together are the largest."""
    drawn = np.where(record["values"] >= 0, record["levels"][:, None], 0.0)
    paid, largest = record["paid"].sum(axis=0), drawn.max(axis=0, initial=0.0)
    return bool((np.abs(paid - largest) > ROUNDING * largest).any())


@dataclass(kw_only=True, eq=False)
class LabelRecord:
    """The record of all entries of a book; rows of the two-dimensional arrays are levels."""

    name: str
    """Tells the form and the list of classes from others."""
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
        """From the arrays of a book; an empty one if there is none of this name."""
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
        """As a book keeps them."""
        return {
            f"labels/{self.name}/{array}": getattr(self, array) for array in LABELS_FORM.columns
        }

    def problem(self, form: LabelForm) -> str:
        """What cannot be true of a record of this form, in a few words; empty if all can be."""
        if self.label.max(initial=-1) >= form.size:
            return "a label is of no class"
        if self.values.max(initial=-1) >= form.alphabet:
            return "a draw is no value of a label"
        return ""

    def see(self, entries: Ints, labels: Ints) -> None:
        """Note the labels of these entries; draws of a label that has changed are dropped."""
        before = self.label[entries]
        changed = entries[(before >= 0) & (before != labels)]
        self.changes[changed] += 1
        self.values[:, changed] = -1
        self.paid[:, changed] = 0
        self.payer[:, changed] = -1
        self.label[entries] = labels

    def earlier(self, entries: Ints, labels: Ints) -> Ints:
        """[entries] how many labels each had before this one, whether or not it was seen yet."""
        before = self.label[entries]
        count: Ints = self.changes[entries] + ((before >= 0) & (before != labels))
        return count

    def largest(self, entries: Ints) -> Doubles:
        """[entries] largest ε of a draw; 0 for none."""
        drawn = np.where(self.values[:, entries] >= 0, self.levels[:, None], 0.0)
        largest: Doubles = drawn.max(axis=0, initial=0.0)
        return largest

    def draws(self, entries: Ints) -> dict[float, Ints]:
        """Draws of these entries by ε, copied."""
        rows = zip(self.levels.tolist(), self.values, strict=True)
        return {level: values[entries] for level, values in rows}

    def keep(self, entries: Ints, draws: dict[float, Ints]) -> None:
        """Store draws by ε; those that were stored before are the same."""
        everyone = len(self.label)
        for level, values in draws.items():
            if level not in self.levels:
                self.levels = np.append(self.levels, level)
                self.values = np.vstack([self.values, np.full(everyone, -1)])
                self.paid = np.vstack([self.paid, np.zeros(everyone)])
                self.payer = np.vstack([self.payer, np.full(everyone, -1)])
            self.values[self._row(level), entries] = values

    def charge(self, entries: Ints, level: float, epsilon: Doubles, payer: int) -> None:
        """Note who paid [entries] ε for a draw at this level; 0 is no payment."""
        charged = epsilon > 0
        row = self._row(level)
        self.paid[row, entries[charged]] = epsilon[charged]
        self.payer[row, entries[charged]] = payer

    def paid_by(self, entries: Ints, payer: int) -> Doubles:
        """[entries] ε that one run was charged."""
        mine: Flags = self.payer[:, entries] == payer
        paid: Doubles = np.where(mine, self.paid[:, entries], 0.0).sum(axis=0)
        return paid

    def _row(self, level: float) -> int:
        return int(np.flatnonzero(self.levels == level)[0])


def class_digest(classes: Sequence[str] | None) -> str:
    """A short digest of the names of classes, in their order; empty without names."""
    if classes is None:
        return ""
    return blake2b(json.dumps(list(classes)).encode(), digest_size=8).hexdigest()
