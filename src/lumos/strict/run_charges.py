"""What is new in every run and therefore charged in every run, as the release book keeps it.

A charge is a list of amounts that add up from run to run: ε of opinions, answers of calibration,
and μ² of sums for each question of a table of promises (Gaussian mechanisms compose by μ²).
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lumos.strict.book_columns import ENTRIES, PACKED, ROUNDING, Column, RecordForm
from lumos.typing import Arrays, Doubles, Flags, Ints

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
    """What one run costs a device, and how much all runs together may cost it."""

    name: str
    """The account: each is counted apart."""
    amounts: tuple[float, ...]
    limits: tuple[float, ...]
    """Of each amount, over all runs."""
    words: str = ""
    """Of a refusal: what would exceed which limit …"""
    advice: str = ""
    """… and what to do about it."""


@dataclass(kw_only=True, eq=False)
class RunCharges:
    """The account of one name: who was charged, by which run, and how much in all."""

    name: str
    spent: Doubles = field(repr=False)
    """[amounts, entries] of all runs."""
    runs: npt.NDArray[np.str_]
    """[charges] run and amounts of each."""
    charged: Flags = field(repr=False)
    """[charges, entries] who was charged."""

    @classmethod
    def read(cls, book: Arrays, name: str, entries: int, amounts: int = 1) -> "RunCharges":
        """From the arrays of a book; an empty account if there is none of this name."""
        packed = book.get(f"charged/{name}/devices", np.empty((0, -(-entries // 8)), np.uint8))
        return cls(
            name=name,
            spent=book.get(f"charged/{name}/spent", np.zeros((amounts, entries))),
            runs=book.get(f"charged/{name}/runs", np.empty(0, "<U1")),
            charged=np.unpackbits(packed, axis=1, count=entries).astype(np.bool_),
        )

    def arrays(self) -> Arrays:
        """As a book keeps them."""
        return {
            f"charged/{self.name}/spent": self.spent,
            f"charged/{self.name}/runs": self.runs,
            f"charged/{self.name}/devices": np.packbits(self.charged, axis=1),
        }

    def uncharged(self, entries: Ints, run: str, charge: Charge) -> Ints:
        """Those of the entries that this run has not charged with these amounts."""
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
    """Whether an account has another sum than its charges, or another number of amounts.

    Args:
        record: the arrays of an account, as `CHARGES_FORM` has them.
        amounts: how many a charge of this account has.
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
