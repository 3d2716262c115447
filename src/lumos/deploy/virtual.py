"""A federation of real participants in one process, in virtual time, and attacks on its timing."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np

from lumos.deploy.identity import described
from lumos.deploy.protocol.coordinator import CoordinatorParticipant
from lumos.deploy.protocol.device import AnsweringParticipant, DeviceParticipant
from lumos.deploy.protocol.frames import (
    BETWEEN_DEVICES,
    WITH_COORDINATOR,
    Alive,
    Closed,
    Data,
    MaskedFlags,
    RoundKey,
    Route,
    RunState,
    decode,
    encode,
)
from lumos.deploy.protocol.job import TrainingJob
from lumos.deploy.protocol.questions import AnsweredPairs, PairRecord
from lumos.deploy.protocol.rounds import TICK, BegunAttempt
from lumos.device.randomness import DeviceKeys
from lumos.device.shard import COORDINATOR
from lumos.errors import ProtocolError
from lumos.graph.parts import PartsFolder
from lumos.secagg.openings import OpenedSums, Opening
from lumos.secagg.topics import SUM, WRAPPED
from lumos.training.config import Config
from lumos.training.metrics import auc
from lumos.typing import Arrays, Doubles, Flags

RUN = b"the plan of runs in virtual time"
"""Tag of a run: it stands for the digest of its plan."""
MAX_SLEEP = 1.0
"""Longest time in seconds between two looks at a participant, as in a process."""


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
        """Return the last snapshot; None before the first."""
        return self.snapshot

    def save(self, snapshot: Arrays) -> None:
        """Replace the snapshot, and forget rounds before it."""
        self.snapshot = {name: np.array(array) for name, array in snapshot.items()}
        phase = int(snapshot["phase"])
        self.kept = {key: data for key, data in self.kept.items() if key.phase >= phase}
        self.saves += 1

    def rounds(self) -> dict[RoundKey, dict[int, Data]]:
        """Return the rounds since the last snapshot."""
        return dict(self.kept)

    def add_round(self, key: RoundKey, envelopes: dict[int, Data], *, durable: bool = True) -> None:
        """Record envelopes of a round."""
        self.kept[key] = {**self.kept.get(key, {}), **envelopes}

    def write(self) -> None:
        """Do nothing: records are here when a participant is killed."""

    def sync(self) -> None:
        """Do nothing: power does not fail here."""

    def begin(self, phase: int, attempt: int, absent: Collection[int], ledgers: Arrays) -> None:
        """Record that another attempt at a phase begins."""
        copied = {name: np.array(array) for name, array in ledgers.items()}
        self.attempts[phase] = BegunAttempt(attempt, frozenset(absent), copied)

    def begun(self, phase: int) -> BegunAttempt | None:
        """Return the last attempt at a phase; None for the first."""
        return self.attempts.get(phase)

    def peers(self) -> set[int]:
        """Return the devices whose envelopes have arrived."""
        return set(self.senders)

    def add_peer(self, device: int) -> None:
        """Record that an envelope of this device has arrived."""
        self.senders.add(device)

    def opened(self) -> OpenedSums:
        """Return the sums that shares were given out for."""
        return OpenedSums(list(self.openings), self.openings.append)


class MemoryCoordinatorStore(MemoryStore):
    """The coordinator's disk."""

    def __init__(self) -> None:
        super().__init__()
        self.out: dict[int, str] = {}
        self.evidence: dict[int, bytes] = {}

    def left_out(self) -> dict[int, str]:
        """Return the devices that are left out, and the phase of each."""
        return dict(self.out)

    def leave_out(self, device: int, phase: str) -> None:
        """Record that a device is left out."""
        self.out[device] = phase

    def keep_evidence(self, device: int, content: bytes) -> None:
        """Keep a file of evidence against a device that lied."""
        self.evidence[device] = content


def pair_secret(one: int, other: int) -> bytes:
    """Return the secret of two devices."""
    return blake2b(b"%d %d" % (min(one, other), max(one, other)), digest_size=32).digest()


Packet = tuple[int, int, bytes]
"""Sender, receiver, bytes."""


@dataclass
class Federation:
    """All participants of a run, one of them for each device.

    Packets take `latency` seconds, or what `route` says.

    Args:
        folder: parts, one for each device.
        config: settings.
        route: from a packet to when copies of it arrive; none: it is lost.
        watch: called with (time, sender, receiver, frames) of every packet that is sent.
        on_arrival: called in the same way when it arrives.
        stays: devices answer after the training.
        given: by number, tag and settings of devices that were given another plan. The coordinator
            speaks with each device by the plan that it has: it is the operator's.
        device_type, coordinator_type: broken ones, to show that an attack has power.
    """

    folder: PartsFolder
    config: Config
    deadline: float = 30.0
    latency: float = 0.01
    tick: float = TICK
    tree_tick: float | None = None
    route: Callable[[float, Packet], list[float]] | None = None
    watch: Callable[[float, int, int, list[Any]], None] | None = None
    on_arrival: Callable[[float, int, int, list[Any]], None] | None = None
    lines: list[str] = field(default_factory=list)
    stays: bool = False
    given: dict[int, tuple[bytes, Config]] = field(default_factory=dict)
    device_type: type[DeviceParticipant] = DeviceParticipant
    coordinator_type: type[CoordinatorParticipant] = CoordinatorParticipant

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
        self._worked: dict[int, float] = {}
        """When each participant last went on, if nothing has arrived since."""
        self._due: dict[int, float] = {}
        """When each participant has something to do, if nothing has happened to it since."""
        for participant in (COORDINATOR, *range(self.total)):
            self.start(participant)

    @property
    def coordinator(self) -> CoordinatorParticipant:
        """The coordinator."""
        participant: CoordinatorParticipant = self.participants[COORDINATOR]
        return participant

    def device(self, number: int) -> DeviceParticipant:
        """Return a device."""
        participant: DeviceParticipant = self.participants[number]
        return participant

    def start(self, participant: int) -> None:
        """Start a participant, with what is on its disk."""
        self.boots += 1
        self._worked.pop(participant, None)
        self._due.pop(participant, None)
        boot = self.boots.to_bytes(8, "little")
        manifest = self.folder.manifest
        plan, config = self.given.get(participant, (RUN, self.config))
        if participant == COORDINATOR:
            job = TrainingJob(
                manifest,
                config,
                None,
                None,
                on_epoch=lambda epoch: self.losses.append(epoch.loss),
                plan=plan,
                nonces=DeviceKeys(b"c" * 32, plan),
            )
            self.participants[participant] = self.coordinator_type(
                job,
                self.coordinator_store,
                boot,
                self.deadline,
                self.now,
                self.lines.append,
            )
            return
        part = self.folder.part([participant], config.train.task)
        keys = self.keys(participant)
        opened = self.stores[participant].opened()
        job = TrainingJob(manifest, config, part, keys, opened, stays=self.stays, plan=plan)
        self.participants[participant] = self.device_type(
            participant,
            job,
            self.stores[participant],
            boot,
            lambda other: pair_secret(participant, other),
            self.tick,
            1.0,
            self.deadline,
            self.now,
            self.lines.append,
            self.answered(participant),
            tree_tick=self.tree_tick,
        )

    def keys(self, device: int) -> DeviceKeys:
        """Return the keys of a device."""
        return DeviceKeys(self.secrets[device], self.tag(device))

    def tag(self, *ends: int) -> bytes:
        """Return the tag in packets that the first of the ends accepts; the coordinator has all."""
        device = next((end for end in ends if end != COORDINATOR), COORDINATOR)
        return self.given.get(device, (RUN, self.config))[0]

    def start_answering(self, device: int, arrays: Arrays) -> None:
        """Start a device after the training, with what it kept of it."""
        self.boots += 1
        self._due.pop(device, None)
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
        """Return the answers on a device's disk."""
        return AnsweredPairs(list(self.pairs[device]), self.pairs[device].append)

    def kill(self, participant: int) -> None:
        """End a participant: what was in its memory is gone, what it sent is on its way."""
        self.participants.pop(participant, None)

    def run(self, until: Callable[[], bool] | None = None, limit: float = 4000.0) -> None:
        """Go on until all participants have ended, or the condition holds.

        Raises:
            TimeoutError: `limit` has come.
        """
        self._worked.clear()
        self._due.clear()
        while self.now < limit:
            if until is not None and until():
                return
            for number in list(self.participants):
                if number not in self.participants:
                    continue  # it was killed while another one was sending
                since = self._worked.get(number, -MAX_SLEEP)
                if self.now >= since + MAX_SLEEP or self._next_due(number) <= self.now:
                    self._work(number)
            ended = all(
                isinstance(participant, AnsweringParticipant) or participant.ended is not None
                for participant in self.participants.values()
            )
            if ended and until is None:
                return
            self._next()
        raise TimeoutError(f"the run did not end by {self.now:g} s")

    def _next_due(self, number: int) -> float:
        if number not in self._due:
            self._due[number] = self.participants[number].next_due()
        return self._due[number]

    def _work(self, number: int) -> None:
        participant = self.participants[number]
        self._worked[number] = self.now
        self._due.pop(number, None)
        participant.advance(self.now)
        for receiver, frames in participant.due(self.now):
            if self.watch is not None:
                self.watch(self.now, number, receiver, frames)
            if number not in self.participants:
                return  # it was killed while it was sending
            self._send((number, receiver, self.encoded(number, receiver, frames)))

    def encoded(self, sender: int, receiver: int, frames: list[Any]) -> bytes:
        """Return a packet."""
        return encode(Route(self.tag(sender, receiver), sender, receiver), frames)

    def decoded(self, packet: Packet) -> list[Any]:
        """Return the frames of a packet, as its receiver reads it; none if it is refused."""
        sender, receiver, body = packet
        try:
            return decode(Route(self.tag(receiver, sender), sender, receiver), body)
        except ProtocolError as error:
            self.lines.append(f"{described(sender)}: {error}; dropped")
            return []

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
            *map(self._next_due, self.participants),
        ]
        if self.flying:
            moments.append(min(self.flying)[0])
        self.now = max(self.now + 1e-6, min(moments))
        arrived = sorted(item for item in self.flying if item[0] <= self.now)
        self.flying = [item for item in self.flying if item[0] > self.now]
        for _, _, packet in arrived:
            participant = self.participants.get(packet[1])
            if participant is not None:
                frames = self.decoded(packet)
                if not frames:
                    continue
                if self.on_arrival is not None:
                    self.on_arrival(self.now, packet[0], packet[1], frames)
                participant.receive(packet[0], frames, self.now)
                self._worked.pop(packet[1], None)
                self._due.pop(packet[1], None)


# Timing: a coordinator looks for edges in who sends what when.
#
# In a round between neighbours a device needs what its neighbours send. Just before it, the
# coordinator holds up one device, or all by different times, and watches when the next summand of
# each device comes: a device that waits for a neighbour shows it.

ATTACKED = {
    "encoder_epochs": 1,
    "propagated_labels": 1,
    "participation": "all",
    "epochs": 7,
    "tree_network": False,
}
"""Settings of attacked runs: few epochs, and all rounds between neighbours."""
ROUNDS = (3, 4, 7)
"""Their phases that begin with such a round: of randomized, propagated and predicted labels."""
LAST_WATCHED = 8
"""The phase whose summands the coordinator still waits for."""
HELD = 10.0
"""Seconds for which one device is held up."""
HORIZON = 40.0
"""Seconds after which a device that has sent nothing counts as stalled."""


class TimingAttack:
    """The coordinator's view of one run that it does not disturb.

    Args:
        federation: has not run; its network is the attacker's from now on.
        seed: of all choices of the attacker, and of the network.
        lateness: seconds by which devices are late in the mean, by an exponential distribution.
    """

    ends: ClassVar[bool] = False
    """True if the attacked run cannot go on; then one round is attacked, and not all."""

    def __init__(self, federation: Federation, seed: int, lateness: float = 0.0) -> None:
        self.federation, self._lateness = federation, lateness
        self.rounds = (ROUNDS[seed % len(ROUNDS)],) if self.ends else ROUNDS
        self.randomness = np.random.default_rng(seed)
        total = federation.total
        self.able = {phase: np.full(total, np.nan) for phase in ROUNDS}
        """By phase, [devices]: when each can speak to its neighbours, as the coordinator knows."""
        self.sent = {phase: np.full(total, np.inf) for phase in (*ROUNDS, LAST_WATCHED)}
        """By phase, [devices]: when the next summand of each came."""
        self._other = np.full(total, np.inf)
        self.view: list[tuple[Any, ...]] = []
        """All that the coordinator received: time, sender, and the outline of each frame."""
        self.named = np.zeros((total, total), np.bool_)
        """[devices, devices] pairs of which the attacker is certain, once it has `scores`."""
        federation.route, federation.on_arrival = self.route, self.arrived

    def route(self, now: float, packet: Packet) -> list[float]:
        """Return after how long copies of a packet arrive."""
        from_coordinator = packet[0] == COORDINATOR
        late = float(self.randomness.exponential(self._lateness)) if from_coordinator else 0.0
        return [self.federation.latency + late]

    def arrived(self, now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        """Note what the coordinator sees."""
        if receiver != COORDINATOR:
            return
        self.view.append((round(now, 6), sender, *map(_outline, frames)))
        for frame in frames:
            if isinstance(frame, Alive) and frame.phase in self.able:
                able = self.able[frame.phase]
                able[sender] = now if np.isnan(able[sender]) else able[sender]
            elif isinstance(frame, Data) and frame.topic == WRAPPED.name:
                sent = self.sent.get(frame.key.phase, self._other)
                sent[sender] = min(sent[sender], now)

    def run(self) -> None:
        """Run until the last summand is there or nothing comes."""
        last = self.sent[LAST_WATCHED]
        with suppress(TimeoutError):
            self.federation.run(lambda: self._is_over(last), 3 * HORIZON)

    def _is_over(self, last: Doubles) -> bool:
        self.act()
        return bool(np.isfinite(last).all())

    def act(self) -> None:
        """Disturb the run; called at each step of time."""

    def scores(self) -> Doubles:
        """Return the scores of `waiting_scores`, and note the pairs that are `named`."""
        scale = 2 * (self.federation.latency + self.federation.tick)
        able, sent = ([of[phase] for phase in ROUNDS] for of in (self.able, self.sent))
        scores, self.named = waiting_scores(able, sent, scale)
        return scores


def waiting_scores(
    able: Sequence[Doubles], sent: Sequence[Doubles], scale: float
) -> tuple[Doubles, Flags]:
    """Return how much it looks as if u waited for v, and the pairs of which that is certain.

    Scores are [devices, devices], NaN where there is no evidence. They are centred over u: that v
    was late says nothing about its neighbours.

    Args:
        able: by round, [devices] when each could speak to its neighbours.
        sent: by round, [devices] when the next summand of each came; infinite: never.
        scale: seconds in which a device answers that waits for nobody.
    """
    total = len(able[0])
    added, times = np.zeros((total, total)), np.zeros((total, total))
    named = np.zeros((total, total), np.bool_)
    for could, came in zip(able, sent, strict=True):
        if np.isnan(could).all() or not np.isfinite(came).any():
            continue
        first = np.nanmin(could)
        came, could = (np.minimum(at - first, HORIZON) for at in (came, could))
        waited = came[:, None] - could[None, :]
        later = could[None, :] > could[:, None] + scale / 10
        # What comes after u's summand was not awaited.
        score = np.where(waited < 0, -1.0, scale / (scale + np.maximum(waited, 0)))
        score[~later] = np.nan
        for column in np.flatnonzero(later.any(axis=0)):
            score[:, column] -= np.nanmedian(score[:, column])
        added += np.where(later, score, 0)
        times += later
        close = later & (waited >= 0) & (waited <= 1.5 * scale)
        alone = (np.abs(came[:, None] - came) < scale).sum(axis=1) <= total / 2
        named |= close & ((close.sum(axis=1) == 1) & alone)[:, None]
    return np.where(times > 0, added / np.maximum(times, 1), np.nan), named


def _outline(frame: Any) -> tuple[Any, ...]:
    """Return everything of a frame but the values under masks."""
    if isinstance(frame, Data):
        return (frame.key, frame.topic, frame.count, len(frame.body), frame.lengths, frame.quiet)
    if isinstance(frame, MaskedFlags):
        return (frame.key, *frame.ticks, len(frame.shares))
    return (type(frame).__name__, frame)


class Staggered(TimingAttack):
    """The sum before a round between neighbours reaches the devices one after another.

    Args:
        others: those of `TimingAttack`.
        step: seconds between two of them.
    """

    def __init__(self, federation: Federation, seed: int, step: float) -> None:
        super().__init__(federation, seed)
        self._delays = {phase: self.delays(step) for phase in self.rounds}
        self._began: dict[int, float] = {}
        self._acted: set[int] = set()

    def delays(self, step: float) -> Doubles:
        """Return [devices] by how long each is held up."""
        order = self.randomness.permutation(self.federation.total)
        return step * order.astype(np.float64)

    def route(self, now: float, packet: Packet) -> list[float]:
        """Hold up the sums."""
        sender, receiver, _ = packet
        after = self.federation.latency
        if sender == COORDINATOR:
            for frame in self.federation.decoded(packet):
                if isinstance(frame, Data) and frame.topic == SUM.name:
                    phase = frame.key.phase + 1
                    if phase in self._delays:
                        release = self._began.setdefault(phase, now) + self._delays[phase][receiver]
                        after += max(0.0, release - now)
                        self.able[phase][receiver] = release + self.federation.latency
        return [after]


class Withheld(Staggered):
    """The sum before a round between neighbours is withheld from one device for `HELD` seconds."""

    def __init__(self, federation: Federation, seed: int) -> None:
        super().__init__(federation, seed, HELD)

    def delays(self, step: float) -> Doubles:
        """Return [devices] by how long each is held up: one of them."""
        held = np.zeros(self.federation.total)
        held[self.randomness.integers(self.federation.total)] = step
        return held

    def act(self) -> None:
        """Act once the sum is withheld, before it is delivered."""
        for phase, began in self._began.items():
            if phase not in self._acted and self.federation.now > began + HELD / 2:
                self._acted.add(phase)
                self.lie(phase, int(self._delays[phase].argmax()))

    def lie(self, phase: int, device: int) -> None:
        """Do nothing: the device gets its sum in the end."""


class Forged(Withheld):
    """The device gets a sum that it refuses; everybody else is told that nothing is missing."""

    ends = True

    def lie(self, phase: int, device: int) -> None:
        """Forge the sum for the device, and the end of the round for the others."""
        key = RoundKey(phase - 1, 0, WITH_COORDINATOR, 7)
        forged = Data(key, SUM.name, 1, b"forged!!", [8])
        self.federation.forward(COORDINATOR, device, [forged])
        self.able[phase][device] = self.federation.now + self.federation.latency
        for other in set(range(self.federation.total)) - {device}:
            over = Closed(RoundKey(phase, 0, BETWEEN_DEVICES, 0), quiet=False)
            self.federation.forward(COORDINATOR, other, [over])


class Excluded(Withheld):
    """Half of the devices are told that the device is left out, and all that nothing is missing."""

    ends = True

    def lie(self, phase: int, device: int) -> None:
        """Send half of the others that the device is left out."""
        others = sorted(set(range(self.federation.total)) - {device})
        for other in self.randomness.permutation(others)[::2].tolist():
            state = RunState(phase, 0, [device])
            self.federation.forward(COORDINATOR, other, [state])
        self.able[phase][device] = self.federation.now + self.federation.latency


class Crashed(Withheld):
    """The device is killed before it can send anything to its neighbours, and comes back."""

    def route(self, now: float, packet: Packet) -> list[float]:
        """Kill the device whose sum would be withheld."""
        after = super().route(now, packet)
        if after[0] > HELD / 2:
            self.federation.kill(packet[1])
        return after

    def act(self) -> None:
        """Start it again."""
        for phase, began in self._began.items():
            device = int(self._delays[phase].argmax())
            if self.federation.now > began + HELD and device not in self.federation.participants:
                self.federation.start(device)


TIMING_ATTACKS: dict[str, Callable[[Federation, int], TimingAttack]] = {
    "watching": lambda federation, seed: TimingAttack(federation, seed, 0.3),
    "staggered by less than a tick": lambda federation, seed: Staggered(federation, seed, 0.037),
    "staggered by more than a tick": lambda federation, seed: Staggered(federation, seed, 0.43),
    "withheld sum": Withheld,
    "forged sum": Forged,
    "exclusion": Excluded,
    "crash": Crashed,
}
"""By name."""


def area_under_curve(scores: Doubles, edges: Flags) -> float:
    """Return the probability that an edge has a higher score than a pair that is none.

    Args:
        scores: [devices, devices], NaN where the attacker has no evidence.
        edges: [devices, devices].
    """
    known = ~np.isnan(scores)
    positive, negative = scores[known & edges], scores[known & ~edges]
    return auc(positive, negative) if len(positive) and len(negative) else 0.5
