"""A device of a real run: its phases over its mailbox, snapshots between them.

Nothing is sent and no clock is read here. Whoever runs it hands in what arrives (`receive`) and the
time, and sends what `due` returns.

**Ticks.** Everything to the coordinator leaves at ticks, whose length is in the plan, by the
device's clock: messages, acknowledgements, repetitions, signs of life. At a tick the device sends
what is ready, and then takes what the coordinator has sent since the last one. So what leaves at
a tick is a function of what the coordinator sent before the tick before, and of nothing that other
devices sent: rounds between devices end when the coordinator closes them (`rounds`).

In the trees, which have thousands of rounds, a device takes what the coordinator sends as it comes.
It sends its first flags of a round, or of a stage, not before the second tick after that: what
leaves at a tick is still a function of what the coordinator sent a whole tick before, or of what
the two ends of a pair that it named work out.

A device that is killed goes on from its snapshot, and with the rounds that it has recorded since.

A phase with sessions of two devices ends for all or for nobody: a device that has finished it sends
that it is *ready*, and goes on once the coordinator announces that everyone is. Until then the
phase may begin again from the snapshot, without a device that is lost.

A device that is started again after the training answers, and has no other part in the run
(`AnsweringParticipant`). The coordinator may be gone by then, and so is the device's secret of the
run: a question needs its two ends and the broker.
"""

import math
from collections.abc import Callable, Set
from typing import Protocol

import msgspec
import numpy as np

from lumos.deploy.identity import described
from lumos.deploy.protocol.frames import Alive, Closed, Data, Frame, RunState
from lumos.deploy.protocol.job import TrainingJob
from lumos.deploy.protocol.mailbox import Mailbox
from lumos.deploy.protocol.questions import QUESTIONS, AnsweredPairs, PairQuestions
from lumos.deploy.protocol.rounds import DeviceRounds, FlagMasks, ParticipantStore, tick_before
from lumos.device.shard import COORDINATOR
from lumos.errors import InputError, LumosError, ProtocolError
from lumos.typing import Arrays, Bytes

OUTGOING = "outgoing"
"""In a snapshot: envelopes that others may still need."""
MAX_WAITING = 4096
"""Frames of the coordinator that wait for a tick; what comes then is dropped."""
MAX_ATTEMPTS = 16
"""Attempts at a phase. In each a peer that lies compares, or scores, with what it likes."""
_OUTGOING = msgspec.msgpack.Decoder(list[tuple[int, Data]])


class DeviceStore(ParticipantStore, Protocol):
    """The state of a device that survives a restart."""

    def peers(self) -> set[int]:
        """Return the devices whose envelopes have arrived."""
        ...

    def add_peer(self, device: int) -> None:
        """Record that an envelope of this device has arrived, before it is acknowledged."""
        ...


class DeviceParticipant:
    """One device.

    Args:
        device: its id.
        job: its phases; not begun.
        store: what survives a restart.
        boot: random bytes of this start.
        pair_key: from the id of a device to 32 bytes that only it and this one know.
        tick: seconds between two ticks.
        beat: seconds between two signs of life.
        deadline: seconds after which a question to another device is given up; and after which a
            device that has finished takes the run for ended without a frame of the coordinator.
        now: the time.
        log: called with a line, without anything private, where a message was dropped.
        pairs: answered pairs, also of before a restart; None: none, and in memory only.
        tree_tick: seconds between two ticks while trees are built; None: as long.
    """

    rounds_type: type[DeviceRounds[None]] = DeviceRounds
    masks_type: type[FlagMasks] = FlagMasks
    mailbox_type: type[Mailbox] = Mailbox

    def __init__(
        self,
        device: int,
        job: TrainingJob,
        store: DeviceStore,
        boot: bytes,
        pair_key: Callable[[int], bytes],
        tick: float,
        beat: float,
        deadline: float,
        now: float,
        log: Callable[[str], None],
        pairs: AnsweredPairs | None = None,
        tree_tick: float | None = None,
    ) -> None:
        self.device, self.job = device, job
        self._store, self._beat, self._log = store, beat, log
        self._masks = self.masks_type(device, job.total, job.public, pair_key)
        self._ticks = tick, tick if tree_tick is None else tree_tick
        self._next_tick: float = math.inf
        """The number of the next tick that is used; infinite while there is nothing to do."""
        self._waiting: list[Frame] = []
        """Messages of the coordinator since the last tick."""
        self._taken: list[Frame] = []
        """Earlier messages of the coordinator that are not handled yet."""
        self._deadline, self._last_received = deadline, now
        saved = store.load()
        self.phase = 0 if saved is None else job.load_state_dict(saved)
        begun = store.begun(self.phase)
        if begun is not None:
            job.leave_out(begun.absent, saved)
            job.ledgers.load_state_dict(begun.ledgers)
        self.attempt = 0 if begun is None else begun.attempt
        self.out: set[int] = set(job.absent)
        self.ended: str | None = None
        """As `RunState.ended`."""
        self._mailbox = self.mailbox_type(boot, self.phase, job.unread, log)
        self._next_beat = now
        self._rounds: DeviceRounds[None] | None = None
        self._ready: Arrays = {}
        """The snapshot of the next phase, while the device waits for the others."""
        self._recorded = store.rounds()
        pairs = pairs or AnsweredPairs()
        self.questions = PairQuestions(device, job, self._mailbox, self.out, deadline, log, pairs)
        for absent in self.out:
            self._mailbox.leave_out(absent)
        # Whoever has sent something sends it again: also one that is no neighbour.
        self._peers = store.peers()
        self._came_back = bool(self._peers or self._recorded)
        self._mailbox.greet([COORDINATOR, *sorted(self._peers)], now)
        for receiver, data in _outgoing(saved):
            self._mailbox.post(receiver, data, now)
        self._plan_tick(now)

    @property
    def _tick(self) -> float:
        """Seconds between two ticks in the present phase."""
        return self._ticks[self._is_prompt]

    def unread(self, sender: int) -> int:
        """Return the bytes of another participant that wait to be read."""
        return self._mailbox.unread(sender)

    @property
    def finished(self) -> bool:
        """True once all phases are over; the device stays, as others may need its envelopes."""
        return self.phase > self.job.last

    def receive(self, sender: int, frames: list[Frame], now: float) -> None:
        """Take frames from another participant; the coordinator's are handled at the next tick."""
        if sender == COORDINATOR:
            self._last_received = now
            waiting = self._taken if self._is_prompt else self._waiting
            waiting += frames[: MAX_WAITING - len(waiting)]
            self._plan_tick(now)
            return
        for frame in frames:
            if isinstance(frame, Data):
                self._remember(sender)
            if not self._mailbox.receive(sender, frame, now):
                self._log(f"device {sender} speaks in place of the coordinator; dropped")
            elif isinstance(frame, Data) and frame.key.phase == QUESTIONS and self.finished:
                self.questions.notice(sender, frame, now)

    @property
    def _is_prompt(self) -> bool:
        """True in a phase in which the coordinator's messages are handled as they come."""
        return self.job.is_prompt(self.phase)

    def _handle_taken(self, now: float) -> None:
        """Handle what the coordinator sent before the last tick."""
        taken, self._taken = self._taken, []
        for frame in taken:
            if self._mailbox.receive(COORDINATOR, frame, now):
                continue
            if isinstance(frame, RunState):
                self._follow(frame)
            elif isinstance(frame, Closed) and self._rounds is not None:
                self._rounds.close(frame)

    def _remember(self, sender: int) -> None:
        """Record the sender, while phases are left in which the device may be restarted."""
        if sender != COORDINATOR and sender not in self._peers and not self.finished:
            self._store.add_peer(sender)
            self._peers.add(sender)

    def advance(self, now: float) -> None:
        """Go on as far as what has arrived allows.

        A device whose program refuses a message of the coordinator stops; `ended` has the reason.
        """
        try:
            self._handle_taken(now)
            self._advance(now)
            self.questions.advance(now)
            if self.finished and self.ended is None and now - self._last_received > self._deadline:
                self.ended = ""  # the coordinator leaves when all have finished
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
                self._rounds = self._begin()
            if not self._rounds.advance(now):
                return
            self._rounds = None
            snapshot = self._snapshot()
            if self.job.has_sessions(self.phase):
                self._ready = snapshot
                self._mailbox.tell(COORDINATOR, self._alive())
                return
            self._go_on(snapshot)

    def _go_on(self, snapshot: Arrays) -> None:
        """Begin the next phase."""
        self.phase += 1
        self.attempt = 0
        self._store.save(snapshot)
        self._recorded, self._ready, self._came_back = {}, {}, False
        self._next_tick = math.inf  # numbers of ticks of another length
        self._mailbox.settle(self.phase)
        self._mailbox.tell(COORDINATOR, self._alive())

    def _alive(self) -> Alive:
        if self.ended == "":  # also of one that stays
            return self._farewell()
        return Alive(self.phase, self.attempt, ready=bool(self._ready))

    def say_farewell(self) -> None:
        """Send the coordinator that the device knows of the end."""
        self._mailbox.tell(COORDINATOR, self._farewell())

    def _farewell(self) -> Alive:
        return Alive(self.job.left, 0)

    def due(self, now: float) -> list[tuple[int, list[Frame]]]:
        """Return the frames to send now, by receiver; to the coordinator at ticks only."""
        tick = tick_before(now, self._tick)
        hold: tuple[int, ...] = (COORDINATOR,)
        if tick >= self._next_tick:
            hold, self._next_tick = (), math.inf
            if now >= self._next_beat and not self.ended:
                self._next_beat = now + self._beat
                self._store.sync()
                self._mailbox.tell(COORDINATOR, self._alive())
            flags = None if self._rounds is None else self._rounds.flags(tick)
            if flags is not None:
                self._mailbox.tell(COORDINATOR, flags)
            self._taken += self._waiting
            self._waiting = []
        packets = self._mailbox.due(now, hold)
        if packets:
            self._store.write()
        self._plan_tick(now)
        return packets

    def _plan_tick(self, now: float) -> None:
        """Plan the next tick at which something is sent to the coordinator, or taken from it."""
        first = tick_before(now, self._tick) + 1
        if self._rounds is not None:
            self._next_tick = min(self._next_tick, self._rounds.next_flags(first))
        wanted = now
        if not self._waiting:
            beat = math.inf if self.ended else self._next_beat
            wanted = min(beat, self._mailbox.next_due_to(COORDINATOR))
        if wanted < math.inf:
            tick = math.ceil(wanted / self._tick - 1e-6)
            self._next_tick = min(self._next_tick, max(first, tick))

    def next_due(self) -> float:
        """Return the time at which `due` or `advance` has something to do, if nothing arrives."""
        if self._taken:
            return 0.0
        return min(self._next_tick * self._tick, self._mailbox.next_due(hold=(COORDINATOR,)))

    def awaited(self) -> Set[int]:
        """Return those of whom something has to come before the device goes on; none: not known."""
        if self._rounds is None or not self._is_prompt:
            return frozenset()
        return self._rounds.awaited()

    def _snapshot(self) -> Arrays:
        """Return the snapshot that the next phase begins with."""
        mail = _encoded(self._mailbox.outgoing())
        return {**self.job.state_dict(self.phase + 1), OUTGOING: mail}

    def _begin(self) -> DeviceRounds[None]:
        job = self.job
        self._mailbox.unhurried = self._is_prompt
        return self.rounds_type(
            me=self.device,
            mailbox=self._mailbox,
            out=self.out,
            endpoint=job.endpoint_of(self.phase),
            program=job.program(self.phase, self.attempt),
            phase=(self.phase, self.attempt),
            refused=lambda sender, line: self._log(f"{described(sender)}: {line}; dropped"),
            neighbours=job.shard.neighbours,
            masks=self._masks,
            tick=self._tick,
            came_back=self._came_back,
            record=self._store.add_round,
            prompt=self._is_prompt,
            recorded=self._recorded,
        )

    def _follow(self, state: RunState) -> None:
        """Follow the state of the run that the coordinator sent."""
        if not all(0 <= device < self.job.total for device in state.out):
            raise ProtocolError("the coordinator left out a device that does not exist")
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
        if self.ended is None and state.phase == self.phase and state.attempt > self.attempt:
            self._begin_again(state.attempt)

    def _begin_again(self, attempt: int) -> None:
        """Begin the phase again: an attempt at it was given up, as a device is lost.

        The coordinator gets no further attempt for nothing: it has to leave a device out for each.
        """
        if not self.job.has_sessions(self.phase):
            raise ProtocolError("the coordinator gave up an attempt at a phase that has only one")
        if self.out <= self.job.absent:
            raise ProtocolError("the coordinator gave up an attempt, and no device is lost")
        if attempt >= MAX_ATTEMPTS:
            raise ProtocolError(
                f"it began again {MAX_ATTEMPTS} times, and every attempt reveals something"
            )
        self._mailbox.forget_attempt(self.phase, self.attempt)
        self.job.leave_out(self.out, self._store.load())
        self._store.begin(self.phase, attempt, self.out, self.job.ledgers.state_dict())
        self.attempt, self._rounds, self._ready = attempt, None, {}


def _encoded(outgoing: list[tuple[int, Data]]) -> Bytes:
    return np.frombuffer(msgspec.msgpack.encode(outgoing), np.uint8)


def _outgoing(snapshot: Arrays | None) -> list[tuple[int, Data]]:
    """Return envelopes of earlier phases that others may still need.

    Raises:
        InputError: the snapshot is damaged.
    """
    if snapshot is None:
        return []
    try:
        return _OUTGOING.decode(snapshot[OUTGOING].tobytes())
    except (KeyError, ValueError, msgspec.MsgspecError):
        raise InputError("the snapshot is damaged: envelopes to others cannot be read") from None


class AnsweringParticipant:
    """One device whose training is over.

    Args:
        device: its id.
        job: with the result of the training, where it answers about pairs.
        pairs: answered pairs.
        boot: random bytes of this start.
        deadline: seconds after which a question to another device is given up.
        log: called with a line, without anything private, where a message was dropped.
    """

    finished = True

    def __init__(
        self,
        device: int,
        job: TrainingJob,
        pairs: AnsweredPairs,
        boot: bytes,
        deadline: float,
        log: Callable[[str], None],
    ) -> None:
        self.device, self.job, self.phase = device, job, job.last + 1
        self.out: set[int] = set(job.absent)
        self._mailbox = Mailbox(boot, self.phase)
        self.questions = PairQuestions(device, job, self._mailbox, self.out, deadline, log, pairs)
        for absent in self.out:
            self._mailbox.leave_out(absent)

    def receive(self, sender: int, frames: list[Frame], now: float) -> None:
        """Handle frames from another participant."""
        for frame in frames:
            if self._mailbox.receive(sender, frame, now):
                if isinstance(frame, Data) and frame.key.phase == QUESTIONS:
                    self.questions.notice(sender, frame, now)
            elif sender == COORDINATOR and isinstance(frame, RunState):
                self._mailbox.tell(COORDINATOR, Alive(self.job.left, 0))

    def advance(self, now: float) -> None:
        """Go on with all questions as far as what has arrived allows."""
        self.questions.advance(now)

    def due(self, now: float) -> list[tuple[int, list[Frame]]]:
        """Return the frames to send now, by receiver."""
        return self._mailbox.due(now)

    def next_due(self) -> float:
        """Return the time at which `due` has something to send, if nothing arrives."""
        return self._mailbox.next_due()

    def awaited(self) -> Set[int]:
        """Return nobody: whatever arrives matters."""
        return frozenset()
