"""Loopback: all shards of a simulation in one process, and nothing between them but messages.

Shards are coroutines. A round is: resume every shard until it yields its outbox, route, deliver
the inboxes. No thread, no lock, and the same order every time.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import numpy as np

from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.batch import Inbox, Outbox
from lumos.exchange.endpoint import EVERY_DOOR, Endpoint, Program
from lumos.exchange.ledger_report import LedgerReport, add_up
from lumos.exchange.observer import OneProcess
from lumos.exchange.router import Router
from lumos.exchange.running import RunningProgram
from lumos.exchange.topic import Door, Topic

Result = TypeVar("Result")
Final = TypeVar("Final")


class Loopback:
    """The carrier of a simulation.

    Args:
        shards: all shards of the federation.
        doors: the doors that the profile keeps open.
        ideal: topics of ideal backends that may be booked by formula.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        doors: Collection[Door] = EVERY_DOOR,
        ideal: Collection[Topic] = (),
    ) -> None:
        hosts = np.empty(shards[0].total, np.int64)
        for number, shard in enumerate(shards):
            hosts[shard.devices] = number
        self._router = Router(hosts, len(shards))
        self._shards = shards
        self.endpoints = [Endpoint(shard, doors, ideal) for shard in shards]
        self.coordinator = Endpoint(None, doors, ideal)
        self.observer = OneProcess()

    def run(
        self,
        device_program: Callable[[Shard, Endpoint], Program[Result]],
        coordinator_program: Callable[[Endpoint], Program[Final]],
    ) -> tuple[list[Result], Final]:
        """Run one program per shard and the coordinator's; returns their results."""
        coordinator = RunningProgram(coordinator_program(self.coordinator), self.coordinator)
        parties = [
            RunningProgram(device_program(shard, endpoint), endpoint)
            for shard, endpoint in zip(self._shards, self.endpoints, strict=True)
        ]
        everybody: list[RunningProgram[Any]] = [*parties, coordinator]
        while not parties[0].finished:
            topic = parties[0].outbox.topic
            present: Sequence[RunningProgram[Any]] = everybody if topic.coordinator else parties
            for party in present:
                if party.finished or party.outbox.topic is not topic:
                    raise ProtocolError(f"the parties are out of step at topic {topic.name!r}")
            inboxes = self._carry(topic, [party.take() for party in present])
            for party, inbox in zip(present, inboxes, strict=False):
                party.resume(inbox)
        if not (coordinator.finished and all(party.finished for party in parties)):
            raise ProtocolError("the parties did not finish in the same round")
        return [party.result for party in parties], coordinator.result

    def _carry(self, topic: Topic, outboxes: Sequence[Outbox]) -> list[Inbox]:
        """The inboxes of one round; the coordinator's is the last."""
        return self._router.route(topic, outboxes)

    def ledger(self) -> LedgerReport:
        """Everything that passed, added up by the observer."""
        ledgers = [endpoint.ledger for endpoint in self.endpoints]
        return add_up([*ledgers, self.coordinator.ledger], self._shards[0].total)
