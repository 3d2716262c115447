"""How many answers a device gives in its life, and to whom.

An answer tells both ends one level, and counts at both. Of its budget a device keeps two answers
for calibration; of the rest it spends half on questions of its own, and half on those of others.
So strangers can use up the half that is for them, and no more: they never stop a device from
asking. Whoever asks pays with its own half, so m devices can ask at most m times their half, and
each of them any other device once: a pair that was answered keeps its level.

A question beyond the budget is refused. A refusal tells that many have asked before: one bit, of
the door `control`. Which questions are answered is drawn at random, not in an order that might know
of edges. A pair that is not answered is scored by what the asker knows: its own degree.
"""

from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Program
from lumos.strict.settings import ANSWERS_OF_CALIBRATION, StrictSettings
from lumos.strict.topics import CONSENT, QUESTION
from lumos.typing import Arrays, Doubles, Flags, Ints

NO_LIMIT = 1 << 40
COUNTS = ("asked", "answered", "calibrated")
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
        return AnswerBudget(**{name: np.zeros(devices, np.int64) for name in COUNTS})

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
        return AnswerBudget(**{name: arrays[f"answers/{name}"].astype(np.int64) for name in COUNTS})

    def copy(self) -> "AnswerBudget":
        """One to count in, with no effect on this one."""
        return AnswerBudget.of(self.arrays())

    def at(self, devices: Ints) -> "AnswerBudget":
        """That of some devices, copied."""
        return AnswerBudget(**{name: getattr(self, name)[devices] for name in COUNTS})

    def digest(self) -> bytes:
        """Identifies the counts."""
        return blake2b(b"".join(counts.tobytes() for counts in self.arrays().values())).digest()

    def arrays(self) -> Arrays:
        """As a file keeps them."""
        return {f"answers/{name}": getattr(self, name) for name in COUNTS}

    def given(self) -> Ints:
        """[devices] answers of each in its life."""
        given: Ints = self.asked + self.answered + self.calibrated
        return given

    def left(self, strict: StrictSettings) -> tuple[Ints, Ints]:
        """[devices] questions that each may still ask, and still answers.

        What calibration took beyond its part is taken from both halves; where one of them is used
        up already, from the other. Both together never exceed what is left of the whole budget.
        """
        asking, answering = halves(strict.answers)
        if not strict.answers:
            return np.full_like(self.asked, asking), np.full_like(self.answered, answering)
        over = np.maximum(self.calibrated - ANSWERS_OF_CALIBRATION, 0)
        whole = np.maximum(strict.answers - self.given(), 0)
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
        step: names the coins.

    Returns:
        [questions] whether each will be answered; positions of the hosted devices that answer
        somebody, and the ids of those who asked.
    """
    asking, answering = left
    chance = shard.coins.uniform_each(np.bincount(rows, minlength=len(shard)), "question", step)
    asked = _first(rows, chance, asking)
    inbox = yield QUESTION.send(shard.ids_of(rows[asked]), peers[asked], 0)
    asked_rows = shard.local(inbox.receiver)
    counts = np.bincount(asked_rows, minlength=len(shard))
    chance = shard.coins.uniform_each(counts, "consent", step)
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
