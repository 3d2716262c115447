"""A participant that is restarted at a barrier goes on once it has received everything again."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.deploy.conftest import few_words
from tests.deploy.test_absence import same, weights
from tests.deploy.test_sessions import trees

import lumos
from lumos.deploy.protocol import mailbox
from lumos.deploy.protocol.frames import Data, RoundKey
from lumos.deploy.virtual import Federation, Packet
from lumos.device.shard import COORDINATOR
from lumos.graph.parts import PartsFolder
from lumos.training.config import Config
from lumos.typing import Arrays


@pytest.fixture(scope="module")
def linking() -> Config:
    return Config.asked(task="link", aggregate="secure", random_marks=4)


def restart_after(federation: Federation, topic: str, *, non_neighbours: bool) -> int:
    """Kill a device that has acknowledged an envelope of such a sender, and start it again."""
    near = [set(federation.device(one).job.shard.neighbours.tolist()) for one in range(12)]
    found: list[tuple[int, int, Data]] = []
    spoke: set[tuple[int, int, int]] = set()

    def watch(now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        for frame in frames:
            if COORDINATOR in (sender, receiver) or not isinstance(frame, Data):
                continue
            spoke.add((frame.key.phase, sender, receiver))
            # One that has sent to the other in this phase says hello to it when it does so again.
            unknown = (frame.key.phase, receiver, sender) not in spoke
            if (sender not in near[receiver] and unknown) != non_neighbours:
                continue
            if frame.topic == topic and frame.count:
                found.append((sender, receiver, frame))

    federation.watch = watch
    federation.run(until=lambda: bool(found))
    sender, device, data = found[0]
    box = federation.device(device)._mailbox
    federation.run(until=lambda: box.envelope(sender, data.key) is not None)
    federation.watch = None
    federation._work(device)
    federation.kill(device)
    federation.run(
        until=lambda: federation.participants[sender]._mailbox.acknowledged(device, data.key)
    )
    federation.start(device)
    return device


@pytest.mark.parametrize(
    "topic", [pytest.param("strict/proposal", marks=pytest.mark.long), "score"]
)
def test_a_non_neighbour_sends_its_envelope_again(
    few_words_parts: PartsFolder, linking: Config, topic: str
) -> None:
    """The device does not know beforehand that this one sends to it."""
    federation = Federation(few_words_parts, linking)
    device = restart_after(federation, topic, non_neighbours=True)
    federation.run()
    assert federation.coordinator.left_out == {}
    assert all(participant.ended == "" for participant in federation.participants.values())
    expected = lumos.train(few_words(), linking).model.weights
    assert all(same(weights(federation, one), expected) for one in (device, COORDINATOR))


class Lossy(Federation):
    """Envelopes to one participant are lost for some time, and all other frames arrive."""

    deaf: int | None = None
    until = 0.0

    def _send(self, packet: Packet) -> None:
        sender, receiver, _ = packet
        if receiver == self.deaf and self.now < self.until:
            frames = [frame for frame in self.decoded(packet) if not isinstance(frame, Data)]
            packet = (sender, receiver, self.encoded(sender, receiver, frames))
        super()._send(packet)


def building(balancer: str) -> Config:
    steps = {"epochs": 1} | ({"iterations": 10} if balancer == "mcmc" else {})
    return Config.asked(
        profile="paper", balancer=balancer, compare="secure", aggregate="secure", **steps
    )


def test_a_device_waits_for_what_its_neighbours_send_again(twelve: PartsFolder) -> None:
    """The coordinator has closed the round before the device is back."""
    undisturbed = Federation(twelve, building("greedy"))
    undisturbed.run()
    federation = Lossy(twelve, building("greedy"))
    federation.deaf = restart_after(federation, "compare", non_neighbours=False)
    federation.until = federation.now + 3
    federation.run()
    assert federation.coordinator.left_out == {}
    assert np.array_equal(trees(federation), trees(undisturbed))


def test_a_coordinator_waits_for_what_devices_send_again(twelve: PartsFolder) -> None:
    federation = Lossy(twelve, building("mcmc"))
    found: list[tuple[int, Data]] = []

    def watch(now: float, sender: int, receiver: int, frames: list[Any]) -> None:
        if receiver == COORDINATOR:
            found.extend(
                (sender, frame)
                for frame in frames
                if isinstance(frame, Data) and frame.topic == "mcmc/verdict" and frame.count
            )

    federation.watch = watch
    federation.run(until=lambda: bool(found))
    sender, data = found[0]
    box = federation.coordinator._mailbox
    federation.run(until=lambda: box.envelope(sender, data.key) is not None)
    federation.watch = None
    federation._work(COORDINATOR)
    federation.kill(COORDINATOR)
    federation.run(
        until=lambda: federation.device(sender)._mailbox.acknowledged(COORDINATOR, data.key)
    )
    federation.start(COORDINATOR)
    federation.deaf, federation.until = COORDINATOR, federation.now + 3
    closed = federation.coordinator_store.kept
    federation.run(until=lambda: data.key in closed)
    assert sender in closed[data.key]


SLOW = 3.0
"""Seconds that a large packet takes: some times the wait before a small one is repeated."""


@pytest.mark.parametrize("asks", [True, False])
def test_large_envelopes_over_slow_links_are_sent_once(
    twelve: PartsFolder, monkeypatch: pytest.MonkeyPatch, *, asks: bool
) -> None:
    """Unless they are lost: then twice. Where nobody asks, copies fill the link."""
    if not asks:
        monkeypatch.setattr(mailbox, "LARGE", 1 << 40)
    federation = Federation(twelve, building("greedy"))
    copies: Counter[tuple[int, int, RoundKey]] = Counter()
    lost: set[tuple[int, int, RoundKey]] = set()
    arrival: dict[tuple[int, int], float] = {}

    def route(now: float, packet: Packet) -> list[float]:
        sender, receiver, _ = packet
        large = [
            (sender, receiver, frame.key)
            for frame in federation.decoded(packet)
            if isinstance(frame, Data) and len(frame.body) >= 4096
        ]
        copies.update(large)
        if large and sender % 4 == 3 and copies[large[0]] == 1:  # the coordinator, and devices
            lost.update(large)
            return []
        there = max(now + (SLOW if large else 0.01), arrival.get((sender, receiver), 0.0))
        arrival[sender, receiver] = there  # packets between two participants keep their order
        return [there - now]

    federation.route = route
    federation.run()
    assert federation.coordinator.left_out == {}
    assert same(weights(federation), weights_of_simulation())
    assert {sender for sender, _, _ in lost} == {COORDINATOR, 3, 7, 11}
    again = [number - (place in lost) for place, number in copies.items()]
    assert (max(again) == 1) is asks
    assert (sum(again) > 2 * len(again)) is not asks


def weights_of_simulation() -> Arrays:
    return lumos.train("demo:12", building("greedy"), shards=12).model.weights
