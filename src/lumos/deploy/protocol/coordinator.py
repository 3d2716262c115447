"""The coordinator of a real run: it opens sums, closes rounds, and leaves devices out.

Nothing is sent and no clock is read here, as in `device`.

A phase with sessions of two devices begins again without a device that is lost. Once devices may
give out shares of its sum, it does not: they give out none for another attempt
(`lumos.secagg.openings`). The sum is opened without it, and the next phase begins so.

**Who is lost.** The coordinator always waits for a message that is due: one of the present round, a
flag, or that a device is ready. A device whose message is due is left out when it has given no sign
of life for the deadline, or has sent nothing that is due for twice as long; but not before
`SLOWER` times as long as the median device took, and `PATIENT` times later while fewer than half of
the devices have answered. So a loaded machine loses nobody.
"""

from collections.abc import Callable, Collection, Set
from statistics import median
from typing import Protocol

import numpy as np

from lumos.deploy.protocol.frames import Alive, Data, Frame, MaskedFlags, RunState
from lumos.deploy.protocol.job import TrainingJob
from lumos.deploy.protocol.mailbox import Mailbox
from lumos.deploy.protocol.rounds import Barriers, CoordinatorRounds, ParticipantStore
from lumos.errors import LumosError
from lumos.exchange.endpoint import changed
from lumos.exchange.messages import Outbox
from lumos.secagg.topics import ALIVE, PROOF, SUM
from lumos.typing import Arrays

SLOWER = 10.0
"""Smallest multiple of the median device's time after which a device is lost."""
PATIENT = 5.0
"""Factor of deadlines while fewer than half of the devices have answered."""


class CoordinatorStore(ParticipantStore, Protocol):
    """The state of the coordinator that survives a restart."""

    def left_out(self) -> dict[int, str]:
        """Return the devices that are left out, and the phase of each."""
        ...

    def leave_out(self, device: int, phase: str) -> None:
        """Record that a device is left out, before it is announced."""
        ...

    def keep_evidence(self, device: int, content: bytes) -> None:
        """Keep a file of evidence against a device that lied."""
        ...


class CoordinatorParticipant:
    """The coordinator.

    Args:
        job: its phases; not begun.
        store: what survives a restart.
        boot: random bytes of this start.
        deadline: seconds after which a device that does not answer is left out.
        now: the time.
        log: called with a line, without anything private.
    """

    def __init__(
        self,
        job: TrainingJob,
        store: CoordinatorStore,
        boot: bytes,
        deadline: float,
        now: float,
        log: Callable[[str], None],
    ) -> None:
        self.job = job
        self._store, self._log = store, log
        self._minimum, self._deadline = job.minimum, deadline
        self._recorded = store.rounds()
        saved = store.load()
        self.phase = 0 if saved is None else job.load_state_dict(saved)
        self.attempt = 0
        self._go_on_with_attempt(saved)
        self.left_out = store.left_out()
        """The phase in which each device was left out."""
        self.out: set[int] = set(self.left_out)
        self.ended: str | None = "" if self.phase > job.last else None
        self.sums = 0 if saved is None else int(saved.get("sums", 0))
        """Sums that were opened."""
        self._mailbox = Mailbox(boot, self.phase, job.unread, log)
        self._phases = dict.fromkeys(range(job.total), 0)
        self._last_received = dict.fromkeys(range(job.total), now)
        self._last_due = dict.fromkeys(range(job.total), now)
        """When each device last sent something that was due."""
        self._wait: tuple[object, ...] = ()
        """The message that is due; it is due since `_since`."""
        self._since, self._usual = now, 0.0
        self._took: dict[int, float] = {}
        """Seconds that each device took for it, and that the median device took for the last."""
        self._false_claims: set[int] = set()
        self._ready: dict[int, tuple[int, int]] = {}
        self.online: set[int] = set()
        self._rounds: CoordinatorRounds[None] | None = None
        self._pending: Arrays | None = None
        self._sent_state: tuple[object, ...] = ()
        self._barriers = Barriers(
            mailbox=self._mailbox,
            out=self.out,
            total=job.total,
            deadline=deadline,
            record=store.add_round,
            recorded=self._recorded,
            log=log,
        )
        for device in self.out:
            self._mailbox.leave_out(device)
        self._mailbox.greet(range(job.total), now)

    @property
    def finished(self) -> bool:
        """True once the run has failed, or every present device has finished."""
        return self.ended is not None and (
            bool(self.ended)
            or all(self._phases[device] > self.job.last for device in self.present())
        )

    def present(self) -> list[int]:
        """Return the devices that take part."""
        return [device for device in range(self.job.total) if device not in self.out]

    def silent(self, now: float, seconds: float) -> list[int]:
        """Return present devices that were silent for `seconds`, or since this start."""
        return [
            device
            for device in self.present()
            if device not in self.online or now - self._last_received[device] > seconds
        ]

    def receive(self, sender: int, frames: list[Frame], now: float) -> None:
        """Handle frames from a device."""
        if sender in self.out:
            self._mailbox_state(sender)
            return
        self._last_received[sender] = now
        self.online.add(sender)
        for frame in frames:
            if isinstance(frame, Data):  # it has a snapshot of the phase that it is in
                self._claims(sender, max(self._phases[sender], frame.key.phase))
            if self._mailbox.receive(sender, frame, now):
                continue
            if isinstance(frame, Alive):
                self._claims(sender, frame.phase)
                if frame.ready:
                    self._ready[sender] = (frame.phase, frame.attempt)
                self._mailbox_state(sender)
            elif isinstance(frame, MaskedFlags):
                # A device may still be in a phase that is over here, if it has no sessions.
                phases = ((self.phase - 1, 0), (self.phase, self.attempt))
                if self._barriers.take(sender, frame, phases):
                    self._last_due[sender] = now

    def _claims(self, device: int, phase: int) -> None:
        """Note the phase that a device says it is in; none is far ahead of the coordinator."""
        most = self.phase + 1 if self.ended is None else self.job.left
        if phase > most and device not in self._false_claims:
            self._false_claims.add(device)
            self._log(f"device {device} says that it is in a phase that has not begun; dropped")
        self._phases[device] = min(phase, most)

    def advance(self, now: float) -> None:
        """Go on as far as what has arrived, and the time, allow."""
        try:
            self._leave_out_lost(now)
            self._barriers.close(now)
            self._settle()
            while self.ended is None and self.phase <= self.job.last:
                self._begin_again_without_lost()
                if self._rounds is None:
                    self._rounds = self._begin()
                if not self._rounds.advance(now):
                    break
                if not self._devices_are_done():
                    break
                self._settle()
                self._next_phase()
                self._settle()
        except LumosError as error:
            self.ended = self.ended or f"{self.job.name(min(self.phase, self.job.last))}: {error}"
        for device in self.job.refused():
            self._log(f"device {device}: a message of a sum breaks the rules; dropped")
        for device, lie in self.job.excluded().items():
            if device not in self.out:
                evidence = self.job.evidence_files().get(device)
                if evidence is not None:
                    self._store.keep_evidence(device, evidence)
                self._leave_out(device, f"lied in a sum ({lie})", f"excluded: {lie}")
        self._announce()

    def due(self, now: float) -> list[tuple[int, list[Frame]]]:
        """Return the frames to send now, by receiver."""
        packets = self._mailbox.due(now, rest=self._idle())
        if packets:
            self._store.write()
        return packets

    def _idle(self) -> Collection[int]:
        """Return the devices that have nothing to do now."""
        return () if self._rounds is None else self._rounds.idle()

    def next_due(self) -> float:
        """Return the time of the next action of `due` or `advance`, if nothing arrives."""
        limits = self._limits()
        waiting = [self._lost_at(device, *limits)[0] for device in self._waiting_for()]
        return min([self._mailbox.next_due(hold=self._idle()), *waiting])

    def awaited(self) -> Set[int]:
        """Return those of whom something has to come before it goes on; none: not known."""
        if self._rounds is None or not self.job.is_prompt(self.phase):
            return frozenset()
        return self._rounds.awaited()

    def _begin(self) -> CoordinatorRounds[None]:
        job = self.job
        self._mailbox.unhurried = job.is_prompt(self.phase)
        return CoordinatorRounds(
            mailbox=self._mailbox,
            out=self.out,
            endpoint=job.endpoint_of(self.phase),
            program=changed(job.program(self.phase, self.attempt), self._count_sum),
            phase=(self.phase, self.attempt),
            refused=lambda sender, line: self._log(f"device {sender}: {line}; dropped"),
            barriers=self._barriers,
            record=self._store.add_round,
            recorded=self._recorded,
        )

    def _count_sum(self, outbox: Outbox) -> Outbox:
        self.sums += outbox.topic is SUM and bool(outbox.batch.messages)
        return outbox

    def _next_phase(self) -> None:
        at_once = self.job.has_sessions(self.phase)
        self._rounds = None
        self.phase += 1
        self.attempt = 0
        snapshot = {**self.job.state_dict(self.phase), "sums": np.array(self.sums)}
        self._pending = snapshot
        if at_once:  # everyone is ready: save before devices go on
            self._keep_snapshot(snapshot)
        if self.phase > self.job.last:
            self.ended = ""
        else:
            self._go_on_with_attempt(snapshot)

    def _go_on_with_attempt(self, snapshot: Arrays | None) -> None:
        """Take the attempt at a phase in which the coordinator was before a restart."""
        begun = self._store.begun(self.phase)
        if begun is not None:
            self.attempt = begun.attempt
            self.job.leave_out(begun.absent, snapshot)
            self.job.ledgers.load_state_dict(begun.ledgers)

    def _settle(self) -> None:
        """Keep the present phase's snapshot once every device has one.

        Until then some may need what the coordinator sent in the phase before; after a restart it
        sends it again, byte by byte, from the rounds that it kept.
        """
        if self._pending is None or any(
            self._phases[device] < self.phase for device in self.present()
        ):
            return
        self._keep_snapshot(self._pending)

    def _keep_snapshot(self, snapshot: Arrays) -> None:
        self._store.save(snapshot)
        self._pending = None
        for key in [key for key in self._recorded if key.phase < self.phase]:
            del self._recorded[key]
        self._mailbox.settle(self.phase)

    def _devices_are_done(self) -> bool:
        """Return whether the coordinator may go on: in a phase with sessions, all must be ready."""
        if not self.job.has_sessions(self.phase):
            return True
        present = (self.phase, self.attempt)
        return all(self._ready.get(device) == present for device in self.present())

    def _opens(self, attempt: int) -> bool:
        """Return whether devices may have given out shares in an attempt at the present phase."""
        return any(
            key[:2] == (self.phase, attempt)
            and (data.topic == ALIVE.name or (data.topic == PROOF.name and data.count))
            for key, envelopes in self._recorded.items()
            for data in envelopes.values()
        )

    def _leave_out_lost(self, now: float) -> None:
        waiting = self._waiting_for()
        self._note_progress(now, set(waiting))
        limits = self._limits()
        for device in waiting:
            when, why = self._lost_at(device, *limits)
            if now > when:
                self._leave_out(device, why)

    def _note_progress(self, now: float, waiting: set[int]) -> None:
        """Note what is due, and how long devices took for it."""
        rounds = self._rounds
        wait = (self.phase, self.attempt, rounds is not None and rounds.running.finished)
        due = wait if rounds is None or rounds.running.finished else (*wait, rounds.key)
        if due != self._wait:
            if self._took:
                self._usual = median(self._took.values())
            self._wait, self._since, self._took = due, now, {}
        for device in set(self.present()) - self._took.keys():
            if device not in waiting or self._last_due[device] > self._since:
                self._took[device] = now - self._since

    def _limits(self) -> tuple[float, float]:
        """Return the seconds after which a device is lost: silent, and with signs of life only."""
        usual, patience = self._usual, PATIENT
        if 2 * len(self._took) > len(self.present()):
            usual, patience = max(usual, median(self._took.values())), 1.0
        silent = max(patience * self._deadline, SLOWER * usual)
        return silent, max(2 * patience * self._deadline, SLOWER * usual)

    def _lost_at(self, device: int, silent: float, idle: float) -> tuple[float, str]:
        """Return when a device whose message is due counts as lost, and why."""
        due = max(self._since, self._last_due[device]) + idle
        if due < self._last_received[device] + silent:
            return due, f"gave signs of life for {idle:g} s, and sent nothing that was due"
        return self._last_received[device] + silent, f"did not answer for {silent:g} s"

    def _waiting_for(self) -> list[int]:
        """Return the devices whose message is due; none if the run has failed."""
        if self.ended:
            return []
        if self.ended == "" or self._rounds is None:
            return [device for device in self.present() if self._phases[device] <= self.job.last]
        if not self._rounds.running.finished:
            return sorted(self._rounds.missing())
        place = (self.phase, self.attempt)
        return [device for device in self.present() if self._ready.get(device) != place]

    def _leave_out(self, device: int, why: str, note: str = "") -> None:
        phase = self.job.name(min(self.phase, self.job.last))
        kept = f"{phase}, {note}" if note else phase
        self._store.leave_out(device, kept)
        self.left_out[device] = kept
        self.out.add(device)
        self.online.discard(device)
        self._mailbox.leave_out(device)
        self._log(f"device {device} {why}; left out")
        if len(self.present()) < self._minimum and self.ended is None:
            names = ", ".join(map(str, sorted(self.out)))
            self.ended = (
                f"{phase}: {len(self.out)} of {self.job.total} devices are "
                f"lost ({names}), and {self._minimum} have to be left"
            )

    def _begin_again_without_lost(self) -> None:
        """Begin a phase with sessions again without the lost, unless its sum is being opened."""
        lost = sorted(self.out - self.job.absent)
        if not lost or not self.job.has_sessions(self.phase) or self._opens(self.attempt):
            return
        names = ", ".join(map(str, lost))
        self._log(f"{self.job.name(self.phase)} begins again without the lost ({names})")
        self._mailbox.forget_attempt(self.phase, self.attempt)
        self._barriers.forget(self.phase, self.attempt)
        self.attempt += 1
        self._rounds = None
        before = self._store.load() if self._pending is None else self._pending
        self.job.leave_out(self.out, before)
        self._store.begin(self.phase, self.attempt, self.out, self.job.ledgers.state_dict())

    def _announce(self) -> None:
        """Send the state of the run to everyone when it has changed."""
        state = (self.attempt, len(self.out), self._end(), self._waited_for())
        if state != self._sent_state:
            self._sent_state = state
            for device in self.present():
                self._mailbox_state(device)

    def _waited_for(self) -> int:
        """Return the phase where devices wait for the coordinator to go on; otherwise 0."""
        return self.phase if self.phase and self.job.has_sessions(self.phase - 1) else 0

    def _end(self) -> str | None:
        """Return the end as sent to devices: until all have finished, others may need them."""
        return self.ended if self.finished else None

    def _mailbox_state(self, device: int) -> None:
        state = RunState(self.phase, self.attempt, sorted(self.out), self._end())
        self._mailbox.tell(device, state)
