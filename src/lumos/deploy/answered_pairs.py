"""What a device has answered about pairs: each is scored once, and both ends keep what they learnt.

A pair counts from the moment both ends have agreed, whether or not a level was learnt afterwards:
an end that falls silent then may have learnt its own. Another answer would have fresh coins, and
with randomized response two answers tell more than one. Asked again, a device answers from memory.

What a device agreed to survives a restart before anything follows from it (`write`). So does the
number of answers that it has used: its budget never starts anew.
"""

from collections.abc import Callable, Iterable

import msgspec

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
        """How many questions the device has asked, and how many of others it has answered."""
        for record in before:
            self._take(record)

    def __repr__(self) -> str:
        return f"AnsweredPairs(pairs={len(self._agreed)})"

    def agreed(self, peer: int) -> bool:
        """Whether the pair with this device counts as answered: it is not scored again."""
        return peer in self._agreed

    def answer(self, peer: int) -> PairAnswer | None:
        """What was learnt of the pair with this device; None where nothing was."""
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
