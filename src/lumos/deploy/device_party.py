"""A device of a real run: its phases over its mailbox, snapshots between them.

Nothing is sent and no clock is read here. Whoever runs it hands in what arrives (`receive`) and the
time, and sends what `due` returns.

A phase that cannot be repeated ends for all or for nobody: a device that has finished it keeps its
result on disk beside the snapshot, says that it is *ready*, and goes on once the coordinator says
that everyone is. Until then the phase may begin again, from the snapshot.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec
import numpy as np

from lumos.deploy.frames import Alive, Closed, Data, Frame, RoundKey, RunState
from lumos.deploy.mailbox import Mailbox
from lumos.deploy.pair_questions import QUESTIONS, PairQuestions
from lumos.deploy.rounds import DeviceRounds, RoundRecord
from lumos.deploy.training_job import TrainingJob
from lumos.device.shard import COORDINATOR
from lumos.errors import InputError, LumosError, ProtocolError
from lumos.storage import part_of
from lumos.typing import Arrays, Bytes

OUTGOING = "outgoing"
"""In a snapshot: envelopes that others may still need."""
NEXT, ATTEMPT = "next/", "attempt"
"""In a snapshot: the end of the phase, of this attempt, while others are still in it."""
MOST_ATTEMPTS = 16
"""Attempts at a phase. In each a peer that lies compares, or scores, with what it likes."""
LEDGERS = ("ledger/", "earlier/")
_OUTGOING = msgspec.msgpack.Decoder(list[tuple[int, Data]])


class DeviceStore(Protocol):
    """Where a device keeps what must survive a restart."""

    def load(self) -> Arrays | None:
        """The last snapshot; None before the first."""
        ...

    def save(self, snapshot: Arrays) -> None:
        """Replace the snapshot, all or nothing, before it returns; forget rounds before it."""
        ...

    def ledgers(self) -> Arrays | None:
        """The ledgers, where they were kept after the last snapshot."""
        ...

    def keep_ledgers(self, ledgers: Arrays) -> None:
        """Keep the ledgers of a phase that cannot be repeated: what was revealed is revealed."""
        ...

    def rounds(self) -> RoundRecord:
        """Rounds since the last snapshot."""
        ...

    def add_round(self, key: RoundKey, envelopes: dict[int, Data]) -> None:
        """Keep what the device was told in a round, before anything follows from it."""
        ...

    def begin(self, phase: int, attempt: int) -> None:
        """Note that an attempt at a phase begins that cannot be repeated."""
        ...

    def begun(self, phase: int) -> int:
        """The least attempt at a phase that has not begun."""
        ...


class DeviceParty:
    """One device.

    Args:
        device: its id.
        job: its phases; not begun.
        store: what survives a restart.
        boot: random bytes of this start.
        beat: seconds between two signs of life.
        deadline: seconds after which a question to another device is given up.
        now: the time.
        log: called with a line, without anything private, where a message was dropped.
    """

    def __init__(
        self,
        device: int,
        job: TrainingJob,
        store: DeviceStore,
        boot: bytes,
        beat: float,
        deadline: float,
        now: float,
        log: Callable[[str], None],
    ) -> None:
        self.device, self.job = device, job
        self._store, self._beat, self._log = store, beat, log
        saved, ledgers = store.load(), store.ledgers()
        self._at_start = job.snapshot(0)
        self.phase = 0
        if saved is not None:
            self.phase = job.restore(saved, ledgers)
        elif ledgers is not None:
            job.restore_ledgers(ledgers)
        self.attempt = 0
        self.out: set[int] = set()
        self.ended: str | None = None
        """As `RunState.ended`."""
        self._mailbox = Mailbox(boot, self.phase)
        self._next_beat = now
        self._rounds: DeviceRounds[None] | None = None
        self._least_attempt = store.begun(self.phase)
        if saved is not None and not job.repeatable(self.phase):
            self._least_attempt = max(1, self._least_attempt)  # its sessions are lost
        self._ready = part_of(saved or {}, NEXT)
        """What the next phase begins with, while the device waits for the others."""
        self._restored = bool(self._ready)
        if self._ready:
            self.attempt = int(self._ready.pop(ATTEMPT))
        self._recorded = store.rounds()
        self.questions = PairQuestions(device, job, self._mailbox, self, deadline, log)
        self._mailbox.greet([COORDINATOR], now)
        for receiver, data in _outgoing(saved):
            self._mailbox.post(receiver, data, now)

    @property
    def finished(self) -> bool:
        """Whether all phases are over; the device stays, for those who need its envelopes."""
        return self.phase > self.job.last

    def receive(self, sender: int, frames: list[Frame], now: float) -> None:
        """Take what has arrived from another party."""
        for frame in frames:
            if self._mailbox.receive(sender, frame, now):
                if isinstance(frame, Data) and frame.key.phase == QUESTIONS and self.finished:
                    self.questions.notice(sender, frame, now)
                continue
            if sender != COORDINATOR:
                self._log(f"device {sender} speaks in place of the coordinator; dropped")
            elif isinstance(frame, RunState):
                try:
                    self._follow(frame)
                except LumosError as error:
                    self._stop(error)
            elif isinstance(frame, Closed) and self._rounds is not None:
                self._rounds.close(frame)

    def advance(self, now: float) -> None:
        """Go on as far as what has arrived allows.

        A device whose program refuses what the coordinator says stops, and says why in `ended`.
        """
        try:
            self._advance(now)
            self.questions.advance(now)
        except LumosError as error:
            self._stop(error)

    def _stop(self, error: LumosError) -> None:
        self.ended = f"{self.job.name(min(self.phase, self.job.last))}: {error}"
        self._rounds = None

    def _advance(self, now: float) -> None:
        while self.ended is None and not self.finished:
            if self._ready:
                return
            if self._rounds is None:
                if self.attempt < self._least_attempt:
                    return  # sessions of an earlier attempt are lost: it cannot go on with that
                self._rounds = self._begin()
            before = self._rounds.completed
            finished = self._rounds.advance(now)
            if self._rounds.completed > before and not self.job.repeatable(self.phase):
                self._store.keep_ledgers(self.job.ledgers())
            if not finished:
                return
            self._rounds = None
            if not self.job.repeatable(self.phase):
                self._wait_for_others()
                return
            self._go_on(self._snapshot())

    def _wait_for_others(self) -> None:
        """Keep the end of a phase that may begin again beside what it began with."""
        self._ready = self._snapshot()
        before = {
            name: array
            for name, array in (self._store.load() or self._at_start).items()
            if not name.startswith((NEXT, *LEDGERS))
        }
        after = {f"{NEXT}{name}": array for name, array in self._ready.items()}
        after[f"{NEXT}{ATTEMPT}"] = np.array(self.attempt)
        mail = _encoded(self._mailbox.outgoing(coordinator=True))
        self._store.save({**before, **after, **self.job.ledgers(), OUTGOING: mail})
        self._mailbox.tell(COORDINATOR, self._alive())

    def _go_on(self, snapshot: Arrays) -> None:
        """Begin the next phase."""
        self.phase += 1
        self.attempt = self._least_attempt = 0
        self._store.save(snapshot)
        self._recorded = {}
        self._mailbox.settle(self.phase)
        if self._restored:
            self.job.restore(snapshot)
            # Sessions of the phase before are lost.
            self._least_attempt = int(not self.job.repeatable(self.phase))
        self._ready, self._restored = {}, False
        self._mailbox.tell(COORDINATOR, self._alive())

    def _alive(self) -> Alive:
        if self._ready:
            return Alive(self.phase, self.attempt, ready=True)
        return Alive(self.phase, max(self.attempt, self._least_attempt))

    def say_farewell(self) -> None:
        """Tell the coordinator that the device has heard of the end."""
        self._mailbox.tell(COORDINATOR, Alive(self.job.last + 2, 0))

    def due(self, now: float) -> list[tuple[int, list[Frame]]]:
        """What is to be sent now, by receiver."""
        if now >= self._next_beat and not self.ended:
            self._next_beat = now + self._beat
            self._mailbox.tell(COORDINATOR, self._alive())
            if self._rounds is not None:
                self._rounds.say_done()
        return self._mailbox.due(now)

    def next_due(self) -> float:
        """When `due` has something to send, if nothing arrives."""
        beat = float("inf") if self.ended else self._next_beat
        return min(beat, self._mailbox.next_due())

    def _snapshot(self) -> Arrays:
        """What the next phase begins with."""
        mail = _encoded(self._mailbox.outgoing())
        return {**self.job.snapshot(self.phase + 1), OUTGOING: mail}

    def _begin(self) -> DeviceRounds[None]:
        job, repeatable = self.job, self.job.repeatable(self.phase)
        if not repeatable:
            self._store.begin(self.phase, self.attempt)
        return DeviceRounds(
            self.device,
            self._mailbox,
            self,
            job.endpoint_of(self.phase),
            job.program(self.phase, self.attempt),
            (self.phase, self.attempt),
            lambda sender, line: self._log(f"{_name(sender)}: {line}; dropped"),
            job.shard.neighbours,
            self._store.add_round if repeatable else None,
            self._recorded if repeatable else None,
        )

    def _follow(self, state: RunState) -> None:
        """What the coordinator says of the run."""
        for device in set(state.out) - self.out:
            self.out.add(device)
            self._mailbox.leave_out(device)
        if self.job.total - len(self.out) < self.job.minimum and self.ended is None:
            self.ended = f"fewer than {self.job.minimum} devices are left"
        if self.device in self.out and self.ended is None:
            self.ended = "this device did not answer in time, and is left out of the run"
        if self._ready and state.phase > self.phase and self.ended is None:
            self._go_on(self._ready)
        if state.ended is not None and (state.ended or self.finished):
            self.ended = state.ended
        if state.phase == self.phase and state.attempt > self.attempt:
            self._restart(state.attempt)

    def _restart(self, attempt: int) -> None:
        """Begin the phase again: an attempt at it was given up."""
        if self.job.repeatable(self.phase):
            raise ProtocolError("the coordinator gave up an attempt at a phase that has only one")
        if attempt >= MOST_ATTEMPTS:
            raise ProtocolError(
                f"it began again {MOST_ATTEMPTS} times, and every time tells others something"
            )
        self._mailbox.forget_attempt(self.phase, self.attempt)
        self.attempt = attempt
        self._rounds, self._ready, self._restored = None, {}, False
        self.job.leave_out(self.out, self._store.load())


def _encoded(outgoing: list[tuple[int, Data]]) -> Bytes:
    return np.frombuffer(msgspec.msgpack.encode(outgoing), np.uint8)


def _outgoing(snapshot: Arrays | None) -> list[tuple[int, Data]]:
    """Envelopes of earlier phases that others may still need.

    Raises:
        InputError: the snapshot is damaged.
    """
    if snapshot is None:
        return []
    try:
        return _OUTGOING.decode(snapshot[OUTGOING].tobytes())
    except (KeyError, ValueError, msgspec.MsgspecError):
        raise InputError("the snapshot is damaged: envelopes to others cannot be read") from None


def _name(party: int) -> str:
    return "the coordinator" if party == COORDINATOR else f"device {party}"
