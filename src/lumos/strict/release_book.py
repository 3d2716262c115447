"""The release book: all releases that devices have ever made, and their cost.

Reusing an earlier release costs no further ε; a new kind of release is charged, or refused where
the lifetime budget would be exceeded. Labels are charged for the largest ε of their draws, and for
each label that a device ever had. What is new in every run is charged in every run, with a limit of
its own, and answers about links are counted. On a real device the book is a file of its own; a
simulation keeps those of all its devices in one file, and a lock serialises runs that share it. The
book belongs to the devices, and never leaves them: beside releases it holds each device's label, to
notice a change, so the file is readable by its owner only. Updates are not in it: their (ε, δ) add
up from run to run, as each run's table of promises says.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path

import numpy as np

from lumos.device.coins import PrivateCoins
from lumos.encode.label_draws import LabelDraws, check_levels
from lumos.encode.label_form import LabelForm
from lumos.errors import BudgetExceeded, InputError, UsageError
from lumos.storage import locked, read_arrays, write_arrays
from lumos.strict.answer_budget import AnswerBudget
from lumos.strict.answer_record import AnswerRecord, Done
from lumos.strict.label_record import LabelRecord, class_digest
from lumos.strict.run_charges import RunCharges
from lumos.strict.settings import ANSWERS_OF_CALIBRATION
from lumos.typing import Arrays, Bytes, Doubles, Ints

UNMATCHED = -2
"""In place of the partner of a device that has not looked for one."""
TOLERANCE = 1 + 1e-12
"""By which factor rounded sums of ε may exceed a limit."""


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
            over = spent[new] + epsilon > self._lifetime * TOLERANCE
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
                self._write(book)
            paid = np.where(payer[devices] == self._run, epsilon, 0.0)
            return kept[devices], paid

    def partners(self, devices: Ints) -> Ints | None:
        """[devices] the partners that they found in an earlier run; None if they found none yet."""
        with self._locked():
            kept = self._read().get("partners")
            return None if kept is None or (kept[devices] == UNMATCHED).any() else kept[devices]

    def keep_partners(self, devices: Ints, partners: Ints) -> None:
        """Keep the partners of devices for life, `NOBODY` among them: [devices] ids."""
        with self._locked():
            book = self._read()
            kept = book.setdefault("partners", np.full(self._devices, UNMATCHED))
            kept[devices] = partners
            self._write(book)

    def labels(
        self,
        form: LabelForm,
        devices: Ints,
        labels: Ints,
        epsilons: Sequence[float],
        *,
        coins: PrivateCoins,
        rows: Ints,
        classes: Sequence[str] | None = None,
    ) -> tuple[Ints, Doubles]:
        """The draws of the devices' labels at some levels, and the ε that each pays in this run.

        Draws that are missing are made so that all draws of a label form one chain
        (`lumos.encode.label_draws`), and a device pays the increase of its largest ε. A label that
        has changed, another number or other names of classes, and another form are drawn anew and
        paid in full, on top. What a device does in a run, training or validation, has no influence.

        Args:
            devices: [devices] ids, each once.
            labels: [devices] true labels, 0 … k - 1.
            epsilons: one level or several, all finite.
            coins: private coins; they are used for draws that are missing.
            rows: [devices] the devices' rows in `coins`.
            classes: [k] names of the classes; records with and without names are different ones.

        Returns:
            [levels, devices] values of the form, and [devices] ε.

        Raises:
            BudgetExceeded: a device would exceed its lifetime budget; nothing is drawn or written.
            UsageError: there is no draw at one of the levels.
        """
        check_levels(form, epsilons)
        most, digest = max(epsilons), class_digest(classes)
        with self._locked():
            book = self._read()
            record = LabelRecord.read(book, f"{form.name} {digest}".strip(), self._devices)
            record.see(devices, labels)
            increase = np.maximum(0.0, most - record.largest(devices))
            total = book["spent"][devices] + increase
            over = (increase > 0) & (total > self._lifetime * TOLERANCE)
            if over.any():
                raise BudgetExceeded(
                    f"labels drawn at ε = {most:g} would exceed the lifetime budget "
                    f"ε = {self._lifetime:g} ({int(over.sum()):,} of {self._devices:,} devices, "
                    f"{self._path}); use an ε of earlier draws, or raise `lifetime_epsilon`"
                )
            draws = LabelDraws(
                form=form,
                labels=labels,
                coins=coins,
                rows=rows,
                changes=record.changes[devices],
                levels=record.draws(devices),
                classes=digest,
            )
            complete = draws.has(*epsilons)
            values = draws.at(*epsilons)
            run = self._run_number(book)
            if not complete:
                book["spent"][devices] = total
                record.keep(devices, draws.levels)
                record.charge(devices, most, increase, run)
                self._write(book | record.arrays())
            return values, record.paid_by(devices, run)

    def charge(
        self,
        name: str,
        devices: Ints,
        epsilon: float,
        lifetime: float,
        *,
        setting: str = "lifetime",
    ) -> Doubles:
        """Count something that is new in every run, and return the ε of all runs of each device.

        A device is charged once in a run for each name and ε; a run that is resumed was charged.

        Args:
            name: what is counted: each has an account of its own, apart from releases.
            devices: [devices] ids, each once.
            lifetime: largest total ε of any device for this name.
            setting: the setting that holds it, for the error.

        Raises:
            BudgetExceeded: a device would exceed the limit; nothing is written.
        """
        with self._locked():
            book = self._read()
            account, new = self._affordable(book, name, devices, epsilon, lifetime, setting)
            if len(new):
                account.add(new, self._run, epsilon)
                self._write(book | account.arrays())
            return account.spent[devices]

    def check_charge(
        self, name: str, devices: Ints, epsilon: float, lifetime: float, *, setting: str
    ) -> None:
        """Raise what `charge` would raise, and charge nothing: before a run begins."""
        with self._locked():
            self._affordable(self._read(), name, devices, epsilon, lifetime, setting)

    def _affordable(
        self, book: Arrays, name: str, devices: Ints, epsilon: float, lifetime: float, setting: str
    ) -> tuple[RunCharges, Ints]:
        """The account of a name, and those of the devices that are to be charged."""
        if not epsilon >= 0:
            raise UsageError(f"`epsilon` must be 0 or more, got {epsilon}")
        account = RunCharges.read(book, name, self._devices)
        new = account.uncharged(devices, self._run, epsilon)
        over = account.spent[new] + epsilon > lifetime * TOLERANCE
        if over.any():
            raise BudgetExceeded(
                f"{name} of ε = {epsilon:g} would exceed their lifetime limit "
                f"ε = {lifetime:g} ({int(over.sum()):,} of {self._devices:,} devices, "
                f"{self._path}); lower their ε, or raise `{setting}`"
            )
        return account, new

    def update(self, change: Callable[[AnswerRecord], Done]) -> Done:
        """Change the record of answers about links, and write it (`AnswerStore`)."""
        with self._locked():
            book = self._read()
            record = self._answers(book)
            done = change(record)
            self._write(book | record.arrays())
            return done

    def calibrate(self, devices: Ints, answers: int) -> None:
        """Count the answers that devices give in the calibration of this run.

        Args:
            answers: most answers of one device in its life; 0 for no limit.

        Raises:
            BudgetExceeded: a device would give more; nothing is written.
        """
        with self._locked():
            book = self._read()
            account, new = self._calibrating(book, devices, answers)
            if len(new):
                account.add(new, self._run, ANSWERS_OF_CALIBRATION)
                record = self._answers(book)
                record.budget.calibrated[new] += ANSWERS_OF_CALIBRATION
                self._write(book | account.arrays() | record.arrays())

    def check_calibration(self, answers: int) -> None:
        """Raise what `calibrate` would raise, and count nothing: before a run begins."""
        with self._locked():
            self._calibrating(self._read(), np.arange(self._devices), answers)

    def _calibrating(self, book: Arrays, devices: Ints, answers: int) -> tuple[RunCharges, Ints]:
        """The account of calibrations, and those of the devices that this run has not counted."""
        account = RunCharges.read(book, "calibration", self._devices)
        new = account.uncharged(devices, self._run, ANSWERS_OF_CALIBRATION)
        over = self._answers(book).budget.given()[new] + ANSWERS_OF_CALIBRATION > answers
        if answers and over.any():
            raise BudgetExceeded(
                f"{ANSWERS_OF_CALIBRATION} answers of calibration would exceed the lifetime limit "
                f"of {answers} answers ({int(over.sum()):,} of {self._devices:,} devices, "
                f"{self._path}); predict with an earlier run, or raise `answers`"
            )
        return account, new

    def _answers(self, book: Arrays) -> AnswerRecord:
        return AnswerRecord.of(book, AnswerBudget.unused(self._devices))

    def public(self, kind: str, arrays: Arrays) -> Arrays:
        """The public arrays that kept symbols of a kind refer to: the first that were kept."""
        with self._locked():
            book = self._read()
            names = {name: f"public/{kind}/{name}" for name in arrays}
            if not all(place in book for place in names.values()):
                book |= {names[name]: array for name, array in arrays.items()}
                self._write(book)
            return {name: book[place] for name, place in names.items()}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file."""
        with ExitStack() as held:
            try:
                held.enter_context(locked(self._path))
            except OSError as error:
                raise UsageError(
                    f"{self._path}: cannot be used as a release book ({error.strerror})"
                ) from None
            yield

    def _run_number(self, book: Arrays) -> int:
        """The number of this run in the book's list of runs, which it joins."""
        runs = book.setdefault("runs", np.empty(0, "<U32"))
        if self._run not in runs:
            runs = book["runs"] = np.append(runs, np.array(self._run, "<U32"))
        return int(np.flatnonzero(runs == self._run)[0])

    def _write(self, book: Arrays) -> None:
        write_arrays(self._path, book, private=True)

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
