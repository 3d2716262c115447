"""The book of the devices: its file, and everything that they have told in their lives.

**File.** One entry for each device that was ever in it, whatever the graph. An entry belongs to a
device: it is found by the device's original id, and has a secret of 16 bytes that the operating
system drew when it was made. Devices that are gone keep their entries, new ones get new entries,
and the order of devices does not matter. So a graph may grow, shrink or lose edges without any
lifetime budget beginning anew.

Every write adds a random mark, and the number of marks is the book's serial number. A run that used
a book remembers its serial number and a digest of the mark and of its devices' secrets (its
`BookSeal`). So a book that was copied back, also if it was used since, and another book in its
place are noticed by whoever remembers it. A book that nobody remembers cannot be told from a copy.

The release book: everything that devices have told in their lives, and what it cost.

Reusing an earlier release costs no further ε; a new one is charged, or refused where the lifetime
budget would be exceeded. Labels are charged for the largest ε of their draws, and for each label
that a device ever had. What is new in every run is charged in every run, each with a limit of its
own: ε of propagated labels, μ² of sums, answers about links. On a real device the book is a file of
its own; a simulation keeps those of all its devices in one file (`book_file`), and a lock
serialises runs that share it. The book belongs to the devices, and never leaves them: beside
releases it holds each device's label, to notice a change, so the file is readable by its owner
only.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.crypto import entropy
from lumos.device.randomness import PrivateRandomness
from lumos.errors import BudgetExceeded, InputError, UsageError
from lumos.ldp.labels import LabelDraws, LabelForm, check_levels
from lumos.storage import locked, read_arrays, write_arrays
from lumos.strict.accounting import ACCOUNTS, CALIBRATION, PROPAGATED, QUESTIONS, SUMS, Lives
from lumos.strict.book_records import (
    CHARGES_FORM,
    ENTRIES,
    LABELS_FORM,
    Charge,
    Column,
    LabelRecord,
    RecordForm,
    RunCharges,
    class_digest,
    entry_sizes,
    miscounted,
    records_in,
    unpaid,
)
from lumos.strict.link.answers import ANSWERS_FORM, AnswerBudget, AnswerRecord, Done, uncounted
from lumos.strict.link.encoder import NOBODY
from lumos.strict.settings import ANSWERS_OF_CALIBRATION
from lumos.typing import Arrays, Doubles, Ints

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


TOLERANCE = 1 + 1e-12
"""By which factor rounded sums of ε may exceed a limit."""


class ReleaseBook:
    """The books of all devices of a simulated federation.

    Args:
        path: the file; it need not exist yet.
        ids: original ids of the devices of the run; `devices` below are positions in this list.
        lifetime: largest total ε of the releases of any device.
        run: identifies the run: one that is resumed has already paid for its releases.
    """

    def __init__(self, path: Path, ids: Sequence[str], lifetime: float, run: str) -> None:
        self._file = BookFile(path, ids)
        self._total = len(ids)
        self._lifetime = lifetime
        self._run = _digest(run)
        self._file.read()

    def __repr__(self) -> str:
        return f"ReleaseBook({self._file.path})"

    def seal(self) -> BookSeal:
        """What the run remembers of the book, so that it notices if the book is copied back."""
        with self._file.locked() as book:
            if book.enrolled:
                self._file.write(book)
            return book.seal()

    def check_seal(self, seal: BookSeal | None) -> None:
        """Refuse a book that is older than what a run remembers of it, or another one.

        Raises:
            InputError: it is.
        """
        with self._file.locked() as book:
            path, now = self._file.path, book.seal()
            if seal is None or (seal.serial <= now.serial and not book.agrees(seal)):
                raise InputError(
                    f"{path}: is not the book of this run, or was copied back and used since; use "
                    "the book that the run was trained with"
                )
            if seal.serial > now.serial:
                raise InputError(
                    f"{path}: the book is older than this run: it was copied back, or is another "
                    "one; use the book as the run left it"
                )

    def state(self, run_in: Callable[[str], str]) -> str:
        """The state in which a run began: the last mark then; empty if there was no book.

        A run that the book knows, because it repeats or resumes, began in an earlier state. Any
        other begins now.

        Args:
            run_in: callback `(state)`, returns what identifies the run if it began in that state.
        """
        with self._file.locked() as book:
            known = _runs(book)
            states = ["", *(f"{mark:016x}" for mark in book.arrays["marks"].tolist())]
            began = (state for state in states if _digest(run_in(state)) in known)
            return next(began, states[-1])

    def partners(self) -> Ints:
        """[all devices of the run] partners for life, by their numbers in this run.

        `UNMATCHED` for a device that has not looked for one, `NOBODY` for one that found none, or
        whose partner is not in this run.
        """
        with self._file.locked() as book:
            kept, place = book.arrays["partners"], book.place
            number = np.full(book.entries, NOBODY)
            number[place] = np.arange(self._total)
            partner = kept[place]
            # Where a run broke off, one end may have written down what the other has not.
            mutual = (partner >= 0) & (kept[np.maximum(partner, 0)] == place)
            looked = np.where(mutual, number[np.maximum(partner, 0)], NOBODY)
            return np.where(partner == UNMATCHED, UNMATCHED, looked)

    def keep_partners(self, devices: Ints, partners: Ints) -> None:
        """Keep the partners of devices for life, `NOBODY` among them: [devices] numbers."""
        with self._file.locked() as book:
            entry = np.where(partners == NOBODY, NOBODY, book.place[np.maximum(partners, 0)])
            book.arrays["partners"][book.place[devices]] = entry
            self._file.write(book)

    def labels(
        self,
        form: LabelForm,
        devices: Ints,
        labels: Ints,
        epsilons: Sequence[float],
        *,
        randomness: PrivateRandomness,
        rows: Ints,
        classes: Sequence[str] | None = None,
    ) -> tuple[Ints, Doubles]:
        """The draws of the devices' labels at some levels, and the ε that each pays in this run.

        Draws that are missing are made so that all draws of a label form one chain
        (`lumos.ldp.labels`), and a device pays the increase of its largest ε. A label that
        has changed, another number or other names of classes, and another form are drawn anew and
        paid in full, on top. What a device does in a run, training or validation, has no influence.

        Args:
            devices: [devices] numbers, each once.
            labels: [devices] true labels, 0 … k - 1.
            epsilons: one level or several, all finite.
            randomness: private randomness; they are used for draws that are missing.
            rows: [devices] the devices' rows in `randomness`.
            classes: [k] names of the classes; records with and without names are different ones.

        Returns:
            [levels, devices] values of the form, and [devices] ε.

        Raises:
            BudgetExceeded: a device would exceed its lifetime budget; nothing is drawn or written.
            UsageError: there is no draw at one of the levels.
        """
        check_levels(form, epsilons)
        most, digest = max(epsilons), class_digest(classes)
        with self._file.locked() as book:
            entries, spent = book.place[devices], book.arrays["spent"]
            record = LabelRecord.read(book.arrays, _record_name(form, digest), book.entries)
            if problem := record.problem(form):
                raise self._file.refused(f"was changed by hand: {problem}")
            record.see(entries, labels)
            increase = np.maximum(0.0, most - record.largest(entries))
            total = spent[entries] + increase
            over = (increase > 0) & (total > self._lifetime * TOLERANCE)
            if over.any():
                raise self._exceeded(
                    f"labels drawn at ε = {most:g} would exceed the lifetime budget "
                    f"ε = {self._lifetime:g}",
                    int(over.sum()),
                    "use an ε of earlier draws, or raise `lifetime_epsilon`",
                )
            draws = LabelDraws(
                form=form,
                labels=labels,
                randomness=randomness,
                rows=rows,
                changes=record.changes[entries],
                levels=record.draws(entries),
                classes=digest,
            )
            complete = draws.has(*epsilons)
            values = draws.at(*epsilons)
            run = self._run_number(book)
            if not complete:
                spent[entries] = total
                record.keep(entries, draws.levels)
                record.charge(entries, most, increase, run)
                book.arrays.update(record.arrays())
                self._file.write(book)
            return values, record.paid_by(entries, run)

    def drawn(self, form: LabelForm, labels: Ints, classes: Sequence[str] | None) -> str:
        """Which draws `labels` would give, as text: other draws, another text.

        Args:
            form, classes: as in `labels`.
            labels: [all devices of the run], below 0 where there is none.
        """
        name = _record_name(form, class_digest(classes))
        with self._file.locked() as book:
            record = LabelRecord.read(book.arrays, name, book.entries)
            earlier = record.earlier(book.place, labels)
        return f"{name} {blake2b(earlier.tobytes(), digest_size=16).hexdigest()}"

    def charge(self, charge: Charge, devices: Ints) -> None:
        """Count something that is new in every run.

        A device is charged once in a run for the same amounts; a run that is resumed was charged.

        Args:
            devices: [devices] numbers, each once.

        Raises:
            BudgetExceeded: a device would exceed a limit; nothing is written.
        """
        with self._file.locked() as book:
            account, new = self._affordable(book, charge, devices)
            if len(new):
                account.add(new, self._run, charge)
                book.arrays.update(account.arrays())
                self._file.write(book)

    def check_charge(self, charge: Charge, devices: Ints) -> None:
        """Raise what `charge` would raise, and charge nothing: before a run begins."""
        with self._file.locked() as book:
            self._affordable(book, charge, devices)

    def _affordable(self, book: OpenBook, charge: Charge, devices: Ints) -> tuple[RunCharges, Ints]:
        """The account of a charge, and those of the entries that are to be charged."""
        account = RunCharges.read(book.arrays, charge.name, book.entries, len(charge.amounts))
        new = account.uncharged(book.place[devices], self._run, charge)
        amounts, limits = (np.array(of)[:, None] for of in (charge.amounts, charge.limits))
        over = ((amounts > 0) & (account.spent[:, new] + amounts > limits * TOLERANCE)).any(axis=0)
        if over.any():
            raise self._exceeded(charge.words, int(over.sum()), charge.advice)
        return account, new

    def _exceeded(self, words: str, devices: int, advice: str) -> BudgetExceeded:
        many = f"{devices:,} of {self._total:,} devices"
        return BudgetExceeded(f"{words} ({many}, {self._file.path}); {advice}")

    def lives(self) -> Lives:
        """What all devices of the run have spent in all runs, [devices] each."""
        with self._file.locked() as book:
            arrays, place = book.arrays, book.place
            propagated_labels = RunCharges.read(arrays, PROPAGATED, book.entries)
            sums = RunCharges.read(arrays, SUMS, book.entries, len(QUESTIONS))
            return Lives(
                label=arrays["spent"][place],
                propagated_labels=propagated_labels.spent[0, place],
                squares=dict(zip(QUESTIONS, sums.spent[:, place], strict=True)),
                answers=_answers(book).budget.given()[place],
            )

    def update(self, change: Callable[[AnswerRecord], Done]) -> Done:
        """Change the record of answers about links, and write it (`AnswerStore`)."""
        with self._file.locked() as book:
            whole = _answers(book)
            record = whole.of_run(book.place)
            known = len(record.pairs)
            done = change(record)
            whole.take_back(record, book.place, known)
            book.arrays.update(whole.arrays())
            self._file.write(book)
            return done

    def calibrate(self, devices: Ints, answers: int) -> None:
        """Count the answers that devices give in the calibration of this run.

        Args:
            answers: most answers of one device in its life; 0 for no limit.

        Raises:
            BudgetExceeded: a device would give more; nothing is written.
        """
        with self._file.locked() as book:
            account, new = self._calibrating(book, devices, answers)
            if len(new):
                account.add(new, self._run, _CALIBRATION)
                record = _answers(book)
                record.budget.calibrated[new] += ANSWERS_OF_CALIBRATION
                book.arrays.update(account.arrays() | record.arrays())
                self._file.write(book)

    def check_calibration(self, answers: int) -> None:
        """Raise what `calibrate` would raise, and count nothing: before a run begins."""
        with self._file.locked() as book:
            self._calibrating(book, np.arange(self._total), answers)

    def _calibrating(self, book: OpenBook, devices: Ints, answers: int) -> tuple[RunCharges, Ints]:
        """The account of calibrations, and those of the entries that this run has not counted."""
        account = RunCharges.read(book.arrays, _CALIBRATION.name, book.entries)
        new = account.uncharged(book.place[devices], self._run, _CALIBRATION)
        over = _answers(book).budget.given()[new] + ANSWERS_OF_CALIBRATION > answers
        if answers and over.any():
            raise self._exceeded(
                f"{ANSWERS_OF_CALIBRATION} answers of calibration would exceed the lifetime limit "
                f"of {answers} answers",
                int(over.sum()),
                "predict with an earlier run, or raise `score_queries`",
            )
        return account, new

    def _run_number(self, book: OpenBook) -> int:
        """The number of this run in the book's list of runs, which it joins."""
        runs = book.arrays["runs"]
        if self._run not in runs:
            runs = book.arrays["runs"] = np.append(runs, np.array(self._run, "<U32"))
        return int(np.flatnonzero(runs == self._run)[0])


_CALIBRATION = Charge(name=CALIBRATION, amounts=(ANSWERS_OF_CALIBRATION,), limits=(float("inf"),))
"""Answers of a run; their limit is that of all answers together."""


def _digest(run: str) -> str:
    return blake2b(run.encode(), digest_size=16).hexdigest()


def _runs(book: OpenBook) -> set[str]:
    """The runs that the book knows: those that drew labels, or were charged for anything."""
    charges = records_in(book.arrays, "charged", CHARGES_FORM).values()
    charged = (key.split()[0] for record in charges for key in record["runs"].tolist())
    return {*book.arrays["runs"].tolist(), *charged}


def _record_name(form: LabelForm, digest: str) -> str:
    return f"{form.name} {digest}".strip()


def _answers(book: OpenBook) -> AnswerRecord:
    return AnswerRecord.of(book.arrays, AnswerBudget.unused(book.entries))
