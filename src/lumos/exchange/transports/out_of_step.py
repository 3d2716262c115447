"""A loopback for attacks on programs that may come to differ in their rounds."""

from typing import Any

import numpy as np

from lumos.exchange.endpoint import RunningProgram
from lumos.exchange.messages import Outbox, Topic
from lumos.exchange.transports.loopback import Loopback


class OutOfStep(Loopback):
    """A loopback that stops where devices are at different rounds."""

    parties: list[RunningProgram[Any]]

    def run(self, device_program: Any, coordinator_program: Any) -> Any:
        """Run the programs while all devices are at one topic."""
        ends = zip(self._shards, self.endpoints, strict=True)
        self.parties = [RunningProgram(device_program(*end), end[1]) for end in ends]
        coordinator = RunningProgram(coordinator_program(self.coordinator), self.coordinator)
        everybody = [*self.parties, coordinator]
        while len({party.outbox.topic for party in self.parties}) == 1:
            topic = self.parties[0].outbox.topic
            present = everybody if topic.coordinator else self.parties
            inboxes = self._carry(topic, [party.take() for party in present])
            for party, inbox in zip(present, inboxes, strict=False):
                party.resume(inbox)

    def take_from(self, topic: Topic) -> dict[int, Outbox]:
        """Return what the devices send that are at a topic."""
        at = [party.outbox.topic is topic for party in self.parties]
        return {device: self.parties[device].take() for device in np.flatnonzero(at).tolist()}

    def deliver(self, outbox: Outbox) -> None:
        """Carry what the coordinator sends to the devices that are at its topic."""
        silence = [outbox.topic.nothing()] * len(self.parties)
        inboxes = self._carry(outbox.topic, [*silence, outbox])
        for party, inbox in zip(self.parties, inboxes, strict=False):
            if party.outbox.topic is outbox.topic:
                party.resume(inbox)
