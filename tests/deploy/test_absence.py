"""Devices and a coordinator that are killed at any point of a run: back in time, late, or never.

Every participant is a program of its own that is really not advanced while it is gone. Time is
virtual.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deploy.conftest import split_into_devices

import lumos
from lumos.deploy.protocol.frames import Alive, Data
from lumos.deploy.virtual import Federation, Packet
from lumos.device.shard import COORDINATOR
from lumos.graph.parts import PartsFolder
from lumos.secagg.topics import Stage
from lumos.strict import messages as neighbour_messages
from lumos.training.config import Config
from lumos.training.sums import RunSums
from lumos.typing import Arrays

LOST = 5
"""The device that is killed."""
IN_A_SUM = ["wrapped", "left-out", "masked", "lost", "alive", "confirmed", "reveal", "sum"]
LESS_OFTEN = ["left-out", "masked", "alive", "confirmed"]
SUM_PHASE = 4
"""A phase in the middle of the run, with nothing but one sum."""


@pytest.fixture(scope="module")
def undisturbed(twelve: PartsFolder, short: Config) -> Arrays:
    """The weights of the simulation with masked sums."""
    return lumos.train("demo:12", short).model.weights


def same(one: Arrays, other: Arrays) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) for name in one
    )


def weights(federation: Federation, participant: int = COORDINATOR) -> Arrays:
    return federation.participants[participant].job.trainer.state_dict("model")


class Killer:
    """Kills a participant at the first envelope of a topic in a phase that it sends, or is sent."""

    def __init__(
        self,
        federation: Federation,
        participant: int,
        topic: str,
        phase: int | None = None,
        *,
        after: bool = False,
    ) -> None:
        self.federation, self.participant, self.topic, self.phase = (
            federation,
            participant,
            topic,
            phase,
        )
        self.after = after
        self.killed = False
        federation.watch = self

    def __call__(self, now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        concerned = sender == self.participant or (
            receiver == self.participant and sender == COORDINATOR
        )
        if self.killed or not concerned:
            return
        for frame in frames:
            if not isinstance(frame, Data) or not frame.topic.endswith(self.topic):
                continue
            if self.phase is None or frame.key.phase == self.phase:
                self.killed = True
                if self.after and sender == self.participant:
                    self.federation.forward(sender, receiver, frames)
                self.federation.kill(self.participant)
                return


def test_all_participants_have_the_weights_of_the_simulation(
    twelve: PartsFolder, short: Config, undisturbed: Arrays
) -> None:
    federation = Federation(twelve, short)
    federation.run()
    for participant in (COORDINATOR, *range(12)):
        assert same(weights(federation, participant), undisturbed)
        assert federation.participants[participant].ended == ""
    assert not federation.lines
    assert "12 were in each sum: its noise was at least 1.05 times" in (  # √(10/9)
        federation.coordinator.job.trainer.noise_added()
    )


def back_in_time(federation: Federation, killer: Killer) -> None:
    federation.run(until=lambda: killer.killed)
    assert killer.killed
    back = federation.now + 5
    federation.run(until=lambda: federation.now >= back)
    federation.start(killer.participant)
    federation.run()


@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize(
    ("topic", "phase"),
    [
        *(
            pytest.param(topic, SUM_PHASE, marks=pytest.mark.long if topic in LESS_OFTEN else ())
            for topic in IN_A_SUM
        ),
        ("draw-commitment", 1),
        ("draw-contribution", 1),
        ("keys", 1),
        ("symbol", None),
        ("opinion", None),
        ("masked", 2 + 8),  # the last sums
        ("told", 2 + 8),
    ],
)
def test_a_device_that_is_back_in_time_changes_nothing(
    twelve: PartsFolder, short: Config, undisturbed: Arrays, topic: str, phase: int, after: bool
) -> None:
    federation = Federation(twelve, short)
    back_in_time(federation, Killer(federation, LOST, topic, phase, after=after))
    assert same(weights(federation), undisturbed)
    assert same(weights(federation, LOST), undisturbed)
    assert federation.coordinator.left_out == {}


@pytest.mark.parametrize(
    "topic",
    [
        *("draw-list", "wrapped", "lost", "reveal", "sum"),
        *(pytest.param(topic, marks=pytest.mark.long) for topic in LESS_OFTEN),
    ],
)
def test_a_coordinator_that_is_started_again_changes_nothing(
    twelve: PartsFolder, short: Config, undisturbed: Arrays, topic: str
) -> None:
    federation = Federation(twelve, short)
    phase = 1 if topic == "draw-list" else SUM_PHASE

    killed: list[float] = []

    def watch(now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            if not isinstance(frame, Data) or not frame.topic.endswith(topic) or killed:
                continue
            if frame.key.phase == phase and receiver in (COORDINATOR, 3):
                killed.append(now)
                federation.kill(COORDINATOR)

    federation.watch = watch
    federation.run(until=lambda: bool(killed))
    back = federation.now + 5
    federation.run(until=lambda: federation.now >= back)
    federation.start(COORDINATOR)
    federation.run()
    assert same(weights(federation), undisturbed)
    assert same(weights(federation, LOST), undisturbed)
    assert federation.coordinator.left_out == {}


class SilentDevice:
    """The oracle: one process with all devices, in which one falls silent in a stage of a sum, or
    before it tells its neighbours something, and is silent from then on."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, sum_number: int, stage: Stage | None
    ) -> None:
        self.sums = 0
        self.gone_before = sum_number
        summed, sent = RunSums.sum, neighbour_messages.send_over
        oracle = self

        def silent_sum(this: RunSums, update: Any, noise: Any, step: int, **more: Any) -> Any:
            stages = np.full(12, Stage.NEVER, np.int8)
            if oracle.sums == sum_number and stage is not None:
                stages[LOST] = stage
            elif oracle.sums >= sum_number:
                stages[LOST] = Stage.WRAPPED
            oracle.sums += 1
            return summed(this, update, noise, step, stages, **more)

        def silent_send(topic: Any, shard: Any, slots: Any, bodies: Any, *others: Any) -> Any:
            if oracle.sums < sum_number + (stage is not None):
                return (yield from sent(topic, shard, slots, bodies, *others))
            over = np.arange(len(shard.neighbours)) if slots is None else slots
            speaking = shard.owner[over] != LOST
            return (yield from sent(topic, shard, over[speaking], bodies[speaking], *others))

        monkeypatch.setattr(RunSums, "sum", silent_sum)
        for place in ("classify.trainer", "link.trainer"):
            monkeypatch.setattr(f"lumos.strict.{place}.send_over", silent_send)


STAGES = {
    "wrapped": Stage.WRAPPED,
    "masked": Stage.MASKED,
    "alive": Stage.ALIVE,
    "reveal": Stage.REVEAL,
}


@pytest.mark.parametrize("topic", [*STAGES, "symbol", "opinion"])
def test_a_device_that_never_comes_back_is_left_out_and_named(
    twelve: PartsFolder, short: Config, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """The weights are those of a simulation in which it falls silent there."""
    federation = Federation(twelve, short)
    phase = SUM_PHASE if topic in STAGES else None
    killer = Killer(federation, LOST, topic, phase)
    found = []
    federation.run(until=lambda: killer.killed)
    found.append(federation.coordinator.phase)
    federation.run()
    assert federation.coordinator.ended == ""
    assert set(federation.coordinator.left_out) == {LOST}
    assert f"device {LOST} did not answer for 30 s; left out" in federation.lines
    # 2 of 12 devices may collude and one may be missing: figures need the noise of nine.
    said = federation.coordinator.job.trainer.noise_added()
    assert "Of 12 devices at least 11 were in each sum: its noise was at least 1.00 times" in said
    SilentDevice(monkeypatch, found[0] - 2, STAGES.get(topic))
    assert same(weights(federation), lumos.train("demo:12", short).model.weights)


def test_fewer_than_have_to_be_left_end_the_run_with_one_line(
    twelve: PartsFolder, short: Config
) -> None:
    federation = Federation(twelve, short)
    federation.run(until=lambda: federation.coordinator.phase == SUM_PHASE)
    federation.kill(LOST)
    federation.run(until=lambda: federation.coordinator.phase == SUM_PHASE + 1)
    assert set(federation.coordinator.left_out) == {LOST}
    federation.kill(7)
    federation.run()
    line = federation.coordinator.ended
    assert line == "epoch 4 of 8: 2 of 12 devices are lost (5, 7), and 11 have to be left"
    assert {participant.ended for participant in federation.participants.values()} == {line}


def test_a_device_that_comes_back_late_is_informed(twelve: PartsFolder, short: Config) -> None:
    federation = Federation(twelve, short)
    federation.run(until=lambda: federation.coordinator.phase == SUM_PHASE)
    federation.kill(LOST)
    federation.run(until=lambda: LOST in federation.coordinator.out)
    federation.start(LOST)
    federation.run()
    assert federation.device(LOST).ended == (
        "this device did not answer in time, and is left out of the run"
    )
    assert federation.coordinator.ended == ""


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_bad_network_and_kills_change_nothing(
    twelve: PartsFolder, short: Config, undisturbed: Arrays, seed: int
) -> None:
    """A tenth of the packets is lost, others are doubled and late; ten kills, and a partition."""
    randomness = np.random.default_rng(seed)

    def route(now: float, packet: tuple[int, int, bytes]) -> list[float]:
        cut_off = 20 < now < 30 and (packet[0] in (2, 3)) != (packet[1] in (2, 3))
        if cut_off or randomness.random() < 0.1:
            return []
        copies = 2 if randomness.random() < 0.1 else 1
        return [float(randomness.exponential(0.05)) for _ in range(copies)]

    federation = Federation(twelve, short, route=route)
    down: dict[int, float] = {}
    kills = 0
    while not federation.coordinator.finished if COORDINATOR in federation.participants else True:
        for participant in [
            participant for participant, back in down.items() if back <= federation.now
        ]:
            federation.start(participant)
            del down[participant]
        if kills < 10 and len(down) < 2 and randomness.random() < 0.3:
            participant = int(randomness.integers(-1, 12))
            if participant in federation.participants:
                federation.kill(participant)
                down[participant] = federation.now + float(randomness.uniform(0.5, 5))
                kills += 1
        step = federation.now + float(randomness.uniform(0.2, 1.5))
        federation.run(until=lambda step=step: federation.now >= step)  # type: ignore[misc]
        if not down and all(
            participant.ended is not None for participant in federation.participants.values()
        ):
            break
    assert kills >= 5
    assert same(weights(federation), undisturbed)
    for device in range(12):
        if device in federation.participants:
            assert same(weights(federation, device), undisturbed)


def test_devices_stay_until_all_have_finished(twelve: PartsFolder, short: Config) -> None:
    """Somebody may still need what they sent: here a message that is lost for 10 s."""
    late: list[float] = []

    def route(now: float, packet: Packet) -> list[float]:
        frames = federation.decoded(packet)
        if any(isinstance(frame, Data) and frame.topic.endswith("told") for frame in frames):
            late.append(now)
            if packet[1] == LOST and now < late[0] + 10:
                return []
        return [0.01]

    federation = Federation(twelve, short, route=route)

    def all_have_left() -> bool:
        for number, participant in list(federation.participants.items()):
            if (
                number != COORDINATOR
                and participant.ended == ""
                and participant.next_due() > federation.now
            ):
                federation.kill(number)  # its process ends
        return set(federation.participants) == {COORDINATOR}

    federation.run(until=all_have_left, limit=300.0)
    assert late
    assert federation.coordinator.left_out == {}


def test_a_device_that_has_finished_does_not_wait_for_ever(
    twelve: PartsFolder, short: Config
) -> None:
    """It did not hear of the end, and the coordinator has left."""
    federation = Federation(twelve, short)
    federation.run(until=lambda: all(federation.device(device).finished for device in range(12)))
    federation.kill(COORDINATOR)
    began = federation.now
    federation.run()
    assert federation.now - began == pytest.approx(federation.deadline, abs=3)


def test_devices_that_stay_send_that_they_know_of_the_end(
    twelve: PartsFolder, short: Config
) -> None:
    """To a coordinator that was restarted at the end, as often as it takes."""
    federation = Federation(twelve, short)
    federation.run()
    received: set[int] = set()

    def watch(_now: float, sender: int, _receiver: int, frames: list[Any]) -> None:
        last = federation.coordinator.job.last
        if any(isinstance(frame, Alive) and frame.phase > last + 1 for frame in frames):
            received.add(sender)

    federation.watch = watch
    federation.kill(COORDINATOR)
    federation.start(COORDINATOR)
    until = federation.now + 3
    federation.run(until=lambda: federation.now > until)
    assert received == set(range(12))


@pytest.mark.long
def test_three_of_sixty_are_lost_and_then_a_fourth(tmp_path: Path, short: Config) -> None:
    federation = Federation(split_into_devices("demo:60", tmp_path / "sixty"), short)
    for phase, device in ((3, 5), (4, 17), (5, 40)):
        federation.run(until=lambda phase=phase: federation.coordinator.phase >= phase)  # type: ignore[misc]
        federation.kill(device)
    federation.run(until=lambda: federation.coordinator.phase >= 7)
    assert set(federation.coordinator.left_out) == {5, 17, 40}
    assert federation.coordinator.ended is None
    federation.kill(23)
    federation.run()
    line = "4 of 60 devices are lost (5, 17, 23, 40), and 57 have to be left"
    assert str(federation.coordinator.ended).endswith(line)
