"""Questions about pairs after the training: two devices score their pair, without anybody else.

A question is a stream of envelopes between its two ends, named by a number that the asker draws.
The first envelope of a question that a device does not know makes it answer, within its budget.
A device asks one question at a time, and answers one: each looks at the budget before it counts.

A pair is scored once (`answered_pairs`). Asked again, either end answers its owner from memory, and
the other end not at all. Where both ask each other at the same time, the end with the lower id does
not answer, and the other one answers once its own question is over: then both know the score.

A device that is restarted has forgotten its open questions, and neither its answers nor its budget.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lumos.crypto import entropy
from lumos.deploy.answered_pairs import AnsweredPairs
from lumos.deploy.frames import Data
from lumos.deploy.mailbox import FORGOTTEN, Mailbox
from lumos.deploy.rounds import DeviceRounds, Presence
from lumos.deploy.training_job import TrainingJob
from lumos.errors import LumosError, UsageError
from lumos.exchange.batch import Outbox
from lumos.exchange.endpoint import Program
from lumos.exchange.programs import changed
from lumos.training.trainer import PairAnswer

QUESTIONS = FORGOTTEN
"""The phase of all questions, after every other."""


@dataclass
class _Question:
    rounds: DeviceRounds[PairAnswer]
    began: float
    asks: bool
    boot: bytes | None = None
    """Of the peer, as far as it is known."""


class PairQuestions:
    """The questions of one device.

    Args:
        job: the device's, whose phases are over.
        deadline: seconds after which a question is given up.
        pairs: what the device has answered.
        others: as in `DeviceParty`.
    """

    def __init__(
        self,
        device: int,
        job: TrainingJob,
        mailbox: Mailbox,
        presence: Presence,
        deadline: float,
        log: Callable[[str], None],
        pairs: AnsweredPairs,
    ) -> None:
        self._device, self._job, self._mailbox = device, job, mailbox
        self._presence, self._deadline, self._log = presence, deadline, log
        self._pairs = pairs
        self._open: dict[tuple[int, int], _Question] = {}
        self._over: set[tuple[int, int]] = set()
        self._waiting: deque[tuple[int, int]] = deque()
        """Own questions behind the one that is open, with their peers."""
        self.answers: dict[int, PairAnswer | str] = {}
        """By the number of the question: the answer, or a line that says why there is none."""

    def ask(self, peer: int, now: float) -> int:
        """Ask another device; returns the number of the question.

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
            elif peer in self._presence.out:
                self.answers[number] = f"device {peer} is left out of the run"
            else:
                self._begin(peer, number, asks=True, now=now)

    def _busy(self, *, asks: bool, peer: int | None = None) -> bool:
        """Whether a question is open, with this device or with any."""
        return any(
            question.asks == asks and peer in (None, other)
            for (other, _), question in self._open.items()
        )

    def notice(self, sender: int, data: Data, now: float) -> None:
        """An envelope of a question has arrived."""
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
        """Whether the question is over at this end; note where both ends have agreed."""
        result = self._job.check_questions()
        before = result.used
        try:
            return question.rounds.advance(now)
        finally:
            if result.used != before:
                self._pairs.agree(peer, result.used)

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
        self._job.check_questions().resume(self._pairs.used)
        willing = willing and not self._pairs.agreed(peer)
        endpoint, program = self._job.question(peer, asks=asks, willing=willing)
        rounds = DeviceRounds(
            self._device,
            self._mailbox,
            self._presence,
            endpoint,
            _between(program, peer),
            (QUESTIONS, number),
            lambda sender, line: self._log(f"device {sender}: {line}; dropped"),
            np.empty(0, np.int64),
        )
        self._open[peer, number] = _Question(rounds, now, asks)


def _between(program: Program[PairAnswer], peer: int) -> Program[PairAnswer]:
    """A program of two devices: each awaits the other in every round."""
    awaits = np.array([peer], np.int64)
    return changed(program, lambda outbox: Outbox(outbox.topic, outbox.batch, awaits, outbox.check))
