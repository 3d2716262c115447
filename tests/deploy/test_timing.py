"""Rounds between devices: where they are, their masked flags, and devices that stall them.

That the coordinator sees the same whatever the edges are is tested in `test_attacks`.
"""

import math
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from tests.deploy.test_absence import LOST, SUM_PHASE
from tests.deploy.watched import split

from lumos.deploy.attacks import exchanged
from lumos.deploy.protocol.frames import (
    BETWEEN_DEVICES,
    FLAG_BYTES,
    Alive,
    Data,
    MaskedFlags,
    RoundKey,
)
from lumos.deploy.protocol.rounds import FlagMasks
from lumos.deploy.virtual import ATTACKED, ROUNDS, TIMING_ATTACKS, Federation, Packet, pair_secret
from lumos.device.randomness import PublicRandomness
from lumos.device.shard import COORDINATOR
from lumos.graph import load
from lumos.graph.parts import PartsFolder
from lumos.training.config import Config

CONFIG = Config.asked(aggregate="secure", **ATTACKED)
PAPER = Config.asked(
    profile="paper", aggregate="secure", compare="secure", balancer="none", epochs=6
)
"""Every epoch, and so each attacked phase, begins with rounds between neighbours."""


@pytest.fixture(scope="module")
def two_graphs(tmp_path_factory: pytest.TempPathFactory) -> list[PartsFolder]:
    """Twelve devices with some edges, and with others."""
    graph, folder = load("demo:12"), tmp_path_factory.mktemp("two")
    return [split(graph, folder / "one"), split(exchanged(graph, 1), folder / "other")]


def test_rounds_between_neighbours_are_attacked(two_graphs: list[PartsFolder]) -> None:
    found: set[int] = set()

    def look(_now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        if COORDINATOR not in (sender, receiver):
            topics = ("strict/symbol", "strict/opinion", "strict/prediction")
            data = [frame for frame in frames if isinstance(frame, Data)]
            found.update(frame.key.phase for frame in data if frame.topic in topics)

    Federation(two_graphs[0], CONFIG, watch=look).run()
    assert found == set(ROUNDS)


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(attack, marks=() if attack in ("watching", "forged sum") else pytest.mark.long)
        for attack in TIMING_ATTACKS
    ],
)
def test_leaves_and_gradients_show_no_edge(two_graphs: list[PartsFolder], attack: str) -> None:
    """All that the coordinator receives in the paper's training is the same for other edges."""
    views = []
    for folder in two_graphs:
        attacked = TIMING_ATTACKS[attack](Federation(folder, PAPER), 1)
        attacked.run()
        views.append(attacked.view)
    assert len(views[0]) > 12 * 30
    assert views[0] == views[1]


# Masked flags.


def shares(raised: set[int], tick: int, total: int = 9, out: frozenset[int] = frozenset()) -> Any:
    """The sum of the flags of all devices that are present, and the flags."""
    key = RoundKey(3, 0, 1, 0)
    found = []
    for device in sorted(set(range(total)) - out):

        def pair_key(other: int, device: int = device) -> bytes:
            return pair_secret(device, other)

        masks = FlagMasks(device, total, PublicRandomness(0), pair_key)
        found.append(masks.share(key, tick, out, missing=device in raised, speaks=False))
    words = np.frombuffer(b"".join(found), np.uint64).reshape(-1, FLAG_BYTES // 8)
    return words.sum(axis=0, dtype=np.uint64), words


@pytest.mark.parametrize("total", [2, 3, 9, 300])
def test_masks_cancel_and_one_raised_flag_shows(total: int) -> None:
    assert not shares(set(), 5, total)[0].any()
    assert shares({1}, 5, total)[0].all()
    if total > 2:
        assert not shares(set(), 5, total, frozenset({1}))[0].any()


def test_no_share_repeats() -> None:
    """Masks of another tick are others: two shares of a device say nothing about its flags."""
    words = np.concatenate([shares(set(), tick)[1] for tick in range(20)])
    assert len(np.unique(words)) == words.size


# Devices that stall the others.


class Zombie:
    """A device that sends a frame every second, and nothing else."""

    def __init__(self, federation: Federation, frame: Any) -> None:
        self.federation, self.frame = federation, frame
        self.next = 0.0
        federation.kill(LOST)

    def __call__(self) -> bool:
        federation = self.federation
        if federation.now >= self.next:
            self.next = federation.now + 1
            federation.forward(LOST, COORDINATOR, [self.frame])
        return federation.coordinator.finished


@pytest.mark.parametrize("frame", [Alive(10**6, 0), Alive(SUM_PHASE, 0), Alive(0, 0, True)])
def test_signs_of_life_without_progress_stall_nobody(
    two_graphs: list[PartsFolder], frame: Alive
) -> None:
    federation = Federation(two_graphs[0], CONFIG)
    federation.run(until=lambda: federation.coordinator.phase == SUM_PHASE)
    began = federation.now
    federation.run(until=Zombie(federation, frame), limit=300.0)
    assert federation.now < began + 3 * federation.deadline
    assert set(federation.coordinator.left_out) == {LOST}
    assert federation.coordinator.ended == ""
    line = f"device {LOST} gave signs of life for 60 s, and sent nothing that was due; left out"
    assert line in federation.lines
    if frame.phase > 100:
        assert f"device {LOST} says that it is in a phase that has not begun; dropped" in (
            federation.lines
        )


def test_a_loaded_machine_loses_nobody(two_graphs: list[PartsFolder]) -> None:
    """Everything takes longer than the deadline, for some devices much longer."""
    slow = np.random.default_rng(0).uniform(1.5, 3.5, 12)

    def route(now: float, packet: Any) -> list[float]:
        device = max(packet[:2]) if COORDINATOR in packet[:2] else packet[0]
        return [float(slow[device])]

    federation = Federation(two_graphs[0], CONFIG, route=route, deadline=1.5)
    federation.run(limit=4000.0)
    assert federation.coordinator.ended == ""
    assert federation.coordinator.left_out == {}


def test_a_device_that_keeps_something_back_stalls_no_round_for_ever(
    two_graphs: list[PartsFolder],
) -> None:
    """It never sends its randomized label to one neighbour; the round ends after the deadline."""

    def route(_now: float, packet: Any) -> list[float]:
        frames = federation.decoded(packet)
        kept = packet[0] == LOST and any(
            isinstance(frame, Data) and frame.topic == "strict/symbol" for frame in frames
        )
        return [] if kept else [0.01]

    federation = Federation(two_graphs[0], CONFIG, route=route)
    federation.run(limit=200.0)
    assert federation.coordinator.ended == ""
    assert "something was missing between devices for 30 s; the round ends" in federation.lines


def test_a_round_that_takes_long_costs_few_flags(twelve: PartsFolder, short: Config) -> None:
    """Devices that are starved would send nothing else."""
    federation = Federation(twelve, short, deadline=60.0)
    flags: dict[tuple[int, RoundKey], list[float]] = {}
    late: dict[RoundKey, float] = {}

    def route(now: float, packet: Packet) -> list[float]:
        sender, receiver, _ = packet
        for frame in federation.decoded(packet):
            if isinstance(frame, MaskedFlags):
                flags.setdefault((sender, frame.key), []).append(now)
            between = isinstance(frame, Data) and frame.key.channel == BETWEEN_DEVICES
            if between and COORDINATOR not in (sender, receiver) and sender == 3:
                late.setdefault(frame.key, now)
                return [late[frame.key] + 20.0 - now]
        return [federation.latency]

    federation.route = route
    federation.run(until=lambda: any(now < federation.now - 25 for now in late.values()))
    key = min(late, key=lambda key: late[key])
    sent = {device: times for (device, of), times in flags.items() if of == key}
    assert len(sent) == federation.total
    for times in sent.values():
        assert max(times) - min(times) > 18
        assert len(times) < 40  # and not 200
        assert max(times) - (late[key] + 20) < 16 * federation.tick + 0.3


class Starved(Federation):
    """Devices that are woken late, by many ticks, each by another time."""

    def _next_due(self, number: int) -> float:
        known = number in self._due
        due = super()._next_due(number)
        if not known and number != COORDINATOR and due < math.inf:
            self._due[number] = due + float(self.draws.uniform(0, 0.3))
        return self._due[number]

    @cached_property
    def draws(self) -> np.random.Generator:
        """When devices are woken."""
        return np.random.default_rng(3)


def test_starved_devices_meet_at_ticks(twelve: PartsFolder, short: Config) -> None:
    """Each sleeps through most ticks: it sends the flags of the last one when it wakes."""
    federation = Starved(twelve, short, tick=0.02)
    federation.run(until=lambda: federation.coordinator.phase == 3, limit=60.0)
    assert not federation.coordinator.left_out
