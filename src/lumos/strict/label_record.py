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

from lumos.typing import Arrays, Doubles, Flags, Ints


@dataclass(kw_only=True, eq=False)
class LabelRecord:
    """The record of all devices; rows of the two-dimensional arrays are levels."""

    name: str
    """Tells the form and the list of classes from others."""
    label: Ints = field(repr=False)
    """[devices] the label that was drawn, -1 for none: kept to notice a change."""
    changes: Ints = field(repr=False)
    """[devices] how often it has changed."""
    levels: Doubles
    """[levels] ε."""
    values: Ints = field(repr=False)
    """[levels, devices] the draws, -1 for none."""
    paid: Doubles = field(repr=False)
    """[levels, devices] ε charged for a draw: the increase of the largest ε."""
    payer: Ints = field(repr=False)
    """[levels, devices] number of the run that was charged, -1 for none."""

    _ARRAYS = ("label", "changes", "levels", "values", "paid", "payer")

    @classmethod
    def read(cls, book: Arrays, name: str, devices: int) -> "LabelRecord":
        """From the arrays of a book; an empty one if there is none of this name."""
        stored = {array: book.get(f"labels/{name}/{array}") for array in cls._ARRAYS}
        found = {array: values for array, values in stored.items() if values is not None}
        empty: Arrays = {
            "label": np.full(devices, -1),
            "changes": np.zeros(devices, np.int64),
            "levels": np.empty(0),
            "values": np.empty((0, devices), np.int64),
            "paid": np.empty((0, devices)),
            "payer": np.empty((0, devices), np.int64),
        }
        return cls(name=name, **(empty | found))

    def arrays(self) -> Arrays:
        """As a book keeps them."""
        return {f"labels/{self.name}/{array}": getattr(self, array) for array in self._ARRAYS}

    def see(self, devices: Ints, labels: Ints) -> None:
        """Note the labels of these devices; draws of a label that has changed are dropped."""
        before = self.label[devices]
        changed = devices[(before >= 0) & (before != labels)]
        self.changes[changed] += 1
        self.values[:, changed] = -1
        self.paid[:, changed] = 0
        self.payer[:, changed] = -1
        self.label[devices] = labels

    def largest(self, devices: Ints) -> Doubles:
        """[devices] largest ε of a draw; 0 for none."""
        drawn = np.where(self.values[:, devices] >= 0, self.levels[:, None], 0.0)
        largest: Doubles = drawn.max(axis=0, initial=0.0)
        return largest

    def draws(self, devices: Ints) -> dict[float, Ints]:
        """Draws of these devices by ε, copied."""
        rows = zip(self.levels.tolist(), self.values, strict=True)
        return {level: values[devices] for level, values in rows}

    def keep(self, devices: Ints, draws: dict[float, Ints]) -> None:
        """Store draws by ε; those that were stored before are the same."""
        everyone = len(self.label)
        for level, values in draws.items():
            if level not in self.levels:
                self.levels = np.append(self.levels, level)
                self.values = np.vstack([self.values, np.full(everyone, -1)])
                self.paid = np.vstack([self.paid, np.zeros(everyone)])
                self.payer = np.vstack([self.payer, np.full(everyone, -1)])
            self.values[self._row(level), devices] = values

    def charge(self, devices: Ints, level: float, epsilon: Doubles, payer: int) -> None:
        """Note who paid [devices] ε for a draw at this level; 0 is no payment."""
        charged = epsilon > 0
        row = self._row(level)
        self.paid[row, devices[charged]] = epsilon[charged]
        self.payer[row, devices[charged]] = payer

    def paid_by(self, devices: Ints, payer: int) -> Doubles:
        """[devices] ε that one run was charged."""
        mine: Flags = self.payer[:, devices] == payer
        paid: Doubles = np.where(mine, self.paid[:, devices], 0.0).sum(axis=0)
        return paid

    def _row(self, level: float) -> int:
        return int(np.flatnonzero(self.levels == level)[0])


def class_digest(classes: Sequence[str] | None) -> str:
    """A short digest of the names of classes, in their order; empty without names."""
    if classes is None:
        return ""
    return blake2b(json.dumps(list(classes)).encode(), digest_size=8).hexdigest()
