"""What devices have answered in their lives, and where it is kept: the book, or the run folder.

An answer is kept by both ends, each with the level that it learnt: a pair that is asked again gets
that level, and pays nothing. What the other end learnt is not told: with randomized response it
carries one's own shift, and would be the exact level to whoever takes that off. A level belongs to
the vectors that were compared. Another run has other vectors, so its answers are new and are paid
for from the same budget, as far as there is a book.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from lumos.errors import InputError
from lumos.storage import locked, read_arrays, write_arrays
from lumos.strict.answer_budget import COUNTS, AnswerBudget
from lumos.strict.book_columns import ENTRIES, Column, RecordForm
from lumos.strict.link_answers import UNANSWERED
from lumos.typing import Arrays, Ints, Small

Done = TypeVar("Done")

FILE = "answers.npz"
"""In a run folder."""
MOST_LEVELS = 8
"""That an answer may have."""
ANSWERS_FORM = RecordForm(
    {
        **{name: Column("i8", (ENTRIES,)) for name in COUNTS},
        "pairs": Column("i8", ("answers", 2), below=ENTRIES),
        "levels": Column("i8", ("answers", 2)),
        "vectors": Column("U", ("answers",)),
    },
    named=False,
)
"""As a book has it: budgets of all entries, and pairs of entries."""


def uncounted(record: Arrays) -> bool:
    """Whether devices have asked and answered more or less often than there are answers of theirs.

    Args:
        record: the arrays of a book, as `ANSWERS_FORM` has them.
    """
    asked, answered = record["asked"], record["answered"]
    given = np.bincount(record["pairs"].ravel(), minlength=len(asked))
    return bool((asked > given).any() or (answered != given - asked).any())


@dataclass(kw_only=True, eq=False)
class AnswerRecord:
    """Budgets of all devices, and all answers."""

    budget: AnswerBudget = field(repr=False)
    pairs: Ints = field(repr=False)
    """[answers, 2] ids, the smaller first."""
    levels: Ints = field(repr=False)
    """[answers, 2] as each of them learnt it."""
    vectors: npt.NDArray[np.str_] = field(repr=False)
    """[answers] which vectors were compared, by their digest."""

    @staticmethod
    def of(arrays: Arrays, start: AnswerBudget) -> "AnswerRecord":
        """From the arrays of a file; with the budget at the start, if it has none."""
        budget = AnswerBudget.of(arrays) if "answers/asked" in arrays else start.copy()
        return AnswerRecord(
            budget=budget,
            pairs=arrays.get("answers/pairs", np.empty((0, 2), np.int64)),
            levels=arrays.get("answers/levels", np.empty((0, 2), np.int64)),
            vectors=arrays.get("answers/vectors", np.empty(0, "<U32")),
        )

    def arrays(self) -> Arrays:
        """As a file keeps them."""
        return {
            **self.budget.arrays(),
            "answers/pairs": self.pairs,
            "answers/levels": self.levels,
            "answers/vectors": self.vectors,
        }

    def known(self, pairs: Ints, vectors: str) -> Ints:
        """[pairs, 2] levels that each end learnt before, `UNANSWERED` elsewhere."""
        here = np.flatnonzero(self.vectors == vectors)
        keys = pair_keys(self.pairs[here], len(self.budget.asked))
        order = np.argsort(keys)
        wanted = pair_keys(pairs, len(self.budget.asked))
        levels = np.full(pairs.shape, UNANSWERED)
        if len(keys):
            places = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
            found = keys[order][places] == wanted
            levels[found] = self.levels[here][order][places[found]]
        return _in_order(levels, pairs)

    def add(self, pairs: Ints, levels: Ints, vectors: str | npt.NDArray[np.str_]) -> None:
        """Keep answers: [answers, 2] ids, the levels that they learnt, and which vectors."""
        self.pairs = np.concatenate([self.pairs, np.sort(pairs, axis=1)])
        self.levels = np.concatenate([self.levels, _in_order(levels, pairs)])
        new = np.broadcast_to(np.asarray(vectors, "<U32"), len(pairs))
        self.vectors = np.concatenate([self.vectors.astype("<U32"), new])

    def of_run(self, place: Ints) -> "AnswerRecord":
        """What the devices of a run have asked and answered, by their numbers in it.

        Args:
            place: [devices] the entry of each device of the run.
        """
        number = np.full(len(self.budget.asked), -1)
        number[place] = np.arange(len(place))
        pairs = number[self.pairs]
        here = (pairs >= 0).all(axis=1)
        record = AnswerRecord.of({}, self.budget.at(place))
        record.add(pairs[here], self.levels[here], self.vectors[here])
        return record

    def take_back(self, record: "AnswerRecord", place: Ints, known: int) -> None:
        """Enter what became of the record that `of_run` gave, which had `known` answers."""
        for name in COUNTS:
            getattr(self.budget, name)[place] = getattr(record.budget, name)
        pairs, levels = place[record.pairs[known:]], record.levels[known:]
        self.add(pairs, levels, record.vectors[known:])


def pair_keys(pairs: Ints, devices: int) -> Ints:
    """[pairs] one number for each pair, whatever the order of its ends."""
    keys: Ints = pairs.min(axis=1) * devices + pairs.max(axis=1)
    return keys


def _in_order(levels: Ints, pairs: Ints) -> Ints:
    """[pairs, 2] levels of the ends as given, as those of the smaller id first; and back."""
    return np.where((pairs[:, 0] > pairs[:, 1])[:, None], levels[:, ::-1], levels)


def digest_of(vectors: Small, thresholds: tuple[int, ...]) -> str:
    """Names the vectors and levels of a run."""
    named = vectors.tobytes() + repr(thresholds).encode()
    return blake2b(named, digest_size=16).hexdigest()


class AnswerStore(Protocol):
    """Where the record of a federation is kept."""

    def update(self, change: Callable[[AnswerRecord], Done]) -> Done:
        """Read the record, change it, and write it; nobody else does so meanwhile."""
        ...


class AnswersInMemory:
    """The record of a run that was not written to a folder."""

    def __init__(self, start: AnswerBudget) -> None:
        self._record = AnswerRecord.of({}, start)

    def update(self, change: Callable[[AnswerRecord], Done]) -> Done:
        """Change the record."""
        return change(self._record)

    def moved(self, folder: Path) -> "AnswersInFile":
        """Kept in a run folder from now on: the run there and the one in memory have one budget."""
        path = folder / FILE
        write_arrays(path, self._record.arrays(), private=True)
        return AnswersInFile(path, self._record.budget)


class AnswersInFile:
    """The record of a run without a book, in its folder; readable by its owner only.

    Args:
        path: the file; it need not exist yet.
        start: the budgets after training.
        levels: most levels of an answer.
    """

    def __init__(self, path: Path, start: AnswerBudget, levels: int = MOST_LEVELS) -> None:
        self._path = path
        self._start = start
        self._levels = levels

    def moved(self, folder: Path) -> "AnswersInFile":
        """It stays where it is; the other folder begins with what was answered so far."""
        self.update(lambda record: write_arrays(folder / FILE, record.arrays(), private=True))
        return self

    def update(self, change: Callable[[AnswerRecord], Done]) -> Done:
        """Read the record, change it, and write it; nobody else does so meanwhile."""
        with locked(self._path):
            record = AnswerRecord.of(self._read(), self._start)
            done = change(record)
            write_arrays(self._path, record.arrays(), private=True)
            return done

    def _read(self) -> Arrays:
        if not self._path.exists():
            return {}
        try:
            arrays = read_arrays(self._path)
        except InputError:
            arrays = {}
        if not self._fits(arrays):
            raise InputError(
                f"{self._path}: is damaged; how much devices have answered is not known any more, "
                "so train again"
            )
        return arrays

    def _fits(self, arrays: Arrays) -> bool:
        """Whether these are budgets of as many devices, and answers of pairs of them."""
        devices = len(self._start.asked)
        names = ("pairs", "levels", "vectors")
        pairs, levels, vectors = (arrays.get(f"answers/{name}", np.empty(0)) for name in names)
        budgets = [arrays.get(name, np.empty(0)) for name in self._start.arrays()]
        return (
            all(counts.dtype == np.int64 for counts in (*budgets, pairs, levels))
            and all(counts.shape == (devices,) and counts.min(initial=0) >= 0 for counts in budgets)
            and pairs.shape == levels.shape == (len(vectors), 2)
            and vectors.ndim == 1
            and vectors.dtype.kind == "U"
            and bool(((pairs >= 0) & (pairs < devices)).all())
            and bool(((levels >= UNANSWERED) & (levels < self._levels)).all())
        )
