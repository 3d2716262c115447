"""Questions to a device after the training: about its own label, and about pairs of devices.

**Owner.** The owner of a running device asks it through a socket in the device's folder, which only
the owner can open. A question is a line of JSON, `{"ask": "label"}` or `{"ask": "link", "device":
23}`; so is the answer. The question never leaves the machine. For a pair the device then asks the
other one, by real cryptography (`PairQuestions`).

**Pairs.** Two devices score their pair without anybody else. A question is a stream of envelopes
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
from them (`write`).

| file | holds |
|---|---|
| `answers.log` | pairs that it agreed to score, its budget after each, and the scores it learnt |
| `answering.bin` | its own vectors, degree and propagated labels, and the public score buckets |

The log is written before the other file. Where it is missing or damaged later, the number of
answers that the device has given is unknown: it is refused, and no budget starts anew.
"""

import asyncio
import json
import math
import os
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from lumos.crypto import entropy
from lumos.deploy.protocol.frames import Data
from lumos.deploy.protocol.job import ANSWERS_WITH, TrainingJob
from lumos.deploy.protocol.mailbox import FORGOTTEN, Mailbox
from lumos.deploy.protocol.rounds import DeviceRounds
from lumos.deploy.state import RecordLog, read_snapshot, write_snapshot
from lumos.errors import InputError, LumosError, UsageError
from lumos.exchange.endpoint import Program, changed
from lumos.exchange.messages import Outbox
from lumos.training.trainer import PairAnswer
from lumos.typing import Arrays


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
    """

    def __init__(
        self,
        before: Iterable[PairRecord] = (),
        write: Callable[[PairRecord], None] | None = None,
    ) -> None:
        self._write = write
        self._agreed: set[int] = set()
        self._answers: dict[int, PairAnswer] = {}
        self.used = (0, 0)
        """Numbers of questions that the device has asked, and that it has answered."""
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

    def agree(self, peer: int, used: tuple[int, int]) -> None:
        """Note that both ends have agreed. Afterwards messages of the score may be sent."""
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


ANSWERS, ANSWERING = "answers.log", "answering.bin"
_REMEDY = (
    "how many answers this device has given is not known, and it answers no more; give it an "
    "empty folder for the next run, and never one from a backup"
)


class _Begun(msgspec.Struct, frozen=True, array_like=True, tag="begun"):
    """The first record: the run and the device of these answers."""

    run: str
    device: int


class AnsweringFiles:
    """The files of one device in one run.

    Args:
        folder: of the device.
        run: name of the run.
        device: id.
    """

    def __init__(self, folder: Path, run: str, device: int) -> None:
        self._log_file, self._file = folder / ANSWERS, folder / ANSWERING
        self._begun = _Begun(run, device)

    @property
    def exist(self) -> bool:
        """True once the device has something to answer with."""
        return self._file.exists()

    def begin(self, snapshot: Arrays) -> None:
        """Write the arrays that the device answers with; they are on disk when this returns.

        Args:
            snapshot: of the end of the training.
        """
        if not self._log.records:
            self._log.append(self._begun)
        self._check_log()
        kept = {name: array for name, array in snapshot.items() if name.startswith(ANSWERS_WITH)}
        about = {"run": np.array(self._begun.run), "device": np.array(self._begun.device)}
        write_snapshot(self._file, {**kept, **about, "absent": snapshot["absent"]})

    def load(self) -> Arrays:
        """Return the arrays that `TrainingJob.restore_answers` takes.

        Raises:
            InputError: a file is missing, damaged, or of another run.
        """
        self._check_log()
        arrays = read_snapshot(self._file, _REMEDY)
        if arrays is None:
            raise InputError(f"{self._file}: is missing; {_REMEDY}")
        if (str(arrays.get("run")), int(arrays.get("device", -1))) != (
            self._begun.run,
            self._begun.device,
        ):
            raise InputError(f"{self._file}: is of another run or device; {_REMEDY}")
        return arrays

    @cached_property
    def pairs(self) -> AnsweredPairs:
        """The pairs that the device has answered; every record is on disk before it counts."""
        if self.exist or self._log.records:
            self._check_log()
        before = [record for record in self._log.records if not isinstance(record, _Begun)]
        return AnsweredPairs(before, self._log.append)

    @cached_property
    def _log(self) -> RecordLog[_Begun | AgreedPair | LearntScore]:
        return RecordLog(self._log_file, _Begun | AgreedPair | LearntScore, _REMEDY)

    def _check_log(self) -> None:
        records = self._log.records
        if not records:
            raise InputError(f"{self._log_file}: is missing or empty; {_REMEDY}")
        if records[0] != self._begun:
            raise InputError(f"{self._log_file}: is of another run or device; {_REMEDY}")


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


NAME = "control.sock"
_LONGEST = 4096
_POLL = 0.02


class AskedParticipant(Protocol):
    """A device, in the training (`DeviceParticipant`) or after it (`AnsweringParticipant`)."""

    phase: int
    job: TrainingJob
    questions: PairQuestions

    @property
    def finished(self) -> bool:
        """True once the training is over."""
        ...


@asynccontextmanager
async def answering(
    folder: Path,
    participant: AskedParticipant,
    prediction: Callable[[], dict[str, Any]],
    wake: Callable[[], None],
) -> AsyncIterator[None]:
    """Answer the device's owner, inside.

    Args:
        folder: of the device.
        participant: the device.
        prediction: returns its prediction of itself, once the training is over.
        wake: makes the device go on.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await _answer(participant, prediction, wake, await reader.readline())
        except (ValueError, TypeError, KeyError):
            answer = {"error": "this is no question"}
        except LumosError as error:
            answer = {"error": str(error)}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        writer.close()

    (folder / NAME).unlink(missing_ok=True)
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        # A path of any length: those of sockets have at most 107 bytes.
        server = await asyncio.start_unix_server(
            serve, f"/proc/self/fd/{place}/{NAME}", limit=_LONGEST
        )
        (folder / NAME).chmod(0o600)
        async with server:
            yield
    finally:
        os.close(place)
        (folder / NAME).unlink(missing_ok=True)


async def _answer(
    participant: AskedParticipant,
    prediction: Callable[[], dict[str, Any]],
    wake: Callable[[], None],
    line: bytes,
) -> dict[str, Any]:
    asked = json.loads(line)
    if not participant.finished:
        raise UsageError(
            f"the training goes on: {participant.job.name(participant.phase)}; ask later"
        )
    if asked["ask"] == "label":
        return prediction()
    if asked["ask"] != "link":
        raise ValueError("another question")
    peer = int(asked["device"])
    number = participant.questions.ask(peer, time.monotonic())
    wake()
    while number not in participant.questions.answers:
        await asyncio.sleep(_POLL)
    answer = participant.questions.answers.pop(number)
    if not isinstance(answer, PairAnswer):
        raise UsageError(answer)
    return {
        "device": peer,
        "probability": 1 / (1 + math.exp(-answer.score)),
        "answered": answer.answered,
    }


def ask_device(folder: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Ask a running device; called by its owner.

    Raises:
        InputError: no device runs in this folder.
        UsageError: the device says why it has no answer.
    """
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(f"/proc/self/fd/{place}/{NAME}")
        except OSError:
            raise InputError(
                f"{folder}: no device runs here that stays after the training; start it (lumos "
                "device), with a plan that says so (lumos up --stay)"
            ) from None
        finally:
            os.close(place)
        connection.sendall(json.dumps(question).encode() + b"\n")
        received = b""
        while chunk := connection.recv(_LONGEST):
            received += chunk
    answer: dict[str, Any] = json.loads(received)
    if "error" in answer:
        raise UsageError(f"{folder}: {answer['error']}")
    return answer
