"""The release book: all releases that devices have ever made, and their cost.

Reusing an earlier release costs no further ε; a new kind of release is charged, or refused where
the lifetime budget would be exceeded. On a real device the book is a file of its own; a simulation
keeps those of all its devices in one file, and a lock serialises runs that share it. Updates are
not in it: their (ε, δ) add up from run to run, as each run's table of promises says.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import numpy as np

from lumos.errors import BudgetExceeded, InputError, UsageError
from lumos.storage import read_arrays, write_arrays
from lumos.typing import Arrays, Bytes, Doubles, Ints


class ReleaseBook:
    """The books of all devices of a simulated federation.

    Args:
        path: the file; it need not exist yet.
        owner: identifies the federation.
        devices: number of devices.
        lifetime: largest total ε of any device.
        run: identifies the run: one that is resumed has already paid for its releases.
    """

    def __init__(self, path: Path, owner: str, devices: int, lifetime: float, run: str) -> None:
        self._path = path
        self._owner = owner
        self._devices = devices
        self._lifetime = lifetime
        self._run = blake2b(run.encode(), digest_size=16).hexdigest()
        self._read()

    def __repr__(self) -> str:
        return f"ReleaseBook({self._path})"

    def settle(
        self, kind: str, devices: Ints, epsilon: float, first: Bytes
    ) -> tuple[Bytes, Doubles]:
        """The releases of these devices of one kind, and the ε that each pays in this run.

        Args:
            first: [devices, bytes] the release of a device that has made none of this kind.

        Raises:
            BudgetExceeded: a device would exceed its lifetime budget.
        """
        with self._locked():
            book = self._read()
            none = np.zeros((self._devices, first.shape[1]), np.uint8)
            kept = book.setdefault(f"said/{kind}", none)
            payer = book.setdefault(f"run/{kind}", np.full(self._devices, "", "<U32"))
            new = devices[payer[devices] == ""]
            spent = book["spent"]
            over = spent[new] + epsilon > self._lifetime * (1 + 1e-12)
            if over.any():
                raise BudgetExceeded(
                    f"a release of ε = {epsilon:g} would exceed the lifetime budget "
                    f"ε = {self._lifetime:g} ({int(over.sum()):,} of {self._devices:,} devices, "
                    f"{self._path}); reuse an earlier kind of release, or raise `lifetime_epsilon`"
                )
            spent[new] += epsilon
            kept[new] = first[payer[devices] == ""]
            payer[new] = self._run
            if len(new):
                write_arrays(self._path, book)
            paid = np.where(payer[devices] == self._run, epsilon, 0.0)
            return kept[devices], paid

    def public(self, kind: str, arrays: Arrays) -> Arrays:
        """The public arrays that kept symbols of a kind refer to: the first that were kept."""
        with self._locked():
            book = self._read()
            names = {name: f"public/{kind}/{name}" for name in arrays}
            if not all(place in book for place in names.values()):
                book |= {names[name]: array for name, array in arrays.items()}
                write_arrays(self._path, book)
            return {name: book[place] for name, place in names.items()}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file."""
        try:
            lock = self._path.with_name(self._path.name + ".lock").open("w")
        except OSError as error:
            raise UsageError(
                f"{self._path}: cannot be used as a release book ({error.strerror})"
            ) from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> Arrays:
        if not self._path.exists():
            return {"spent": np.zeros(self._devices), "owner": np.array(self._owner)}
        book = read_arrays(self._path)
        if str(book.get("owner")) != self._owner or len(book.get("spent", ())) != self._devices:
            raise InputError(f"{self._path}: this book belongs to another graph")
        return book


def kind_of(task: str, mechanism: str, size: int, epsilon: float) -> str:
    """Name of a kind of release."""
    return json.dumps([task, mechanism, size, epsilon])
