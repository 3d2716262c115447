"""Stages of the balancer `mcmc`: rounds that devices end by themselves, then words are gathered."""

import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from tests.deploy.test_absence import LOST, Killer, back_in_time
from tests.deploy.test_sessions import trees

import lumos
from lumos.deploy.protocol.coordinator import CoordinatorParticipant
from lumos.deploy.protocol.device import DeviceParticipant
from lumos.deploy.protocol.frames import (
    FLAG_BYTES,
    GATHERED,
    LOCAL,
    Alive,
    Closed,
    Data,
    MaskedFlags,
    RoundKey,
)
from lumos.deploy.protocol.rounds import FlagMasks, report_bytes, reports, tick_before
from lumos.deploy.status import RunHistory, RunStatus, status_of
from lumos.deploy.virtual import RUN, Federation, MemoryStore, Packet, pair_secret
from lumos.device.randomness import PublicRandomness
from lumos.device.shard import COORDINATOR
from lumos.graph import load
from lumos.graph.parts import PartsFolder
from lumos.training.config import Config
from lumos.trees.balancers import TreeSettings

STEPS = 8


def building(steps: int = STEPS) -> Config:
    return Config.asked(
        profile="paper",
        epochs=1,
        balancer="mcmc",
        compare="secure",
        aggregate="secure",
        iterations=steps,
    )


@pytest.fixture(scope="module")
def simulated() -> np.ndarray:
    settings = TreeSettings(balancer="mcmc", iterations=STEPS, compare="ideal")
    return lumos.balance(load("demo:12"), settings).keep


# What a step costs.


def run_of(parts: PartsFolder, steps: int) -> tuple[float, Counter[str]]:
    """Seconds of virtual time, and packets by kind."""
    packets: Counter[str] = Counter()

    def watch(now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        ends = f"{'C' if sender == COORDINATOR else 'd'}{'C' if receiver == COORDINATOR else 'd'}"
        packets[ends] += 1
        packets["flags"] += any(
            isinstance(frame, MaskedFlags) and frame.key.channel == GATHERED for frame in frames
        )

    federation = Federation(parts, building(steps), latency=0.002, tick=0.02, watch=watch)
    federation.run()
    assert federation.coordinator.ended == ""
    return federation.now, packets


def test_what_a_step_takes(twelve: PartsFolder) -> None:
    """At most two ticks for the stage, and one each for matches and the verdict; over an edge one
    packet both ways in two rounds, and one way in three; one share of each device."""
    (before, few), (after, many) = run_of(twelve, 4), run_of(twelve, 24)
    ends = 2 * load("demo:12").edges
    assert after - before < 20 * 0.09
    assert many["flags"] - few["flags"] == 20 * 12
    assert 3.5 * 20 * ends <= many["dd"] - few["dd"] < 3.5 * 20 * ends * 1.25
    assert many["dC"] - few["dC"] < 20 * 12 * 1.6
    assert many["Cd"] - few["Cd"] < 20 * 12 * 4


def test_who_carries_packets_does_not_see_who_compares(twelve: PartsFolder) -> None:
    """In each round of a stage there is one packet over each edge: both ways, or in comparisons to
    all larger ids, or to all smaller ones."""
    parts = (twelve.part([device], "classify") for device in range(12))
    down = {
        (part.devices[0], other)
        for part in parts
        for other in part.neighbours
        if other < part.devices[0]
    }
    up = {(second, first) for first, second in down}
    rounds: dict[RoundKey, set[tuple[int, int]]] = defaultdict(set)
    named: set[RoundKey] = set()

    def watch(_now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            if isinstance(frame, Data) and frame.key.channel == LOCAL:
                rounds[frame.key].add((sender, receiver))
                if (sender, receiver) not in up | down:
                    named.add(frame.key)

    federation = Federation(twelve, building(), watch=watch)
    federation.run(until=lambda: federation.coordinator.phase > 0)
    full = [ends for ends in rounds.values() if len(ends) >= len(up)]
    assert {frozenset(ends) for ends in full} == {
        frozenset(up | down),
        frozenset(up),
        frozenset(down),
    }
    assert len(full) == 5 * STEPS + 3, "of the start: comparisons of all"


class Dozing(DeviceParticipant):
    """A device that reads packets only when its process would: something may follow from them."""

    letters: list[tuple[int, list[Any]]]
    alarm = 0.0
    dozes = False

    def receive(self, sender: int, frames: list[Any], now: float) -> None:
        self.letters = [*getattr(self, "letters", []), (sender, frames)]

    def advance(self, now: float) -> None:
        letters = getattr(self, "letters", [])
        senders = {sender for sender, _ in letters}
        missing = bool(self.awaited() - senders) and COORDINATOR not in senders
        self.dozes = bool(letters) and missing and now < self.alarm
        if self.dozes:
            return
        for sender, frames in letters:
            super().receive(sender, frames, now)
        self.letters = []
        super().advance(now)

    def due(self, now: float) -> list[tuple[int, list[Any]]]:
        if self.dozes:
            return []
        packets = super().due(now)
        self.alarm = super().next_due()
        return packets

    def next_due(self) -> float:
        return self.alarm if self.dozes else super().next_due()


class DozingCoordinator(CoordinatorParticipant):
    """The same for the coordinator."""

    letters: list[tuple[int, list[Any]]]

    def receive(self, sender: int, frames: list[Any], now: float) -> None:
        self.letters = [*getattr(self, "letters", []), (sender, frames)]

    def advance(self, now: float) -> None:
        letters = getattr(self, "letters", [])
        if self.awaited() - {sender for sender, _ in letters} and now < super().next_due():
            return
        for sender, frames in letters:
            super().receive(sender, frames, now)
        self.letters = []
        super().advance(now)


def test_nothing_follows_from_packets_that_do_not_wake_a_participant(
    twelve: PartsFolder, simulated: np.ndarray
) -> None:
    dozing = {"device_type": Dozing, "coordinator_type": DozingCoordinator}
    ended = []
    for types in ({}, dozing):
        federation = Federation(twelve, building(), latency=0.002, tick=0.02, **types)  # type: ignore[arg-type]
        federation.run(until=lambda: federation.coordinator.phase > 0)  # noqa: B023
        ended.append(federation.now)
        assert np.array_equal(trees(federation), simulated)
    assert ended[1] == pytest.approx(ended[0], abs=0.1)


class Sleeper(DeviceParticipant):
    """A device of a loaded machine: it runs at one tick of four; others at other ticks."""

    def _sleeps(self, now: float) -> bool:
        return tick_before(now, 0.02) % 4 != self.device % 4

    def advance(self, now: float) -> None:
        if not self._sleeps(now):
            super().advance(now)

    def due(self, now: float) -> list[tuple[int, list[Any]]]:
        return [] if self._sleeps(now) else super().due(now)

    def next_due(self) -> float:
        due = super().next_due()
        tick = math.ceil(due / 0.02 - 1e-6)
        return max(due, (tick + (self.device - tick) % 4) * 0.02) if due < math.inf else due


def test_devices_that_are_never_awake_together_go_on(twelve: PartsFolder) -> None:
    """They send flags of ticks that they have slept through."""
    federation = Federation(twelve, building(1), latency=0.002, tick=0.02, device_type=Sleeper)
    federation.run(until=lambda: federation.coordinator.job.steps > 0, limit=30.0)
    assert not any("missing" in line for line in federation.lines)


@pytest.mark.parametrize(("tick", "ticks"), [(0.1, 2), (0.02, 2), (0.01, 3), (0.005, 5)])
def test_packets_have_a_while_before_flags_are_sent(
    twelve: PartsFolder, tick: float, ticks: int
) -> None:
    federation = Federation(twelve, building(1), tick=0.1, tree_tick=tick, latency=0.001)
    federation.run(until=lambda: federation.coordinator.job.steps > 0)
    began = federation.now

    def flags(_now: float, _sender: int, _receiver: int, frames: list[Any]) -> None:
        first.extend(
            min(frame.ticks) - tick_before(began, tick)
            for frame in frames
            if isinstance(frame, MaskedFlags) and frame.key[2:] == (GATHERED, 1)
        )

    first: list[int] = []
    federation.watch = flags
    federation.run(until=lambda: len(first) >= 12)
    assert min(first) == ticks


# What the coordinator sees.


def outline(frame: Any) -> tuple[Any, ...]:
    """Everything but what is under masks, and which envelopes were acknowledged."""
    if isinstance(frame, MaskedFlags):
        return ("flags", frame.key, *frame.ticks, len(frame.shares))
    return (type(frame).__name__,)


def test_devices_look_alike_while_one_is_held_up(twelve: PartsFolder) -> None:
    """The coordinator withholds a step from one device: its neighbours wait for it, and others for
    them, a round later. All send the same kinds of frames, at the same times."""
    federation = Federation(twelve, building(), latency=0.002)
    held: list[float] = []
    seen: dict[int, list[Any]] = defaultdict(list)

    def route(now: float, packet: Packet) -> list[float]:
        frames = federation.decoded(packet) if packet[:2] == (COORDINATOR, LOST) else []
        if any(isinstance(frame, Data) and frame.topic == "mcmc/propose" for frame in frames):
            held[:] = held or [now]
        return [10.0 if held and packet[:2] == (COORDINATOR, LOST) else 0.002]

    def arrived(now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        if receiver == COORDINATOR and held and held[0] + 0.01 < now < held[0] + 9:
            for frame in frames:
                if not isinstance(frame, Alive):  # every second from its start on
                    seen[sender].append((round(now, 6), outline(frame)))

    federation.route, federation.on_arrival = route, arrived
    federation.run(until=lambda: bool(held) and federation.now > held[0] + 9)
    others = set(range(12)) - {LOST}
    rounds = [federation.device(device)._rounds for device in others]
    assert len({of.key.number for of in rounds if of is not None}) > 1, "nearer devices wait first"
    assert len(seen[min(others)]) > 5
    assert len({tuple(seen[device]) for device in others}) == 1


def test_a_device_that_waits_stops_when_the_coordinator_goes_on(twelve: PartsFolder) -> None:
    """If it waited on, and then went on, it would have shown whom it waits for."""
    federation = Federation(twelve, building())
    isolated: list[Closed] = []

    def route(now: float, packet: Packet) -> list[float]:
        frames = federation.decoded(packet)
        sent = [frame for frame in frames if isinstance(frame, Data)]
        local = [data for data in sent if data.key.channel == LOCAL]
        if packet[0] == LOST and local:
            key = RoundKey(*local[0].key[:2], GATHERED, 0)
            isolated[:] = [Closed(key, quiet=False)]
            return []
        return [0.01]

    federation.route = route
    federation.run(until=lambda: bool(isolated))
    forged = federation.now + 1
    federation.run(until=lambda: federation.now > forged)
    neighbours = set(federation.device(LOST).job.shard.neighbours.tolist())
    for device in sorted(neighbours):
        federation.forward(COORDINATOR, device, list(isolated))
    until = federation.now + 2
    federation.run(until=lambda: federation.now > until)
    for device in neighbours:
        assert "although messages between devices were missing" in str(
            federation.device(device).ended
        )


@pytest.mark.parametrize("total", [3, 40, 300])
def test_words_are_gathered_together_or_not_at_all(total: int) -> None:
    key, words = RoundKey(0, 0, GATHERED, 2), {device: device % 3 for device in range(total)}

    def added(missing: set[int]) -> np.ndarray:
        found = [
            FlagMasks(
                device,
                total,
                PublicRandomness(0),
                lambda other, device=device: pair_secret(device, other),  # type: ignore[misc]
            ).share(key, 7, set(), missing=device in missing, speaks=False, report=word)
            for device, word in words.items()
        ]
        assert {len(share) for share in found} == {FLAG_BYTES + report_bytes(total)}
        return np.add.reduce([np.frombuffer(share, np.uint64) for share in found])

    whole, broken = added(set()), added({1})
    assert not whole[0]
    assert reports(whole, range(total)) == {device: word for device, word in words.items() if word}
    assert broken.all(), "every word is under a random one"


# Restarts.


class UnsyncedStore(MemoryStore):
    """A disk whose power fails whenever the device is killed."""

    def __init__(self) -> None:
        super().__init__()
        self._unsynced: set[RoundKey] = set()

    def add_round(self, key: RoundKey, envelopes: dict[int, Data], *, durable: bool = True) -> None:
        super().add_round(key, envelopes)
        if durable:
            self.sync()
        else:
            self._unsynced.add(key)

    def sync(self) -> None:
        self._unsynced.clear()

    def rounds(self) -> dict[RoundKey, dict[int, Data]]:
        self.kept = {key: of for key, of in self.kept.items() if key not in self._unsynced}
        return super().rounds()


def watched(federation: Federation, killer: Killer) -> dict[Any, set[bytes]]:
    """Every body that was sent under one sender, receiver and key."""
    bodies: dict[Any, set[bytes]] = defaultdict(set)

    def watch(now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            if isinstance(frame, Data):
                bodies[sender, receiver, frame.key].add(repr(frame).encode() + frame.body)
        killer(now, sender, receiver, frames)

    federation.watch = watch
    return bodies


DEVICE_TOPICS = ["mcmc/transfer", "mcmc/changed", "compare", "maximum/match", "mcmc/judge"]
COORDINATOR_TOPICS = ["mcmc/propose", "maximum/match", "mcmc/judge", "mcmc/void"]


@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize(
    ("participant", "topic", "store"),
    [
        *((LOST, topic, MemoryStore) for topic in DEVICE_TOPICS),
        *((LOST, topic, UnsyncedStore) for topic in DEVICE_TOPICS),
        *((COORDINATOR, topic, MemoryStore) for topic in COORDINATOR_TOPICS),
    ],
)
def test_a_restart_changes_no_byte(
    twelve: PartsFolder,
    simulated: np.ndarray,
    participant: int,
    topic: str,
    store: type[MemoryStore],
    after: bool,
) -> None:
    federation = Federation(twelve, building())
    if store is UnsyncedStore:
        federation.stores[LOST] = store()
        federation.start(LOST)
    killer = Killer(federation, participant, topic, after=after)
    bodies = watched(federation, killer)
    back_in_time(federation, killer)
    assert np.array_equal(trees(federation), simulated)
    assert federation.coordinator.left_out == {}
    assert all(len(sent) == 1 for sent in bodies.values())


# Progress.


def test_progress_by_step(twelve: PartsFolder) -> None:
    config = building()
    federation = Federation(twelve, config)
    history = RunHistory(RUN, wall=lambda: federation.now)
    found: list[tuple[float, RunStatus]] = []

    def look() -> bool:
        status = status_of(federation.coordinator, config, history, federation.now)
        if status.step and (not found or status.step > found[-1][1].step):
            found.append((federation.now, status))
        return federation.coordinator.ended is not None

    federation.run(until=look)
    assert [status.step for _, status in found] == list(range(1, STEPS + 1))
    assert {status.steps for _, status in found} == {STEPS}
    assert found[0][1].seconds_left is None
    (first, _), (last, status) = found[0], found[-2]
    each = (last - first) / (STEPS - 2)
    assert status.seconds_left == pytest.approx(each)  # one step is left
    assert status.place == f"trees, step {STEPS - 1} of {STEPS}, about {each:.0f} s left"
    assert status.headline.startswith(f"Trees, step {STEPS - 1} of {STEPS}, about ")
