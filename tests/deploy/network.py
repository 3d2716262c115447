"""A federation of real participants in one process: a network with virtual time, and its faults."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lumos.deploy.processes import MAX_SLEEP
from lumos.deploy.protocol.coordinator import CoordinatorParticipant
from lumos.deploy.protocol.device import AnsweringParticipant, DeviceParticipant
from lumos.deploy.protocol.frames import Data, RoundKey, Route, decode, encode
from lumos.deploy.protocol.job import TrainingJob
from lumos.deploy.protocol.questions import AnsweredPairs, PairRecord
from lumos.deploy.protocol.rounds import BegunAttempt
from lumos.device.randomness import DeviceKeys
from lumos.device.shard import COORDINATOR
from lumos.graph.parts import PartsFolder
from lumos.secagg.openings import OpenedSums, Opening
from lumos.training.config import Config
from lumos.typing import Arrays

RUN = b"a run of a test!"


class MemoryStore:
    """A device's disk."""

    def __init__(self) -> None:
        self.snapshot: Arrays | None = None
        self.openings: list[Opening] = []
        self.attempts: dict[int, BegunAttempt] = {}
        self.kept: dict[RoundKey, dict[int, Data]] = {}
        self.senders: set[int] = set()
        self.saves = 0

    def load(self) -> Arrays | None:
        return self.snapshot

    def save(self, snapshot: Arrays) -> None:
        self.snapshot = {name: np.array(array) for name, array in snapshot.items()}
        phase = int(snapshot["phase"])
        self.kept = {key: data for key, data in self.kept.items() if key.phase >= phase}
        self.saves += 1

    def rounds(self) -> dict[RoundKey, dict[int, Data]]:
        return dict(self.kept)

    def add_round(self, key: RoundKey, envelopes: dict[int, Data]) -> None:
        assert key not in self.kept
        self.kept[key] = envelopes

    def begin(self, phase: int, attempt: int, absent: Collection[int], ledgers: Arrays) -> None:
        copied = {name: np.array(array) for name, array in ledgers.items()}
        self.attempts[phase] = BegunAttempt(attempt, frozenset(absent), copied)

    def begun(self, phase: int) -> BegunAttempt | None:
        return self.attempts.get(phase)

    def peers(self) -> set[int]:
        return set(self.senders)

    def add_peer(self, device: int) -> None:
        self.senders.add(device)

    def opened(self) -> OpenedSums:
        return OpenedSums(list(self.openings), self.openings.append)


class MemoryCoordinatorStore(MemoryStore):
    """The coordinator's disk."""

    def __init__(self) -> None:
        super().__init__()
        self.out: dict[int, str] = {}

    def left_out(self) -> dict[int, str]:
        return dict(self.out)

    def leave_out(self, device: int, phase: str) -> None:
        self.out[device] = phase


Packet = tuple[int, int, bytes]
"""(sender, receiver, bytes)."""


@dataclass
class Federation:
    """All participants of a run, one of them for each device.

    Packets take `latency` seconds, or what `route` says.

    Args:
        folder: parts, one for each device.
        config: settings.
        route: from a packet to when copies of it arrive; none: it is lost.
        watch: called with (time, sender, receiver, frames) of every packet that is sent.
        stays: devices answer after the training.
    """

    folder: PartsFolder
    config: Config
    deadline: float = 30.0
    latency: float = 0.01
    route: Callable[[float, Packet], list[float]] | None = None
    watch: Callable[[float, int, int, list[Any]], None] | None = None
    lines: list[str] = field(default_factory=list)
    stays: bool = False

    def __post_init__(self) -> None:
        self.total = self.folder.manifest.graph.devices
        self.now = 0.0
        self.stores = [MemoryStore() for _ in range(self.total)]
        self.coordinator_store = MemoryCoordinatorStore()
        self.pairs: list[list[PairRecord]] = [[] for _ in range(self.total)]
        self.secrets = [bytes([device % 256]) * 32 for device in range(self.total)]
        self.boots = 0
        self.participants: dict[int, Any] = {}
        """`DeviceParticipant`, `AnsweringParticipant` or `CoordinatorParticipant`."""
        self.flying: list[tuple[float, int, Packet]] = []
        self.sent = 0
        self.losses: list[float | None] = []
        for participant in (COORDINATOR, *range(self.total)):
            self.start(participant)

    @property
    def coordinator(self) -> CoordinatorParticipant:
        participant = self.participants[COORDINATOR]
        assert isinstance(participant, CoordinatorParticipant)
        return participant

    def device(self, number: int) -> DeviceParticipant:
        participant = self.participants[number]
        assert isinstance(participant, DeviceParticipant)
        return participant

    def start(self, participant: int) -> None:
        """Start a participant, with what is on its disk."""
        self.boots += 1
        boot = self.boots.to_bytes(8, "little")
        manifest, config = self.folder.manifest, self.config
        if participant == COORDINATOR:
            job = TrainingJob(
                manifest, config, None, None, on_epoch=lambda epoch: self.losses.append(epoch.loss)
            )
            self.participants[participant] = CoordinatorParticipant(
                job,
                self.coordinator_store,
                boot,
                self.deadline,
                self.now,
                self.lines.append,
            )
            return
        part = self.folder.part([participant], config.train.task)
        keys = DeviceKeys(self.secrets[participant])
        opened = self.stores[participant].opened()
        job = TrainingJob(manifest, config, part, keys, opened, stays=self.stays)
        self.participants[participant] = DeviceParticipant(
            participant,
            job,
            self.stores[participant],
            boot,
            1.0,
            self.deadline,
            self.now,
            self.lines.append,
            self.answered(participant),
        )

    def start_answering(self, device: int, arrays: Arrays) -> None:
        """Start a device after the training, with what it kept of it."""
        self.boots += 1
        part = self.folder.part([device], self.config.train.task)
        job = TrainingJob(self.folder.manifest, self.config, part, None, stays=True)
        job.restore_answers(arrays)
        self.participants[device] = AnsweringParticipant(
            device,
            job,
            self.answered(device),
            self.boots.to_bytes(8, "little"),
            self.deadline,
            self.lines.append,
        )

    def answered(self, device: int) -> AnsweredPairs:
        """What is on its disk of its answers."""
        return AnsweredPairs(list(self.pairs[device]), self.pairs[device].append)

    def kill(self, participant: int) -> None:
        """It is gone, with all that was in its memory; what it sent is on its way."""
        self.participants.pop(participant, None)

    def run(self, until: Callable[[], bool] | None = None, limit: float = 4000.0) -> None:
        """Go on until all participants have ended, or the condition holds."""
        while self.now < limit:
            if until is not None and until():
                return
            for number in list(self.participants):
                self._work(number)
            ended = all(
                isinstance(participant, AnsweringParticipant) or participant.ended is not None
                for participant in self.participants.values()
            )
            if ended and until is None:
                return
            self._next()
        raise AssertionError(f"the run did not end by {self.now:g} s")

    def _work(self, number: int) -> None:
        participant = self.participants.get(number)
        if participant is None:
            return
        participant.advance(self.now)
        for receiver, frames in participant.due(self.now):
            if self.watch is not None:
                self.watch(self.now, number, receiver, frames)
            if number not in self.participants:
                return  # it was killed while it was sending
            self._send((number, receiver, self.encoded(number, receiver, frames)))

    @staticmethod
    def encoded(sender: int, receiver: int, frames: list[Any]) -> bytes:
        """A packet."""
        return encode(Route(RUN, sender, receiver), frames)

    @staticmethod
    def decoded(packet: Packet) -> list[Any]:
        """Its frames."""
        sender, receiver, body = packet
        return decode(Route(RUN, sender, receiver), body)

    def forward(self, sender: int, receiver: int, frames: list[Any]) -> None:
        """Send a packet of a participant that is killed right after it."""
        self._send((sender, receiver, self.encoded(sender, receiver, frames)))

    def _send(self, packet: Packet) -> None:
        times = [self.latency] if self.route is None else self.route(self.now, packet)
        for after in times:
            self.sent += 1
            self.flying.append((self.now + after, self.sent, packet))

    def _next(self) -> None:
        """Move to the next moment at which something happens."""
        moments = [
            self.now + MAX_SLEEP,
            *(due.next_due() for due in self.participants.values()),
        ]
        if self.flying:
            moments.append(min(self.flying)[0])
        self.now = max(self.now + 1e-6, min(moments))
        arrived = sorted(item for item in self.flying if item[0] <= self.now)
        self.flying = [item for item in self.flying if item[0] > self.now]
        for _, _, packet in arrived:
            participant = self.participants.get(packet[1])
            if participant is not None:
                participant.receive(packet[0], self.decoded(packet), self.now)
