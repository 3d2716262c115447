"""Phases that begin again: how often, by whose word, and with which coins."""

from typing import Any

import numpy as np
import pytest
from tests.deploy.network import Federation
from tests.deploy.test_absence import LOST, SUM_PHASE

from lumos.deploy.coordinator_party import MOST_RESTARTS
from lumos.deploy.device_party import MOST_ATTEMPTS
from lumos.deploy.frames import Alive, Data, RunState
from lumos.device.shard import COORDINATOR
from lumos.graph.parts import PartsFolder
from lumos.strict import opinions
from lumos.training.config import Config


@pytest.fixture(scope="module")
def linking() -> Config:
    return Config.asked(task="link", aggregate="secure", embedding=4, word_buckets=32)


def test_a_device_that_always_claims_to_be_restarted_is_left_out(
    twelve: PartsFolder, linking: Config
) -> None:
    """Every attempt at the last phase tells it a level of whomever it is compared with."""
    federation = Federation(twelve, linking)
    last = federation.coordinator.job.last
    begun: set[int] = set()

    def watch(now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        coordinator = federation.coordinator
        if coordinator.phase != last or sender != LOST or LOST in coordinator.out:
            return
        for frame in frames:
            if isinstance(frame, Data) and frame.topic.startswith("score"):
                begun.add(frame.key.attempt)
                wanted = Alive(last, frame.key.attempt + 1)
                coordinator.receive(LOST, [wanted], now)

    federation.watch = watch
    federation.run()
    assert federation.coordinator.ended == ""
    assert set(federation.coordinator.out) == {LOST}
    assert len(begun) <= MOST_RESTARTS + 1


def test_a_coordinator_cannot_begin_a_phase_again_for_ever(
    twelve: PartsFolder, linking: Config
) -> None:
    federation = Federation(twelve, linking)
    federation.run(until=lambda: federation.device(LOST).phase == SUM_PHASE)
    device = federation.device(LOST)
    for attempt in range(1, MOST_ATTEMPTS):
        device.receive(COORDINATOR, [RunState(SUM_PHASE, attempt, [])], federation.now)
        assert device.ended is None
    device.receive(COORDINATOR, [RunState(SUM_PHASE, MOST_ATTEMPTS, [])], federation.now)
    assert "began again 16 times" in str(device.ended)


@pytest.mark.parametrize("attempt", [1, 1 << 40])
def test_a_phase_with_one_attempt_has_no_other(
    twelve: PartsFolder, short: Config, attempt: int
) -> None:
    federation = Federation(twelve, short)
    federation.run(until=lambda: federation.device(LOST).phase == SUM_PHASE)
    device = federation.device(LOST)
    device.receive(COORDINATOR, [RunState(SUM_PHASE, attempt, [])], federation.now)
    assert "has only one" in str(device.ended)


def test_devices_do_not_go_on_with_fewer_than_have_to_be_left(
    twelve: PartsFolder, short: Config
) -> None:
    federation = Federation(twelve, short)
    federation.run(until=lambda: federation.device(LOST).phase == SUM_PHASE)
    device = federation.device(LOST)
    device.receive(COORDINATOR, [RunState(SUM_PHASE, 0, [1, 2])], federation.now)
    assert device.ended == "fewer than 11 devices are left"


def test_an_opinion_without_a_neighbour_has_other_coins(
    twelve: PartsFolder, linking: Config
) -> None:
    """The coordinator says that a neighbour is lost. Were the coins the same, the second opinion
    would show how the true one has changed."""
    federation = Federation(twelve, linking)
    job = federation.device(LOST).job
    everyone = np.arange(1)

    class Mechanism:
        coins = 1

        def release(self, chosen: Any, coins: Any) -> Any:
            return coins

    with_all = opinions.randomized(job.shard, everyone, Mechanism(), 1)  # type: ignore[arg-type]
    job.leave_out([int(job.shard.neighbours[0])], None)
    without = opinions.randomized(job.shard, everyone, Mechanism(), 1)  # type: ignore[arg-type]
    assert not np.array_equal(with_all, without)
