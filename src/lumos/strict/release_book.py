"""What devices have released in their lives: kept symbols, and what they cost.

A symbol is for life: asked again for the same thing, a device says the same again, and pays
nothing. A new kind of release pays its ε, or is refused when the lifetime budget would be exceeded.
On a real device the book is a file of its own; a simulation keeps those of all its devices in one,
and a lock keeps runs that share it in turn. Updates are not in it: what they tell adds up from run
to run, as each run's table says.
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
        owner: what tells this federation from others.
        devices: number of devices.
        lifetime: most ε that any device may ever spend.
        run: what tells this run from others: an interrupted one has paid for what it said.
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
        self, kind: str, devices: Ints, epsilon: float, said: Bytes
    ) -> tuple[Bytes, Doubles]:
        """What these devices say of one kind, and what each of them pays in this run.

        Args:
            said: [devices, bytes] what they would say if they were asked for the first time.

        Raises:
            BudgetExceeded: a device would spend more than in a lifetime.
        """
        with self._alone():
            book = self._read()
            none = np.zeros((self._devices, said.shape[1]), np.uint8)
            kept = book.setdefault(f"said/{kind}", none)
            payer = book.setdefault(f"run/{kind}", np.full(self._devices, "", "<U32"))
            new = devices[payer[devices] == ""]
            spent = book["spent"]
            poor = spent[new] + epsilon > self._lifetime * (1 + 1e-12)
            if poor.any():
                raise BudgetExceeded(
                    f"a release of ε = {epsilon:g} would exceed the lifetime budget "
                    f"ε = {self._lifetime:g} ({int(poor.sum()):,} of {self._devices:,} devices, "
                    f"{self._path}); reuse an earlier kind of release, or raise `lifetime_epsilon`"
                )
            spent[new] += epsilon
            kept[new] = said[payer[devices] == ""]
            payer[new] = self._run
            if len(new):
                write_arrays(self._path, book)
            paid = np.where(payer[devices] == self._run, epsilon, 0.0)
            return kept[devices], paid

    def public(self, kind: str, arrays: Arrays) -> Arrays:
        """What everybody knows and kept symbols of a kind refer to: the first that was kept."""
        with self._alone():
            book = self._read()
            names = {name: f"public/{kind}/{name}" for name in arrays}
            if not all(place in book for place in names.values()):
                book |= {names[name]: array for name, array in arrays.items()}
                write_arrays(self._path, book)
            return {name: book[place] for name, place in names.items()}

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else settles meanwhile."""
        try:
            lock = self._path.with_name(self._path.name + ".lock").open("w")
        except OSError as error:
            raise UsageError(f"{self._path}: cannot be a book ({error.strerror})") from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> Arrays:
        if not self._path.exists():
            return {"spent": np.zeros(self._devices), "owner": np.array(self._owner)}
        found = read_arrays(self._path)
        if str(found.get("owner")) != self._owner or len(found.get("spent", ())) != self._devices:
            raise InputError(f"{self._path}: this book belongs to another graph")
        return found


def kind_of(task: str, mechanism: str, size: int, epsilon: float) -> str:
    """The name of a kind of release."""
    return json.dumps([task, mechanism, size, epsilon])
