"""What is new in every run and therefore charged in every run, as the release book keeps it."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lumos.typing import Arrays, Doubles, Flags, Ints


@dataclass(kw_only=True, eq=False)
class RunCharges:
    """The account of one name: who was charged, by which run, and how much in all."""

    name: str
    spent: Doubles = field(repr=False)
    """[devices] ε of all runs."""
    runs: npt.NDArray[np.str_]
    """[charges] ids of run and ε."""
    charged: Flags = field(repr=False)
    """[charges, devices] who was charged."""

    @classmethod
    def read(cls, book: Arrays, name: str, devices: int) -> "RunCharges":
        """From the arrays of a book; an empty account if there is none of this name."""
        packed = book.get(f"charged/{name}/devices", np.empty((0, -(-devices // 8)), np.uint8))
        return cls(
            name=name,
            spent=book.get(f"charged/{name}/spent", np.zeros(devices)),
            runs=book.get(f"charged/{name}/runs", np.empty(0, "<U1")),
            charged=np.unpackbits(packed, axis=1, count=devices).astype(np.bool_),
        )

    def arrays(self) -> Arrays:
        """As a book keeps them."""
        return {
            f"charged/{self.name}/spent": self.spent,
            f"charged/{self.name}/runs": self.runs,
            f"charged/{self.name}/devices": np.packbits(self.charged, axis=1),
        }

    def uncharged(self, devices: Ints, run: str, epsilon: float) -> Ints:
        """Those of the devices that this run has not charged with this ε."""
        earlier = self.charged[self.runs == _charge(run, epsilon)].any(axis=0)
        new: Ints = devices[~earlier[devices]]
        return new

    def add(self, devices: Ints, run: str, epsilon: float) -> None:
        """Charge these devices."""
        charge = _charge(run, epsilon)
        if not (self.runs == charge).any():
            self.runs = np.append(self.runs, charge)
            self.charged = np.vstack([self.charged, np.zeros(len(self.spent), np.bool_)])
        self.charged[np.flatnonzero(self.runs == charge)[0], devices] = True
        self.spent[devices] += epsilon


def _charge(run: str, epsilon: float) -> str:
    return f"{run} {float(epsilon)!r}"
