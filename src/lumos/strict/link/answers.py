"""Score queries about pairs: their budget, their protocol, and their record.

**Budget.** A score query reveals one score bucket (in code, a level) to both ends, and counts at
both. A device reserves two queries for calibration. Half of the rest is for its own queries, half
for those of others. So other devices can use up their half only, and never stop a device from
asking. An asker pays from its own half, so m devices can ask at most m times their half, and each
of them asks any other device once: a pair that was answered keeps its bucket.

A query beyond the budget is refused. A refusal reveals that many have asked before: one bit,
through the door `control`. The queries to be answered are drawn at random, so that their order
reveals nothing about edges. A pair without an answer is scored by the asker's own degree.

**Protocol.** The observer uses it to evaluate a run, and `lumos predict` to score pairs.

1. Askers ask the other end, within both budgets (`consents`).
2. Pairs that agreed learn the bucket of their score (`lumos.twoparty.score`), thousands at a time.

**Record.** The run folder keeps the buckets that both ends of a pair learnt: a pair that is asked
again gets the same ones, and pays nothing. An end does not see the bucket of the
other: with randomized response it contains the end's own shift, and without that shift it would be
exact. A bucket belongs to the vectors that were compared. Another run has other vectors, so its
queries are new. With a privacy account they are paid for from one budget for life.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lumos.device.shard import Shard
from lumos.errors import InputError, ProtocolError
from lumos.exchange.endpoint import Program
from lumos.ldp.account import ANSWERED, ASKED, QUERIES, PrivacyAccount
from lumos.ldp.mechanisms import COIN, RandomizedResponse
from lumos.storage import locked, read_arrays, write_arrays
from lumos.strict.messages import CONSENT, QUESTION
from lumos.strict.settings import CALIBRATION_BITS, CALIBRATION_QUERIES, StrictSettings
from lumos.twoparty.score import UNANSWERED, LevelSpec, Scorer
from lumos.twoparty.workers import ComparedPairs
from lumos.typing import Arrays, Doubles, Flags, Ints, Small

NO_LIMIT = 1 << 40
ANSWER_COUNTS = ("asked", "answered", "calibrated")
"""Names of the counts of every device, in the order of `lumos.ldp.account.QUERIES`."""


def halves(score_queries: int) -> tuple[int, int]:
    """Return the numbers of own queries and of answers to others that a device may spend."""
    if score_queries == 0:
        return NO_LIMIT, NO_LIMIT
    rest = score_queries - CALIBRATION_QUERIES
    return rest // 2, rest - rest // 2


@dataclass(kw_only=True, eq=False)
class AnswerBudget:
    """Score queries that devices have spent."""

    asked: Ints = field(repr=False)
    """[devices] own queries that were answered."""
    answered: Ints = field(repr=False)
    """[devices] queries of others that they answered."""
    calibrated: Ints = field(repr=False)
    """[devices] queries of calibration."""

    @staticmethod
    def unused(devices: int) -> "AnswerBudget":
        """Return the budget of devices that have spent nothing."""
        return AnswerBudget(**{name: np.zeros(devices, np.int64) for name in ANSWER_COUNTS})

    @staticmethod
    def calibrated_once(devices: int) -> "AnswerBudget":
        """Return the budget after one calibration, with all queries that are reserved for it.

        Devices without a held-back edge used fewer, which stays private.
        """
        budget = AnswerBudget.unused(devices)
        budget.calibrated += CALIBRATION_QUERIES
        return budget

    @staticmethod
    def of(arrays: Arrays) -> "AnswerBudget":
        """Restore a budget from its arrays."""
        counts = {name: arrays[f"answers/{name}"] for name in ANSWER_COUNTS}
        return AnswerBudget(**{name: array.astype(np.int64) for name, array in counts.items()})

    @staticmethod
    def of_account(account: PrivacyAccount) -> "AnswerBudget":
        """Return what devices have spent in their life."""
        spent = (account.spent(kind).astype(np.int64) for kind in QUERIES)
        return AnswerBudget(**dict(zip(ANSWER_COUNTS, spent, strict=True)))

    def copy(self) -> "AnswerBudget":
        """Return a copy."""
        return AnswerBudget.of(self.arrays())

    def digest(self) -> bytes:
        """Return a digest of the counts."""
        return blake2b(b"".join(counts.tobytes() for counts in self.arrays().values())).digest()

    def arrays(self) -> Arrays:
        """Return the arrays of a file."""
        return {f"answers/{name}": getattr(self, name) for name in ANSWER_COUNTS}

    def given(self) -> Ints:
        """Return [devices] the number of queries that each has spent."""
        given: Ints = self.asked + self.answered + self.calibrated
        return given

    def left(self, strict: StrictSettings) -> tuple[Ints, Ints]:
        """Return [devices] the queries that each may still ask, and those it may still answer.

        Calibration beyond its reserve is taken from both halves, or from one if the other is used
        up, bit by bit: a query of calibration reveals `CALIBRATION_BITS`, others `query_bits`. Both
        together never exceed the rest of the whole budget.
        """
        asking, answering = halves(strict.score_queries)
        if not strict.score_queries:
            return np.full_like(self.asked, asking), np.full_like(self.answered, answering)
        beyond = np.maximum(self.calibrated - CALIBRATION_QUERIES, 0)
        over = -(-beyond * CALIBRATION_BITS // strict.query_bits)
        whole = np.maximum(strict.score_queries - self.given() + beyond - over, 0)
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
    """Ask peers whether they answer, within both budgets.

    Args:
        rows: [questions] positions of hosted askers, not decreasing.
        peers: [questions] ids, increasing for each asker.
        left: [hosted] queries that a device may ask, and those it may answer.
        step: names the randomness.

    Returns:
        [questions] whether each will be answered; positions of the hosted devices that answer, and
        the ids of their askers.
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
    """Return [questions] whether it is among the first `most` of its row, in random order."""
    order = np.lexsort((chance, rows))
    counts = np.bincount(rows, minlength=len(most))
    place = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows[order]]
    taken = np.zeros(len(rows), np.bool_)
    taken[order[place < most[rows[order]]]] = True
    return taken


AT_ONCE = 4096
"""Largest number of pairs with open sessions."""

OnEnds = Callable[[int], None]
"""Callback `(ends)` with the number of ends of pairs that learnt a bucket since the last call."""


class Learnt(NamedTuple):
    """Score buckets that the devices of one shard learnt; with randomized response, ends differ."""

    levels: Ints
    """[questions] buckets of their own queries."""
    answering: Ints
    """[answers] ids of devices that answered others."""
    askers: Ints
    """[answers] ids of their askers."""
    answered: Ints
    """[answers] buckets that the answering devices learnt."""


def shifts_for(
    shard: Shard, pairs: ComparedPairs, levels: int, epsilon: float, step: int
) -> Ints | None:
    """Return [pairs] the shifts of randomized response that devices add to the other end's bucket.

    Guarantee: one query is ε-LDP for a device's vector against the other end. Each end draws its
    own shift, so both are protected. It is drawn once: a pair that is asked again is answered from
    the record.
    """
    if np.isinf(epsilon):
        return None
    counts = np.bincount(pairs.rows, minlength=len(shard))
    randomness = np.floor(shard.randomness.uniform_each(counts, "answer", step) * COIN).astype(
        np.uint32
    )
    # Probabilities are multiples of 2^-32, so that the ratio of two shifts is at most e^ε exactly.
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
    asking: Flags | None = None,
) -> Program[Ints]:
    """Return [pairs] score buckets; pairs are those of hosted devices in any order, none twice.

    Args:
        step: names the randomness of randomized response; another for every call.
        asking: [pairs] whether the device asks, and not its peer; None where nobody does.
    """
    order = np.lexsort((peers, devices))
    first = None if asking is None else ~asking[order]
    pairs = ComparedPairs.of_ids(shard, devices[order], peers[order], first=first)
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
        budget: of the hosted devices; it is updated.
        willing: whether they answer others, within the budget.
    """

    shard: Shard
    scorer: Scorer
    vectors: Small = field(repr=False)
    spec: LevelSpec
    strict: StrictSettings
    budget: AnswerBudget = field(repr=False)
    willing: bool = True

    def ask(
        self, rows: Ints, peers: Ints, step: int, batches: int, on_ends: OnEnds | None = None
    ) -> Program[Learnt]:
        """Return the buckets that hosted devices learn, `UNANSWERED` if a budget is used up.

        Args:
            rows: [questions] positions of hosted askers, not decreasing.
            peers: [questions] ids, increasing for each asker.
            step: names the randomness; another for every call.
            batches: public number of batches of pairs that all shards go through.
        """
        shard = self.shard
        asking, others = self.budget.left(self.strict)
        left = (asking, others if self.willing else np.zeros_like(others))
        answered, answering, askers = yield from consents(shard, rows, peers, left, step)
        mine = np.flatnonzero(answered)
        # Before a bucket is revealed: an end that falls silent later has sent its part already.
        np.add.at(self.budget.asked, rows[mine], 1)
        np.add.at(self.budget.answered, answering, 1)
        levels = np.full(len(rows), UNANSWERED)
        devices = shard.ids_of(np.concatenate([rows[mine], answering]))
        peers = np.concatenate([peers[mine], askers])
        asking_here = np.arange(len(devices)) < len(mine)
        # Both ends of a pair find it in the same batch.
        low, high = np.minimum(devices, peers), np.maximum(devices, peers)
        batch = (low + high) % batches
        learnt = np.empty(len(devices), np.int64)
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
                (step << 32) + number,  # different randomness for every call and batch
                asking_here[here],
            )
            if on_ends is not None:
                on_ends(len(here))
        levels[mine] = learnt[: len(mine)]
        return Learnt(levels, shard.ids_of(answering), askers, learnt[len(mine) :])


def scores(levels: Ints, evidence: Doubles, degree: Ints, devices: int) -> Doubles:
    """Return [pairs] logits of being an edge, as the askers compute them.

    Args:
        levels: [pairs] score buckets, or `UNANSWERED`.
        evidence: [buckets] log-likelihood ratios of an edge.
        degree: [pairs] of the asker.
        devices: in the federation.
    """
    known = np.where(levels == UNANSWERED, 0.0, evidence[np.maximum(levels, 0)])
    logits: Doubles = known + np.log((degree + 1) / devices)
    return logits


Done = TypeVar("Done")

FILE = "answers.npz"
"""Name of the file in a run folder."""
MAX_LEVELS = 8
"""Largest number of score buckets."""


@dataclass(kw_only=True, eq=False)
class AnswerRecord:
    """Budgets of all devices, and all answered queries."""

    budget: AnswerBudget = field(repr=False)
    pairs: Ints = field(repr=False)
    """[answers, 2] ids, the smaller first."""
    levels: Ints = field(repr=False)
    """[answers, 2] the bucket that each of them learnt."""
    vectors: npt.NDArray[np.str_] = field(repr=False)
    """[answers] digest of the vectors that were compared."""

    @staticmethod
    def of(arrays: Arrays, start: AnswerBudget) -> "AnswerRecord":
        """Restore a record from the arrays of a file, or begin one with the budget `start`."""
        budget = AnswerBudget.of(arrays) if "answers/asked" in arrays else start.copy()
        return AnswerRecord(
            budget=budget,
            pairs=arrays.get("answers/pairs", np.empty((0, 2), np.int64)),
            levels=arrays.get("answers/levels", np.empty((0, 2), np.int64)),
            vectors=arrays.get("answers/vectors", np.empty(0, "<U32")),
        )

    def arrays(self) -> Arrays:
        """Return the arrays of a file."""
        return {
            **self.budget.arrays(),
            "answers/pairs": self.pairs,
            "answers/levels": self.levels,
            "answers/vectors": self.vectors,
        }

    def known(self, pairs: Ints, vectors: str) -> Ints:
        """Return [pairs, 2] the buckets that each end learnt before, `UNANSWERED` if none."""
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

    def add(self, pairs: Ints, levels: Ints, vectors: str) -> None:
        """Add answered pairs: [answers, 2] ids, the buckets that they learnt, and the vectors."""
        self.pairs = np.concatenate([self.pairs, np.sort(pairs, axis=1)])
        self.levels = np.concatenate([self.levels, _in_order(levels, pairs)])
        new = np.broadcast_to(np.asarray(vectors, "<U32"), len(pairs))
        self.vectors = np.concatenate([self.vectors.astype("<U32"), new])


def pair_keys(pairs: Ints, devices: int) -> Ints:
    """Return [pairs] one number for each pair, whatever the order of its ends."""
    keys: Ints = pairs.min(axis=1) * devices + pairs.max(axis=1)
    return keys


def _in_order(levels: Ints, pairs: Ints) -> Ints:
    """Swap the columns of pairs whose smaller id comes second; its own inverse."""
    return np.where((pairs[:, 0] > pairs[:, 1])[:, None], levels[:, ::-1], levels)


def digest_of(vectors: Small, thresholds: tuple[int, ...]) -> str:
    """Return a digest of the vectors and thresholds of a run."""
    named = vectors.tobytes() + repr(thresholds).encode()
    return blake2b(named, digest_size=16).hexdigest()


def charged(
    account: PrivacyAccount, change: Callable[[AnswerRecord], Done]
) -> Callable[[AnswerRecord], Done]:
    """Return a change of a record within the budgets of a life.

    Its queries are in the account before the record is written.
    """

    def within(record: AnswerRecord) -> Done:
        with account.transaction():
            record.budget = AnswerBudget.of_account(account)
            before, everyone = record.budget.copy(), np.arange(len(record.budget.asked))
            done = change(record)
            for kind, name in ((ASKED, "asked"), (ANSWERED, "answered")):
                more = getattr(record.budget, name) - getattr(before, name)
                account.charge_each(kind, more.astype(np.float64), everyone)
        return done

    return within


class AnswerStore:
    """The record of a run: in its folder, readable by its owner only, or in memory.

    Args:
        path: the file, which need not exist yet; None where the run has no folder.
        start: the budgets after training.
        levels: number of score buckets.
    """

    def __init__(self, path: Path | None, start: AnswerBudget, levels: int = MAX_LEVELS) -> None:
        self._path = path
        self._start = start
        self._levels = levels
        self._in_memory = AnswerRecord.of({}, start)

    def moved(self, folder: Path) -> "AnswerStore":
        """Copy the record to a run folder; one in memory stays there, so that both runs share it.

        A record that had a file keeps it.
        """
        self.update(lambda record: write_arrays(folder / FILE, record.arrays(), private=True))
        if self._path is not None:
            return self
        return AnswerStore(folder / FILE, self._in_memory.budget)

    def update(self, change: Callable[[AnswerRecord], Done]) -> Done:
        """Read the record, change it, and write it; nobody else does so meanwhile."""
        if self._path is None:
            return change(self._in_memory)
        with locked(self._path):
            record = AnswerRecord.of(self._read(self._path), self._start)
            done = change(record)
            write_arrays(self._path, record.arrays(), private=True)
            return done

    def _read(self, path: Path) -> Arrays:
        if not path.exists():
            return {}
        try:
            arrays = read_arrays(path)
        except InputError:
            arrays = {}
        if not self._fits(arrays):
            raise InputError(
                f"{path}: is damaged, so the remaining score queries of devices are unknown; "
                "train again"
            )
        return arrays

    def _fits(self, arrays: Arrays) -> bool:
        """Return whether the arrays are a record of this number of devices."""
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
