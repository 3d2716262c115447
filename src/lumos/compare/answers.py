"""What comparisons answered to each end, recorded for an auditor.

    with recording() as tape, recording_answers(tape) as answers:
        lumos.balance(graph, settings, carrier="recording")

An entry has what one end of a comparison holds: its own value, and the answer. It is the same for
both backends, and has nothing of the other end's value.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from lumos.compare.comparer import Comparer, Signs
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program
from lumos.exchange.tape import Tape
from lumos.session.pairs import ComparedPairs
from lumos.typing import Flags, Ints


class OutcomesOfEnds(NamedTuple):
    """Outcomes that devices of one shard got at the same time."""

    position: int
    """How many entries of the tape came before."""
    device: Ints
    """[answers] who got the answer."""
    peer: Ints
    """[answers] the other end."""
    value: Ints
    """[answers] what the device put in."""
    answer: Signs
    """[answers] the sign of (own value - peer's); or 1 where S's value is below R's, else 0."""
    ways: int


class ComparisonAnswers:
    """Everything that was answered while `recording_answers`."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.entries: list[OutcomesOfEnds] = []

    def __repr__(self) -> str:
        return f"ComparisonAnswers(entries={len(self.entries)})"  # answers are private

    def add(
        self, shard: Shard, pairs: ComparedPairs, values: Ints, answer: Signs, ways: int
    ) -> None:
        """Record what the devices of a shard hold after a comparison."""
        device = shard.devices[pairs.rows]
        position = len(self._tape.passed)
        self.entries.append(
            OutcomesOfEnds(position, device, pairs.peers.copy(), values.copy(), answer.copy(), ways)
        )


class RecordingComparer:
    """A comparer whose answers are recorded."""

    def __init__(self, shard: Shard, comparer: Comparer, record: ComparisonAnswers) -> None:
        self._shard = shard
        self._comparer = comparer
        self._record = record

    def less(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Flags]:
        """For each pair, whether S's value is below R's."""
        below = yield from self._comparer.less(pairs, values, bits)
        self._record.add(self._shard, pairs, values, below.astype("int8"), 2)
        return below

    def three_way(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Signs]:
        """For each pair the sign of (own value - peer's value)."""
        signs = yield from self._comparer.three_way(pairs, values, bits)
        self._record.add(self._shard, pairs, values, signs, 3)
        return signs


_RECORD: ContextVar[ComparisonAnswers | None] = ContextVar("answers", default=None)


@contextmanager
def recording_answers(tape: Tape) -> Iterator[ComparisonAnswers]:
    """Record the answers of all comparisons meanwhile, in the order of a tape."""
    record = ComparisonAnswers(tape)
    token = _RECORD.set(record)
    try:
        yield record
    finally:
        _RECORD.reset(token)


def recorded(shard: Shard, comparer: Comparer) -> Comparer:
    """The comparer itself, or one whose answers are recorded, within `recording_answers`."""
    record = _RECORD.get()
    return comparer if record is None else RecordingComparer(shard, comparer, record)
