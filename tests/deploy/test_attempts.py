"""Phases that begin again: how often, by whose word, and with which randomness."""

from typing import Any

import numpy as np
import pytest
from tests.deploy.test_absence import LOST, SUM_PHASE, Killer

from lumos.deploy.protocol.device import MAX_ATTEMPTS
from lumos.deploy.protocol.frames import Data, RoundKey, RunState
from lumos.deploy.protocol.job import TREES
from lumos.deploy.virtual import Federation
from lumos.device.shard import COORDINATOR
from lumos.graph.parts import PartsFolder
from lumos.strict import messages as propagated_labels
from lumos.training.config import Config

SESSIONS = 9
"""The phase of a run of links that has sessions of two devices."""


@pytest.fixture(scope="module")
def linking() -> Config:
    return Config.asked(task="link", aggregate="secure", random_marks=4)


def at_a_tick(federation: Federation, state: RunState) -> None:
    """The device hears of a state of the run at its next tick."""
    device = federation.device(LOST)
    device.receive(COORDINATOR, [state], federation.now)
    federation.now += 2 * federation.tick
    device.due(federation.now)
    device.advance(federation.now)


@pytest.mark.parametrize(
    ("states", "line"),
    [
        ([(1, [])], "no device is lost"),
        ([(1, [1]), (2, [1])], "no device is lost"),
        ([(MAX_ATTEMPTS, [1])], "began again 16 times"),
        ([(1, [12])], "does not exist"),
        ([(1, [COORDINATOR])], "does not exist"),
    ],
)
def test_a_coordinator_pays_for_every_further_attempt_with_a_device(
    few_words_parts: PartsFolder,
    linking: Config,
    states: list[tuple[int, list[int]]],
    line: str,
) -> None:
    """In each of them a peer that lies compares, or scores, with what it likes."""
    federation = Federation(few_words_parts, linking)
    federation.run(until=lambda: federation.device(LOST).phase == SESSIONS)
    device = federation.device(LOST)
    assert device.job.has_sessions(SESSIONS)
    for attempt, out in states:
        assert device.ended is None
        at_a_tick(federation, RunState(SESSIONS, attempt, out))
    assert line in str(device.ended)


def test_a_restarted_device_remembers_the_attempt_and_whom_it_is_without(
    few_words_parts: PartsFolder, linking: Config
) -> None:
    federation = Federation(few_words_parts, linking)
    federation.run(until=lambda: federation.device(LOST).phase == SESSIONS)
    first = int(federation.device(LOST).job.shard.neighbours[0])
    state = RunState(SESSIONS, 1, [first])
    at_a_tick(federation, state)
    federation.kill(LOST)
    federation.start(LOST)
    device = federation.device(LOST)
    assert (device.attempt, device.out, set(device.job.absent)) == (1, {first}, {first})
    at_a_tick(federation, RunState(SESSIONS, 2, [first]))
    assert "no device is lost" in str(device.ended)


def test_no_attempt_begins_with_fewer_than_have_to_be_left(
    few_words_parts: PartsFolder, linking: Config
) -> None:
    """Not even after a restart, when the device has not received anything of the others yet."""
    federation = Federation(few_words_parts, linking)
    federation.run(until=lambda: federation.device(LOST).phase == SESSIONS)
    state = RunState(SESSIONS, 1, [1, 2, 3])
    at_a_tick(federation, state)
    assert federation.device(LOST).ended == "fewer than 11 devices are left"
    federation.kill(LOST)
    federation.start(LOST)
    assert (federation.device(LOST).attempt, federation.device(LOST).out) == (0, set())


def test_a_device_counts_the_calibrations_of_all_attempts(
    few_words_parts: PartsFolder, linking: Config
) -> None:
    """Both ends learn buckets in an attempt that is given up. Without an account nobody else counts
    them, so the device would give more answers than the table of guarantees says."""
    federation = Federation(few_words_parts, linking)
    killer = Killer(federation, LOST, "score", SESSIONS)
    scored: dict[int, set[tuple[int, int]]] = {}

    def watch(now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        killer(now, sender, receiver, frames)
        for frame in frames:
            if isinstance(frame, Data) and frame.topic == "score" and frame.count:
                scored.setdefault(sender, set()).add((frame.key.attempt, receiver))

    federation.watch = watch
    federation.run()
    assert killer.killed
    for device in set(range(12)) - {LOST}:
        budget = federation.device(device).job.result.budget
        assert len(scored.get(device, ())) <= budget.calibrated[0] <= 4


@pytest.mark.parametrize("attempt", [1, 1 << 40])
def test_a_phase_with_one_attempt_has_no_other(
    twelve: PartsFolder, short: Config, attempt: int
) -> None:
    federation = Federation(twelve, short)
    federation.run(until=lambda: federation.device(LOST).phase == SUM_PHASE)
    device = federation.device(LOST)
    at_a_tick(federation, RunState(SUM_PHASE, attempt, []))
    assert "has only one" in str(device.ended)


def test_devices_do_not_go_on_with_fewer_than_have_to_be_left(
    twelve: PartsFolder, short: Config
) -> None:
    federation = Federation(twelve, short)
    federation.run(until=lambda: federation.device(LOST).phase == SUM_PHASE)
    device = federation.device(LOST)
    at_a_tick(federation, RunState(SUM_PHASE, 0, [1, 2]))
    assert device.ended == "fewer than 11 devices are left"


def test_attempts_that_were_given_up_stay_counted(twelve: PartsFolder) -> None:
    """The result of every device agrees with its packets."""
    building = Config.asked(
        profile="paper", balancer="greedy", compare="secure", aggregate="secure", epochs=1
    )
    federation = Federation(twelve, building)
    killer = Killer(federation, LOST, "compare")
    messages: dict[tuple[int, int, RoundKey], int] = {}
    topics: set[str] = set()

    def watch(now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        killer(now, sender, receiver, frames)
        for frame in frames:
            if isinstance(frame, Data) and frame.key.phase == TREES:
                messages[sender, receiver, frame.key] = frame.count
                topics.add(frame.topic)

    federation.watch = watch
    federation.run(until=lambda: killer.killed)
    federation.run()
    assert set(federation.coordinator.out) == {LOST}
    assert {key.attempt for _, _, key in messages} == {0, 1}
    for participant in (COORDINATOR, *(one for one in range(12) if one != LOST)):
        sent = sum(count for (sender, _, _), count in messages.items() if sender == participant)
        flows = federation.participants[participant].job.ledgers.flows()
        assert sum(flow["sent"] for topic, flow in flows.items() if topic in topics) == sent


def test_an_propagated_label_without_a_neighbour_has_other_randomness(
    few_words_parts: PartsFolder, linking: Config
) -> None:
    """The coordinator says that a neighbour is lost. Were the randomness the same, the second
    propagated label would show how the true one has changed."""
    federation = Federation(few_words_parts, linking)
    job = federation.device(LOST).job
    everyone = np.arange(1)

    class Mechanism:
        randomness = 1

        def release(self, chosen: Any, randomness: Any) -> Any:
            return randomness

    with_all = propagated_labels.randomized(job.shard, everyone, Mechanism(), 1)  # type: ignore[arg-type]
    job.leave_out([int(job.shard.neighbours[0])], None)
    without = propagated_labels.randomized(job.shard, everyone, Mechanism(), 1)  # type: ignore[arg-type]
    assert not np.array_equal(with_all, without)
