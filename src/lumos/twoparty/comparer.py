"""Comparisons in rounds: what the tree constructor asks, whichever backend answers.

Both ends of a pair take part, each on behalf of its own device, in the same rounds. The end with
the smaller id is the sender S of the protocol, the other one the receiver R.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from lumos.crypto.groups import ED25519, Group
from lumos.device.shard import Shard
from lumos.errors import BudgetExceeded, UsageError
from lumos.exchange.counts import ANSWER_BITS
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.ledger import Ledger
from lumos.exchange.messages import Door, Topic
from lumos.exchange.tape import Tape
from lumos.secagg.openings import anyone, count_for_everyone
from lumos.twoparty.comparison import PROTOCOL, Kind, Spec, messages
from lumos.twoparty.workers import (
    NO_RESULT,
    BatchBooking,
    ComparedPairs,
    OnSteps,
    PartyBatch,
    Workers,
    count_answers,
    swap_in_clear,
)
from lumos.typing import Flags, Ints

Signs = npt.NDArray[np.int8]

spec_of = cache(Spec)
"""Specs that are revealed to both ends, made once."""

LENGTHS = (4, 8, 12, 16, 20, 24, 28, 32)
"""Bit lengths ℓ that devices agree on; the first to which nobody objects is used."""


class Comparer(Protocol):
    """A backend: `secure` runs the protocol, `ideal` computes in the clear and is labelled so.

    A value above 2^bits - 1 saturates there. Where the peer's messages are refused or missing, the
    two are level, now and for the rest of the run: one wrong answer at a time, and no error.
    """

    def less(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Flags]:
        """For each pair, whether S's value is below R's. Both ends learn this bit."""
        ...

    def three_way(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Signs]:
        """For each pair the sign of (own value - peer's value). Both ends learn it."""
        ...


class RefusingComparer:
    """The comparer of a balancer that declares that it compares nothing."""

    def less(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Flags]:
        """Refuse."""
        raise UsageError(_UNDECLARED)

    def three_way(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Signs]:
        """Refuse."""
        raise UsageError(_UNDECLARED)


_UNDECLARED = "this balancer declares that it compares nothing; set its `compares` to True"


def at_least(
    comparer: Comparer, pairs: ComparedPairs, values: Ints, asker: Flags, bits: int
) -> Program[Flags]:
    """For each pair, whether the asker's value is at least the other's: one bit, for both ends.

    Args:
        asker: [pairs] True where the hosted device is the asker.
    """
    # asker is S:  [a ≥ b] = ¬[a < b].   asker is R:  [a ≥ b] = [b < a + 1].
    values = np.minimum(values, 2**bits - 2)  # room for the + 1
    below = yield from comparer.less(pairs, values + (asker & ~pairs.first), bits)
    answer: Flags = below ^ (asker == pairs.first)
    return answer


def agree_on_length(shard: Shard, largest: Ints) -> Program[int]:
    """The public ℓ: the smallest that holds every device's largest value. `largest`: [hosted]."""
    for bits in LENGTHS[:-1]:
        if not (yield from anyone(shard, largest >= 2**bits)):
            return bits
    return LENGTHS[-1]


def count_objections(devices: Ints) -> Program[None]:
    """The coordinator's part in `agree_on_length`. `devices`: ids of all that take part."""
    for _ in LENGTHS[:-1]:
        if not (yield from count_for_everyone(devices)):
            return


# Open sessions of pairs. Both ends keep the same record, without a message.


class Sessions:
    """Open sessions of the hosted devices, and what they may still reveal.

    Args:
        budget: most bits that the answers of one pair may reveal, or None.
        group: of the points that they send.
    """

    def __init__(self, shard: Shard, ledger: Ledger, budget: float | None, group: Group) -> None:
        self._ledger = ledger
        self._group = group.name
        self._budget = budget
        self._near = np.zeros(len(shard.neighbours), np.bool_)
        self._closed = len(shard.neighbours)  # neighbours without a session
        self._far: set[tuple[int, int]] = set()

    def open(self, pairs: ComparedPairs, bits: int, ways: int) -> Flags:
        """Open a session for each pair that has none; True where it was opened just now.

        Counts the answers that the pairs are about to learn, and raises `BudgetExceeded`,
        before anything is sent, if that were too many for one of them.
        """
        if len(pairs):
            self._ledger.lengths.add(bits)
            self._ledger.groups.add(self._group)
        self._reveal(pairs, ways)
        if pairs.near:
            if not self._closed:
                return np.zeros(len(pairs), np.bool_)
            fresh = ~self._near[pairs.slots]
            self._near[pairs.slots] = True
            self._closed -= int(fresh.sum())
            return fresh
        fresh = np.zeros(len(pairs), np.bool_)
        of_pairs = zip(pairs.rows.tolist(), pairs.peers.tolist(), pairs.slots.tolist(), strict=True)
        for index, (row, peer, slot) in enumerate(of_pairs):
            if slot >= 0:
                fresh[index] = not self._near[slot]
                self._closed -= int(fresh[index])
                self._near[slot] = True
            elif (row, peer) not in self._far:
                fresh[index] = True
                self._far.add((row, peer))
        return fresh

    def _reveal(self, pairs: ComparedPairs, ways: int) -> None:
        ledger = self._ledger
        if self._budget is not None and len(pairs):
            bits = (
                ledger.answers.pair_bits(pairs.rows, pairs.slots, pairs.peers) + ANSWER_BITS[ways]
            )
            most = float(bits.max())
            if most > self._budget + 1e-9:
                # Who compares with whom is private: the pair is not named.
                raise BudgetExceeded(
                    f"two devices would reveal {most:.1f} comparison bits to each other; the "
                    f"budget is {self._budget:g}. Raise `comparison_budget` or use a balancer that "
                    "asks less"
                )
        count_answers(ledger, pairs, ways)


# The ideal comparison: computed in the clear, booked as the secret one, labelled `ideal`.
#
# For simulations only. The two values meet in one swap; the ledger books, by formula, the messages,
# bytes and rounds that the secret comparison would have needed.

CLEAR = Topic(
    name="compare/ideal",
    door=Door.COMPARE,
    dtype=np.int64,
    learns="both ends learn the answer (a simulation computed it in the clear)",
)
IDEAL_TOPICS = frozenset({CLEAR})
"""The topics that a transport has to permit for this backend."""


class IdealComparer:
    """The backend `ideal` of one shard.

    Args:
        budget: most bits that the answers of one pair may reveal, or None.
        group: whose secret comparison is booked: its points have a size.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        budget: float | None = None,
        group: Group = ED25519,
    ) -> None:
        self._shard = shard
        self._point = group.point_bytes
        self._ledger = endpoint.ledger
        self._ledger.require_permission(CLEAR)
        self._sessions = Sessions(shard, endpoint.ledger, budget, group)

    def less(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Flags]:
        """For each pair, whether S's value is below R's."""
        mine, theirs = yield from self._meet(pairs, values, spec_of(bits, Kind.LT))
        return np.where(pairs.first, mine < theirs, theirs < mine)

    def three_way(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Signs]:
        """For each pair the sign of (own value - peer's value)."""
        mine, theirs = yield from self._meet(pairs, values, spec_of(bits, Kind.THREE_WAY))
        signs: Signs = np.sign(mine - theirs).astype(np.int8)
        return signs

    def _meet(self, pairs: ComparedPairs, values: Ints, spec: Spec) -> Program[tuple[Ints, Ints]]:
        mine = np.minimum(values, 2**spec.bits - 1)
        fresh = self._sessions.open(pairs, spec.bits, spec.ways)
        theirs = yield from swap_in_clear(CLEAR, self._shard, pairs, mine)
        plan = messages((spec,), first=False, point=self._point)
        BatchBooking.of(plan, self._point).book(self._ledger, CLEAR, pairs, fresh)
        return mine, theirs


# The secret comparison in rounds: real messages through the exchange, one party for each end.

SECRET = Topic(
    name="compare",
    door=Door.COMPARE,
    shape=None,
    learns="both ends learn the answer, and nothing else of the other's value",
)


class SecureComparer:
    """The backend `secure` of one shard.

    Guarantee: against a semi-honest peer, what a device receives here is a function of its own
    input and the answer (see docs/protocols.md for the assumptions).
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        workers: Workers,
        on_steps: OnSteps | None = None,
        budget: float | None = None,
        group: Group = ED25519,
    ) -> None:
        self._shard = shard
        self._sessions = Sessions(shard, endpoint.ledger, budget, group)
        self._group = group
        self._workers = workers
        self._on_steps = on_steps

    def less(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Flags]:
        """For each pair, whether S's value is below R's."""
        learned = yield from self._compare(pairs, values, spec_of(bits, Kind.LT))
        below: Flags = learned != 0
        return below

    def three_way(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Signs]:
        """For each pair the sign of (own value - peer's value)."""
        learned = yield from self._compare(pairs, values, spec_of(bits, Kind.THREE_WAY))
        return np.where(pairs.first, learned, -learned).astype(np.int8)

    def _compare(self, pairs: ComparedPairs, values: Ints, spec: Spec) -> Program[Ints]:
        fresh = self._sessions.open(pairs, spec.bits, spec.ways)
        batch = PartyBatch(
            SECRET, "compare", self._group, self._shard, self._workers, self._on_steps, pairs
        )
        batch.begin(*PROTOCOL.encode(spec, np.minimum(values, 2**spec.bits - 1)))
        point = self._group.point_bytes
        opening, *_ = messages((spec,), first=True, point=point)
        plan = messages((spec,), first=False, point=point)
        learned = yield from batch.run(opening, plan, fresh)
        learned[learned == NO_RESULT] = 0
        return learned


# A record of the answers of comparisons, for an auditor.
#
#     with recording() as tape, recording_answers(tape) as answers:
#         lumos.balance(graph, settings, transport="recording")
#
# An entry has what one end of a comparison holds: its own value, and the answer. It is the same for
# both backends, and has nothing of the other end's value.


class OutcomesOfEnds(NamedTuple):
    """Outcomes that devices of one shard got at the same time."""

    position: int
    """Number of entries of the tape before these."""
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
