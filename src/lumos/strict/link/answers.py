"""Answers about pairs: their budget, how they are asked for, and where they are kept.

**Budget.** An answer tells both ends one level, and counts at both. Of its budget a device keeps
two answers for calibration; of the rest it spends half on questions of its own, and half on those
of others. So non-neighbours can use up the half that is for them, and no more: they never stop a
device from asking. Whoever asks pays with its own half, so m devices can ask at most m times their
half, and each of them any other device once: a pair that was answered keeps its level.

A question beyond the budget is refused. A refusal tells that many have asked before: one bit, of
the door `control`. Which questions are answered is drawn at random, not in an order that might know
of edges. A pair that is not answered is scored by what the asker knows: its own degree.

Answers about pairs: who may ask, the levels that both ends learn, and the asker's score.

Used by the observer to evaluate a run, and by `lumos predict`. The program of a shard:

1. Askers ask the other end, within their budgets (`answer_budget`).
2. Pairs that agreed learn the level of their score (`lumos.twoparty.score`), thousands at a time.

What devices have answered in their lives, and where it is kept: the book, or the run folder.

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
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from lumos.device.shard import Shard
from lumos.errors import InputError, ProtocolError
from lumos.exchange.endpoint import Program
from lumos.ldp.mechanisms import COIN, RandomizedResponse
from lumos.storage import locked, read_arrays, write_arrays
from lumos.strict.book_records import ENTRIES, Column, RecordForm
from lumos.strict.messages import CONSENT, QUESTION
from lumos.strict.settings import ANSWERS_OF_CALIBRATION, StrictSettings
from lumos.twoparty.score import LevelSpec, Scorer
from lumos.twoparty.workers import ComparedPairs
from lumos.typing import Arrays, Doubles, Flags, Ints, Small

NO_LIMIT = 1 << 40
ANSWER_COUNTS = ("asked", "answered", "calibrated")
"""What is counted of every device."""


def halves(answers: int) -> tuple[int, int]:
    """How many questions a device may ask, and how many of others it answers, in its life."""
    if answers == 0:
        return NO_LIMIT, NO_LIMIT
    rest = answers - ANSWERS_OF_CALIBRATION
    return rest // 2, rest - rest // 2


@dataclass(kw_only=True, eq=False)
class AnswerBudget:
    """What devices have asked and answered in their lives, beside calibration."""

    asked: Ints = field(repr=False)
    """[devices] questions of their own that were answered."""
    answered: Ints = field(repr=False)
    """[devices] questions of others that they answered."""
    calibrated: Ints = field(repr=False)
    """[devices] answers that they gave in calibration."""

    @staticmethod
    def unused(devices: int) -> "AnswerBudget":
        """Of devices that gave no answer yet."""
        return AnswerBudget(**{name: np.zeros(devices, np.int64) for name in ANSWER_COUNTS})

    @staticmethod
    def calibrated_once(devices: int) -> "AnswerBudget":
        """Of devices after one calibration, each with all answers that are reserved for it.

        Some gave fewer, because no edge of theirs was held back: nobody needs to know who.
        """
        budget = AnswerBudget.unused(devices)
        budget.calibrated += ANSWERS_OF_CALIBRATION
        return budget

    @staticmethod
    def of(arrays: Arrays) -> "AnswerBudget":
        """From what `arrays` gave."""
        counts = {name: arrays[f"answers/{name}"] for name in ANSWER_COUNTS}
        return AnswerBudget(**{name: array.astype(np.int64) for name, array in counts.items()})

    def copy(self) -> "AnswerBudget":
        """One to count in, with no effect on this one."""
        return AnswerBudget.of(self.arrays())

    def at(self, devices: Ints) -> "AnswerBudget":
        """That of some devices, copied."""
        return AnswerBudget(**{name: getattr(self, name)[devices] for name in ANSWER_COUNTS})

    def digest(self) -> bytes:
        """Identifies the counts."""
        return blake2b(b"".join(counts.tobytes() for counts in self.arrays().values())).digest()

    def arrays(self) -> Arrays:
        """As a file keeps them."""
        return {f"answers/{name}": getattr(self, name) for name in ANSWER_COUNTS}

    def given(self) -> Ints:
        """[devices] answers of each in its life."""
        given: Ints = self.asked + self.answered + self.calibrated
        return given

    def left(self, strict: StrictSettings) -> tuple[Ints, Ints]:
        """[devices] questions that each may still ask, and still answers.

        What calibration took beyond its part is taken from both halves; where one of them is used
        up already, from the other. Both together never exceed what is left of the whole budget.
        """
        asking, answering = halves(strict.score_queries)
        if not strict.score_queries:
            return np.full_like(self.asked, asking), np.full_like(self.answered, answering)
        over = np.maximum(self.calibrated - ANSWERS_OF_CALIBRATION, 0)
        whole = np.maximum(strict.score_queries - self.given(), 0)
        may_ask = np.clip(asking - (over + 1) // 2 - self.asked, 0, whole)
        may_answer = np.clip(answering - over // 2 - self.answered, 0, whole - may_ask)
        return may_ask, may_answer


def consents(
    shard: Shard,
    rows: Ints,
    peers: Ints,
    left: tuple[Ints, Ints],
    step: int,
) -> Program[tuple[Flags, Ints, Ints]]:
    """Ask peers whether they answer, as far as both budgets go.

    Args:
        rows: [questions] positions of hosted askers, not decreasing.
        peers: [questions] ids, increasing for each asker.
        left: [hosted] questions that a device may ask, and answers.
        step: names the randomness.

    Returns:
        [questions] whether each will be answered; positions of the hosted devices that answer
        somebody, and the ids of those who asked.
    """
    asking, answering = left
    chance = shard.randomness.uniform_each(
        np.bincount(rows, minlength=len(shard)), "question", step
    )
    asked = _first(rows, chance, asking)
    inbox = yield QUESTION.send(shard.ids_of(rows[asked]), peers[asked], 0)
    asked_rows = shard.local(inbox.receiver)
    counts = np.bincount(asked_rows, minlength=len(shard))
    chance = shard.randomness.uniform_each(counts, "consent", step)
    granted = _first(asked_rows, chance, answering)
    reply = yield CONSENT.send(inbox.receiver, inbox.sender, granted.astype(np.uint8))
    answered = np.zeros(len(rows), np.bool_)
    expected = np.flatnonzero(asked)
    if not np.array_equal(reply.receiver, shard.ids_of(rows[expected])) or not np.array_equal(
        reply.sender, peers[expected]
    ):
        raise ProtocolError("a question got no reply, or a reply had no question")
    answered[expected] = reply.body.astype(np.bool_)
    return answered, asked_rows[granted], inbox.sender[granted]


def _first(rows: Ints, chance: Doubles, most: Ints) -> Flags:
    """[questions] those of each row that come first by chance, `most` of each."""
    order = np.lexsort((chance, rows))
    counts = np.bincount(rows, minlength=len(most))
    place = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows[order]]
    taken = np.zeros(len(rows), np.bool_)
    taken[order[place < most[rows[order]]]] = True
    return taken


UNANSWERED = -1
AT_ONCE = 4096
"""Pairs whose sessions are open at the same time."""

OnEnds = Callable[[int], None]
"""Callback `(ends)`: how many ends of pairs learnt a level since the last call."""


class AskedOfPeers(NamedTuple):
    """Questions from the view of one shard."""

    rows: Ints
    """[questions] positions of hosted askers, not decreasing."""
    peers: Ints
    """[questions] ids, increasing for each asker."""


class Learnt(NamedTuple):
    """What the devices of one shard learnt: with randomized response, each end its own."""

    levels: Ints
    """[questions] of their own."""
    answering: Ints
    """[answers] ids of those that answered others."""
    askers: Ints
    """[answers] ids of the others."""
    answered: Ints
    """[answers] the levels that those who answered learnt."""


def shifts_for(
    shard: Shard, pairs: ComparedPairs, levels: int, epsilon: float, step: int
) -> Ints | None:
    """[pairs] what devices add to the level that the other end learns: randomized response.

    Guarantee: one answer is ε-LDP for the own vector, against the other end. Each end draws its own
    shift, so both are protected. It is drawn once: a pair that is asked again is answered from
    memory.
    """
    if np.isinf(epsilon):
        return None
    counts = np.bincount(pairs.rows, minlength=len(shard))
    randomness = np.floor(shard.randomness.uniform_each(counts, "answer", step) * COIN).astype(
        np.uint32
    )
    # Whole numbers of 2^32 randomness, so that the ratio of two shifts is at most e^ε exactly.
    return RandomizedResponse(levels, epsilon).randomize(np.zeros(len(pairs), np.int64), randomness)


def levels_of_pairs(
    shard: Shard,
    scorer: Scorer,
    devices: Ints,
    peers: Ints,
    vectors: Small,
    spec: LevelSpec,
    epsilon: float,
    step: int,
) -> Program[Ints]:
    """[pairs] levels, for pairs from the view of hosted devices in any order, none twice.

    Args:
        step: names the randomness of randomized response; another for every call.
    """
    order = np.lexsort((peers, devices))
    pairs = ComparedPairs.of_ids(shard, devices[order], peers[order])
    shifts = shifts_for(shard, pairs, spec.levels, epsilon, step)
    learnt = yield from scorer.levels(pairs, vectors, spec, shifts)
    levels = np.empty(len(order), np.int64)
    levels[order] = learnt
    return levels


@dataclass(kw_only=True, eq=False)
class Answerer:
    """The devices of one shard that ask and answer.

    Args:
        vectors: [hosted, width] as `spec` takes them.
        budget: of the hosted devices; it is counted in here.
        willing: whether they answer others, as far as the budget goes.
    """

    shard: Shard
    scorer: Scorer
    vectors: Small = field(repr=False)
    spec: LevelSpec
    strict: StrictSettings
    budget: AnswerBudget = field(repr=False)
    willing: bool = True

    def ask(
        self, asked: AskedOfPeers, step: int, batches: int, on_ends: OnEnds | None = None
    ) -> Program[Learnt]:
        """The levels that hosted devices learn, `UNANSWERED` where a budget was used up.

        Args:
            step: names the randomness; another for every call.
            batches: how many batches of pairs all shards go through: a public number.
        """
        shard = self.shard
        asking, others = self.budget.left(self.strict)
        left = (asking, others if self.willing else np.zeros_like(others))
        answered, answering, askers = yield from consents(shard, *asked, left, step)
        mine = np.flatnonzero(answered)
        # Before anybody learns a level: an end that falls silent later has told its own.
        np.add.at(self.budget.asked, asked.rows[mine], 1)
        np.add.at(self.budget.answered, answering, 1)
        rows = np.concatenate([asked.rows[mine], answering])
        peers = np.concatenate([asked.peers[mine], askers])
        devices = shard.ids_of(rows)
        # Both ends of a pair find it in the same batch.
        low, high = np.minimum(devices, peers), np.maximum(devices, peers)
        batch = (low + high) % batches
        levels = np.full(len(asked.rows), UNANSWERED)
        learnt = np.empty(len(rows), np.int64)
        for number in range(batches):
            here = np.flatnonzero(batch == number)
            learnt[here] = yield from levels_of_pairs(
                shard,
                self.scorer,
                devices[here],
                peers[here],
                self.vectors,
                self.spec,
                self.strict.query_epsilon,
                (step << 32)
                + number,  # no call has the randomness of another, however many batches
            )
            if on_ends is not None:
                on_ends(len(here))
        levels[mine] = learnt[: len(mine)]
        return Learnt(levels, shard.ids_of(answering), askers, learnt[len(mine) :])


def scores(levels: Ints, evidence: Doubles, degree: Ints, devices: int) -> Doubles:
    """[pairs] logits of being an edge, as the asker has them.

    Args:
        levels: [pairs] of the score, or `UNANSWERED`.
        evidence: [levels] of an edge.
        degree: [pairs] of the asker.
        devices: in the federation.
    """
    known = np.where(levels == UNANSWERED, 0.0, evidence[np.maximum(levels, 0)])
    logits: Doubles = known + np.log((degree + 1) / devices)
    return logits


Done = TypeVar("Done")

FILE = "answers.npz"
"""In a run folder."""
MAX_LEVELS = 8
"""That an answer may have."""
ANSWERS_FORM = RecordForm(
    {
        **{name: Column("i8", (ENTRIES,)) for name in ANSWER_COUNTS},
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
        for name in ANSWER_COUNTS:
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

    def __init__(self, path: Path, start: AnswerBudget, levels: int = MAX_LEVELS) -> None:
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
