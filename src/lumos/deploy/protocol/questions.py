"""Questions between two devices after the training: the score of their pair.

Two devices score their pair without anybody else. A question is a stream of envelopes
between its two ends, named by a number that the asker draws. The first envelope of a question that
a device does not know makes it answer, within its budget. A device asks one question at a time, and
answers one: each checks the budget before it counts.

A pair is scored once (`AnsweredPairs`), and both ends keep the score. It counts from the moment
both ends have agreed, whether or not a score bucket was learnt afterwards: an end that falls silent
then may have learnt its own. Another answer would have fresh randomness, and two answers by
randomized response reveal more than one. Asked again, either end answers its owner from memory, and
the other end not at all. Where both ask each other at the same time, the end with the lower id does
not answer, and the other one answers once its own question is over: then both know the score.

**Restarts.** A device that is restarted has forgotten its open questions, and neither its answers
nor its budget. An agreement, and the number of answers used, are on disk before anything follows
from them (`write`, and the device's privacy account, whose limit is for all runs).
"""

from collections import deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

import msgspec
import numpy as np

from lumos.crypto import entropy
from lumos.deploy.protocol.frames import Data
from lumos.deploy.protocol.job import TrainingJob
from lumos.deploy.protocol.mailbox import FORGOTTEN, Mailbox
from lumos.deploy.protocol.rounds import DeviceRounds
from lumos.errors import LumosError, UsageError
from lumos.exchange.endpoint import Program, changed
from lumos.exchange.messages import Outbox
from lumos.ldp.account import QUERIES, PrivacyAccount
from lumos.training.trainer import PairAnswer


class AgreedPair(msgspec.Struct, frozen=True, array_like=True, tag="agreed"):
    """Both ends have agreed to score a pair."""

    peer: int
    asked: int
    """Questions of its own that the device has used, with this one."""
    answered: int
    """Questions of others."""


class LearntScore(msgspec.Struct, frozen=True, array_like=True, tag="learnt"):
    """The score of a pair, as this end has it."""

    peer: int
    score: float

    def __repr__(self) -> str:
        return f"LearntScore(peer={self.peer})"


PairRecord = AgreedPair | LearntScore


class AnsweredPairs:
    """The pairs of one device.

    Args:
        before: records of before a restart.
        write: makes a record survive a restart, before it returns.
        account: privacy account of the device over all runs; None for none.
    """

    def __init__(
        self,
        before: Iterable[PairRecord] = (),
        write: Callable[[PairRecord], None] | None = None,
        account: PrivacyAccount | None = None,
    ) -> None:
        self._write, self._account = write, account
        self._agreed: set[int] = set()
        self._answers: dict[int, PairAnswer] = {}
        self.used: tuple[int, ...] = (0, 0)
        """Numbers of questions that the device has asked, and that it has answered, in this run."""
        for record in before:
            self._take(record)

    def __repr__(self) -> str:
        return f"AnsweredPairs(pairs={len(self._agreed)})"

    def agreed(self, peer: int) -> bool:
        """Return whether the pair with this device counts as answered: it is not scored again."""
        return peer in self._agreed

    def answer(self, peer: int) -> PairAnswer | None:
        """Return the answer of the pair with this device; None where there is none."""
        return self._answers.get(peer)

    def for_life(self) -> tuple[int, ...]:
        """Return `used` of all runs, and questions of calibrations; without an account, `used`."""
        if self._account is None:
            return self.used
        with self._account.transaction():
            return tuple(int(self._account.spent(kind)[0]) for kind in QUERIES)

    @property
    def exhausted(self) -> bool:
        """True if the owner's limit of score queries leaves none."""
        if self._account is None or not self._account.limits.score_queries:
            return False
        return sum(self.for_life()) >= self._account.limits.score_queries

    def agree(
        self, peer: int, used: tuple[int, int], before: tuple[int, ...] | None = None
    ) -> None:
        """Note that both ends have agreed. Afterwards messages of the score may be sent.

        Args:
            used: numbers of questions asked and answered, with this one.
            before: the same without it; `for_life` by default.

        Raises:
            BudgetExceeded: the device would exceed its owner's limit.
        """
        account = self._account
        if account is not None:
            earlier = self.for_life() if before is None else before
            with account.transaction():
                for kind, one, other in zip(QUERIES, used, earlier, strict=False):
                    account.charge_each(kind, np.array([float(one - other)]), account.numbers)
        self._add(AgreedPair(peer, *used))

    def learn(self, peer: int, score: float) -> None:
        """Keep the score of a pair."""
        self._add(LearntScore(peer, score))

    def _add(self, record: PairRecord) -> None:
        if self._write is not None:
            self._write(record)
        self._take(record)

    def _take(self, record: PairRecord) -> None:
        if isinstance(record, AgreedPair):
            asked, answered = self.used
            self.used = (max(asked, record.asked), max(answered, record.answered))
            self._agreed.add(record.peer)
        else:
            self._answers[record.peer] = PairAnswer(record.score, answered=True)


QUESTIONS = FORGOTTEN
"""The phase of all questions, after every other."""


@dataclass
class _Question:
    rounds: DeviceRounds[PairAnswer]
    began: float
    asks: bool
    boot: bytes | None = None
    """The peer's present start, as far as it is known."""


class PairQuestions:
    """The questions of one device.

    Args:
        job: the device's, whose phases are over.
        out: devices that are left out for good; the device adds to this very set.
        deadline: seconds after which a question is given up.
        pairs: the pairs that the device has answered.
        others: as in `DeviceParticipant`.
    """

    def __init__(
        self,
        device: int,
        job: TrainingJob,
        mailbox: Mailbox,
        out: Set[int],
        deadline: float,
        log: Callable[[str], None],
        pairs: AnsweredPairs,
    ) -> None:
        self._device, self._job, self._mailbox = device, job, mailbox
        self._out, self._deadline, self._log = out, deadline, log
        self._pairs = pairs
        self._open: dict[tuple[int, int], _Question] = {}
        self._over: set[tuple[int, int]] = set()
        self._waiting: deque[tuple[int, int]] = deque()
        """Own questions behind the one that is open, with their peers."""
        self.answers: dict[int, PairAnswer | str] = {}
        """By the number of the question: the answer, or a line that says why there is none."""

    def ask(self, peer: int, now: float) -> int:
        """Ask another device; return the number of the question.

        Raises:
            UsageError: there is no such device, or the run did not train on links.
        """
        if not 0 <= peer < self._job.total or peer == self._device:
            raise UsageError(f"there is no other device {peer} to ask")
        self._job.check_questions()
        number = int.from_bytes(entropy.draw(7), "little")
        self._waiting.append((peer, number))
        self._next(now)
        return number

    def _next(self, now: float) -> None:
        """Begin with the next own questions, while none is open."""
        while self._waiting and not self._busy(asks=True):
            if self._busy(asks=False, peer=self._waiting[0][0]):
                return  # the score of that question is the answer to this one
            peer, number = self._waiting.popleft()
            learnt = self._pairs.answer(peer)
            if learnt is not None:
                self.answers[number] = learnt
            elif peer in self._out:
                self.answers[number] = f"device {peer} is left out of the run"
            else:
                self._begin(peer, number, asks=True, now=now)

    def _busy(self, *, asks: bool, peer: int | None = None) -> bool:
        """Return whether a question is open, with this device or with any."""
        return any(
            question.asks == asks and peer in (None, other)
            for (other, _), question in self._open.items()
        )

    def notice(self, sender: int, data: Data, now: float) -> None:
        """Handle an envelope of a question that has arrived."""
        name = (sender, data.key.attempt)
        if name in self._open or name in self._over:
            return
        if data.key.number:  # the device was restarted since the question began
            self._mailbox.drop(sender, data.key)
            return
        mutual = self._busy(asks=True, peer=sender)
        if self._busy(asks=False) or (mutual and self._device > sender):
            self._mailbox.refuse(sender, data.key)
            return
        try:
            self._begin(sender, data.key.attempt, asks=False, willing=not mutual, now=now)
        except UsageError as error:
            self._log(f"device {sender} asks: {error}")
            self._over.add(name)

    def advance(self, now: float) -> None:
        """Go on with all questions as far as what has arrived allows.

        What the device has agreed to is kept before this returns, and so before it sends anything
        that follows.
        """
        for name, question in list(self._open.items()):
            peer, number = name
            try:
                if not self._go_on(peer, question, now):
                    self._check_time(peer, question, now)
                    continue
                answer: PairAnswer | str = question.rounds.running.result
            except LumosError as error:
                answer = str(error)
                self._mailbox.forget_attempt(QUESTIONS, number)
            del self._open[name]
            self._over.add(name)
            if isinstance(answer, PairAnswer) and answer.answered:
                self._pairs.learn(peer, answer.score)
            if question.asks:
                self.answers[number] = answer
        self._next(now)

    def _go_on(self, peer: int, question: _Question, now: float) -> bool:
        """Return whether the question is over at this end; record the agreement of both ends."""
        result = self._job.check_questions()
        before = result.used
        try:
            return question.rounds.advance(now)
        finally:
            if result.used != before:
                self._pairs.agree(peer, result.used, before)

    def _check_time(self, peer: int, question: _Question, now: float) -> None:
        """Give up a question that gets no answer any more.

        Raises:
            UsageError: it gets none.
        """
        if now - question.began > self._deadline:
            raise UsageError(f"device {peer} did not answer")
        boot = self._mailbox.boot_of(peer)
        question.boot = question.boot or boot
        if boot != question.boot and not question.asks:
            raise UsageError(f"device {peer} was restarted, and has forgotten its question")

    def _begin(
        self, peer: int, number: int, *, asks: bool, now: float, willing: bool = True
    ) -> None:
        self._job.check_questions().resume(self._pairs.for_life())
        willing = willing and not self._pairs.agreed(peer) and not self._pairs.exhausted
        endpoint, program = self._job.question(peer, asks=asks, willing=willing)
        rounds = DeviceRounds(
            me=self._device,
            mailbox=self._mailbox,
            out=self._out,
            endpoint=endpoint,
            program=_between(program, peer),
            phase=(QUESTIONS, number),
            refused=lambda sender, line: self._log(f"device {sender}: {line}; dropped"),
            neighbours=np.empty(0, np.int64),
        )
        self._open[peer, number] = _Question(rounds, now, asks)


def _between(program: Program[PairAnswer], peer: int) -> Program[PairAnswer]:
    """Return a program of two devices in which each awaits the other in every round."""
    awaits = np.array([peer], np.int64)
    return changed(program, lambda outbox: Outbox(outbox.topic, outbox.batch, awaits, outbox.check))
