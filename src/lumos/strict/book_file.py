"""The file of a book: one entry for each device that was ever in it, whatever the graph.

An entry belongs to a device: it is found by the device's original id, and has a secret of 16 bytes
that the operating system drew when it was made. Devices that are gone keep their entries, new ones
get new entries, and the order of devices does not matter. So a graph may grow, shrink or lose edges
without any lifetime budget beginning anew.

Every write adds a random mark, and the number of marks is the book's serial number. A run that used
a book remembers its serial number and a digest of the mark and of its devices' secrets (its
`BookSeal`). So a book that was copied back, also if it was used since, and another book in its
place are noticed by whoever remembers it. A book that nobody remembers cannot be told from a copy.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.crypto import entropy
from lumos.errors import InputError, UsageError
from lumos.storage import locked, read_arrays, write_arrays
from lumos.strict.answer_record import ANSWERS_FORM, uncounted
from lumos.strict.book_charges import ACCOUNTS, CALIBRATION
from lumos.strict.book_columns import ENTRIES, Column, RecordForm, entry_sizes, records_in
from lumos.strict.label_record import LABELS_FORM, unpaid
from lumos.strict.run_charges import CHARGES_FORM, miscounted
from lumos.typing import Arrays, Ints

VERSION = 2
"""Of the file. Version 1 had no ids, and belonged to one list of devices."""
SECRET_BYTES = 16
UNMATCHED = -2
"""In place of the partner of a device that has not looked for one."""

_OWN = {
    "version": Column("i8", ()),
    "ids": Column("U", (ENTRIES,)),
    "secrets": Column("u1", (ENTRIES, SECRET_BYTES)),
    "marks": Column("u8", ("serial",)),
    "spent": Column("f8", (ENTRIES,)),
    "runs": Column("U", ("runs",)),
    "partners": Column("i8", (ENTRIES,), UNMATCHED, UNMATCHED, ENTRIES),
}
"""Arrays of the book itself. `spent` is ε of releases; `runs` names those that paid for labels."""
_RECORDS = {"labels": LABELS_FORM, "charged": CHARGES_FORM, "answers": ANSWERS_FORM}


class BookSeal(NamedTuple):
    """What a run remembers of its book."""

    serial: int
    digest: bytes

    def arrays(self) -> Arrays:
        """As a run keeps it."""
        return {
            "book/serial": np.array(self.serial),
            "book/seal": np.frombuffer(self.digest, np.uint8),
        }

    @staticmethod
    def of(arrays: Arrays) -> "BookSeal | None":
        """From what `arrays` gave; None where there is none, or nothing that it can have given."""
        serial, digest = (arrays.get(name, np.empty(0)) for name in ("book/serial", "book/seal"))
        if serial.dtype != np.int64 or serial.shape or serial < 0 or digest.dtype != np.uint8:
            return None
        return BookSeal(int(serial), digest.tobytes())


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenBook:
    """A book as it was read, with an entry for every device of the run."""

    arrays: Arrays = field(repr=False)
    place: Ints = field(repr=False)
    """[devices] the entry of each device of the run."""
    enrolled: int
    """How many of the entries are new, and in no file yet."""

    @property
    def entries(self) -> int:
        """How many there are."""
        return len(self.arrays["ids"])

    def seal(self) -> BookSeal:
        """What a run remembers of the book as it is now."""
        return BookSeal(len(self.arrays["marks"]), self._digest(len(self.arrays["marks"])))

    def agrees(self, seal: BookSeal) -> bool:
        """Whether this is the book that the seal was taken of, or what became of it."""
        return self._digest(seal.serial) == seal.digest

    def _digest(self, serial: int) -> bytes:
        mark = self.arrays["marks"][max(serial, 1) - 1 : serial].tobytes()  # none before the first
        secrets = self.arrays["secrets"][self.place].tobytes()
        return blake2b(mark + secrets, digest_size=16).digest()


class BookFile:
    """The file of a book, as the devices of one run use it.

    Args:
        path: the file; it need not exist yet.
        ids: original ids of the devices of the run, each once.
    """

    def __init__(self, path: Path, ids: Sequence[str]) -> None:
        self.path = path
        self._ids = np.asarray(ids, np.str_)
        if len(np.unique(self._ids)) != len(self._ids):
            raise UsageError(f"{path}: two devices of the graph have one id, and so one entry")

    @contextmanager
    def locked(self) -> Iterator[OpenBook]:
        """Read the book and hold its lock; other processes wait meanwhile.

        Raises:
            InputError: the book is damaged, or was changed by hand.
        """
        with ExitStack() as held:
            try:
                held.enter_context(locked(self.path))
            except OSError as error:
                raise UsageError(
                    f"{self.path}: cannot be used as a release book ({error.strerror})"
                ) from None
            yield self.read()

    def read(self) -> OpenBook:
        """The book as it is now; new devices have entries that are not written yet."""
        arrays = self._checked() if self.path.exists() else _empty()
        before = len(arrays["ids"])
        known = _found(arrays["ids"], self._ids)
        new = np.flatnonzero(known < 0)
        if len(new):
            known[new] = before + np.arange(len(new))
            arrays = _with_entries(arrays, self._ids[new])
        return OpenBook(arrays=arrays, place=known, enrolled=len(new))

    def write(self, book: OpenBook) -> None:
        """Replace the file, and add a mark. Only its owner can read it."""
        mark = np.frombuffer(entropy.draw(8), np.uint64)
        marks = np.concatenate([book.arrays["marks"], mark])
        book.arrays["marks"] = marks
        write_arrays(self.path, book.arrays, private=True)

    def _checked(self) -> Arrays:
        try:
            arrays = read_arrays(self.path)
        except InputError:
            raise self.refused("is damaged") from None
        if problem := _problem(arrays):
            raise self.refused(problem)
        return arrays

    def refused(self, problem: str) -> InputError:
        """The error that says what is wrong with the book, and what to do."""
        return InputError(
            f"{self.path}: {problem}; what devices have spent is not known any more, so use "
            "another `book`, and count what this one had on top"
        )


def _empty() -> Arrays:
    return {
        "version": np.array(VERSION),
        "ids": np.empty(0, "<U1"),
        "secrets": np.empty((0, SECRET_BYTES), np.uint8),
        "marks": np.empty(0, np.uint64),
        "spent": np.empty(0),
        "runs": np.empty(0, "<U32"),
        "partners": np.empty(0, np.int64),
    }


def _found(known: npt.NDArray[np.str_], wanted: npt.NDArray[np.str_]) -> Ints:
    """[wanted] the place of each id among those that are known; -1 for none."""
    places = np.full(len(wanted), -1)
    if len(known):
        order = np.argsort(known)
        near = order[np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)]
        same = known[near] == wanted
        places[same] = near[same]
    return places


def _with_entries(arrays: Arrays, ids: npt.NDArray[np.str_]) -> Arrays:
    """A book with entries for these ids too, each with a secret of its own."""
    drawn = np.frombuffer(entropy.draw(SECRET_BYTES * len(ids)), np.uint8)
    sizes = entry_sizes(len(arrays["ids"]) + len(ids))
    wider = {
        name: _column(name).padded(array, sizes)
        for name, array in arrays.items()
        if name not in ("ids", "secrets")
    }
    return wider | {
        "ids": np.concatenate([arrays["ids"], ids]),
        "secrets": np.concatenate([arrays["secrets"], drawn.reshape(-1, SECRET_BYTES)]),
    }


def _column(name: str) -> Column:
    if name in _OWN:
        return _OWN[name]
    return _RECORDS[name.partition("/")[0]].columns[name.rpartition("/")[2]]


def _problem(book: Arrays) -> str:
    """What is wrong with the arrays of a file, in a few words; empty if nothing is."""
    version = book.get("version", np.array(1))
    if version.shape or version.dtype.kind != "i" or int(version) != VERSION:
        return f"is no book of version {VERSION}"
    own = {name: book[name] for name in _OWN if name in book}
    sizes = entry_sizes(len(np.atleast_1d(own.get("ids", ()))))
    if problem := RecordForm(_OWN, named=False).check(own, sizes):
        return f"was changed by hand: {problem}"
    if len(np.unique(book["ids"])) < len(book["ids"]):
        return "was changed by hand: an id has two entries"
    if len(np.unique(book["secrets"], axis=0)) < len(book["secrets"]):
        return "was changed by hand: two entries have one secret"
    sizes["runs"] = len(book["runs"])
    known = set(own)
    for kind, form in _RECORDS.items():
        for prefix, arrays in records_in(book, kind, form).items():
            if problem := form.check(arrays, sizes):
                return f"was changed by hand: in {prefix!r} {problem}"
            known |= {f"{prefix}/{name}" for name in arrays}
    for prefix, arrays in records_in(book, "charged", CHARGES_FORM).items():
        name = prefix.removeprefix("charged/")
        if name not in ACCOUNTS or miscounted(arrays, ACCOUNTS[name]):
            return f"was changed by hand: {prefix!r} is not the sum of its charges"
    for name in book.keys() - known:
        return f"was changed by hand: {name!r} is unknown"
    for arrays in records_in(book, "answers", ANSWERS_FORM).values():
        counted = book.get(f"charged/{CALIBRATION}/spent", np.zeros((1, len(book["ids"]))))
        if uncounted(arrays) or (arrays["calibrated"] != counted[0]).any():
            return "was changed by hand: budgets of answers are not what was answered"
    labels = records_in(book, "labels", LABELS_FORM)
    if any(unpaid(arrays) for arrays in labels.values()):
        return "was changed by hand: labels have cost more or less than their draws"
    paid = sum(
        (arrays["paid"].sum(axis=0) for arrays in labels.values()), np.zeros(len(book["ids"]))
    )
    if (paid > book["spent"] * (1 + 1e-9)).any():
        return "was changed by hand: labels have cost more than was spent"
    return ""
