"""What devices have released in their lives: kept symbols, and what they cost.

A symbol is for life: asked again for the same thing, a device says the same again, and pays
nothing. A new kind of release pays its ε, or is refused when the lifetime budget would be exceeded.
On a real device the book is a file of its own; a simulation keeps those of all its devices in one.
"""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lumos.errors import BudgetExceeded, InputError
from lumos.training.folder import read_arrays, write_arrays

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]


class Book:
    """The books of all devices of a simulated federation.

    Args:
        path: the file; it need not exist yet.
        owner: what tells this federation from others.
        devices: number of devices.
        lifetime: most ε that any device may ever spend.
    """

    def __init__(self, path: Path, owner: str, devices: int, lifetime: float) -> None:
        self._path = path
        self._lifetime = lifetime
        self._arrays = {"spent": np.zeros(devices), "owner": np.array(owner)}
        if path.exists():
            found = read_arrays(path)
            if str(found.get("owner")) != owner or len(found.get("spent", ())) != devices:
                raise InputError(f"{path}: this book belongs to another graph")
            self._arrays = found

    def __repr__(self) -> str:
        return f"Book({self._path})"

    def kept(self, kind: str, devices: Ints) -> Bits | None:
        """[devices, bytes] what these devices said when they were asked for this kind before."""
        said = self._arrays.get(f"said/{kind}")
        if said is None or not self._arrays[f"has/{kind}"][devices].all():
            return None
        kept: Bits = said[devices]
        return kept

    def pay(self, kind: str, devices: Ints, epsilon: float, said: Bits) -> None:
        """Enter a new release.

        Raises:
            BudgetExceeded: a device would spend more than in a lifetime.
        """
        spent = self._arrays["spent"]
        if (spent[devices] + epsilon > self._lifetime * (1 + 1e-12)).any():
            raise BudgetExceeded(
                f"a release of ε = {epsilon:g} would exceed the lifetime budget of "
                f"{self._lifetime:g} of {int((spent[devices] + epsilon > self._lifetime).sum())} "
                f"devices ({self._path}); reuse an earlier kind of release, or raise "
                "--lifetime-epsilon"
            )
        spent[devices] += epsilon
        total = len(spent)
        all_said = self._arrays.setdefault(
            f"said/{kind}", np.zeros((total, said.shape[1]), np.uint8)
        )
        all_said[devices] = said
        self._arrays.setdefault(f"has/{kind}", np.zeros(total, np.bool_))[devices] = True
        write_arrays(self._path, self._arrays)


def kind_of(task: str, mechanism: str, size: int, epsilon: float) -> str:
    """The name of a kind of release."""
    return json.dumps([task, mechanism, size, epsilon])
