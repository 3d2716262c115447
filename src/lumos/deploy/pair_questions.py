"""Questions about pairs after the training: two devices score their pair, without anybody else.

A question is a stream of envelopes between its two ends, named by a number that the asker draws.
The first envelope of a question that a device does not know makes it answer, within its budget.
A device asks one question at a time, and answers one: each looks at the budget before it counts.
A device that is killed after the training answers no more, so a restart gives no budget anew.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lumos.crypto import entropy
from lumos.deploy.frames import Data
from lumos.deploy.mailbox import Mailbox
from lumos.deploy.rounds import DeviceRounds, Presence
from lumos.deploy.training_job import TrainingJob
from lumos.errors import LumosError, UsageError
from lumos.exchange.batch import Inbox, Outbox
from lumos.exchange.endpoint import Program
from lumos.training.trainer import PairAnswer

QUESTIONS = 1 << 30
"""The phase of all questions, after every other."""


class _Question(NamedTuple):
    rounds: DeviceRounds[PairAnswer]
    began: float
    asks: bool


class PairQuestions:
    """The questions of one device.

    Args:
        job: the device's, whose phases are over.
        deadline: seconds after which a question is given up.
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
    ) -> None:
        self._device, self._job, self._mailbox = device, job, mailbox
        self._presence, self._deadline, self._log = presence, deadline, log
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
        number = int.from_bytes(entropy.draw(7), "little")
        if peer in self._presence.out:
            self.answers[number] = f"device {peer} is left out of the run"
        else:
            self._job.check_questions()
            self._waiting.append((peer, number))
            self._next(now)
        return number

    def _next(self, now: float) -> None:
        """Begin with the next own question, if none is open."""
        if self._waiting and not self._busy(asks=True):
            peer, number = self._waiting.popleft()
            self._begin(peer, number, asks=True, now=now)

    def _busy(self, *, asks: bool) -> bool:
        return any(question.asks == asks for question in self._open.values())

    def notice(self, sender: int, data: Data, now: float) -> None:
        """An envelope of a question has arrived."""
        name = (sender, data.key.attempt)
        if name in self._open or name in self._over:
            return
        if self._busy(asks=False):
            self._mailbox.refuse(sender, data.key)
            return
        try:
            self._begin(sender, data.key.attempt, asks=False, now=now)
        except UsageError as error:
            self._log(f"device {sender} asks: {error}")
            self._over.add(name)

    def advance(self, now: float) -> None:
        """Go on with all questions as far as what has arrived allows."""
        for name, question in list(self._open.items()):
            peer, number = name
            try:
                if not question.rounds.advance(now):
                    if now - question.began > self._deadline:
                        raise UsageError(f"device {peer} did not answer")
                    continue
                answer: PairAnswer | str = question.rounds.running.result
            except LumosError as error:
                answer = str(error)
                self._mailbox.forget_attempt(QUESTIONS, number)
            del self._open[name]
            self._over.add(name)
            if question.asks:
                self.answers[number] = answer
        self._next(now)

    def _begin(self, peer: int, number: int, *, asks: bool, now: float) -> None:
        endpoint, program = self._job.question(peer, asks=asks)
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
    inbox: Inbox | None = None
    awaits = np.array([peer], np.int64)
    try:
        while True:
            outbox = next(program) if inbox is None else program.send(inbox)
            inbox = yield Outbox(outbox.topic, outbox.batch, awaits, outbox.check)
    except StopIteration as stop:
        answer: PairAnswer = stop.value
        return answer
