"""Loopback: all shards of a simulation in one process, and nothing between them but messages.

Shards are coroutines. A round is: resume every shard until it yields its outbox, route, deliver
the inboxes. No thread, no lock, and the same order every time. `RecordingLoopback` also records
what it delivers on the tape of the innermost `recording`; `Router` turns outboxes into inboxes.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import numpy as np

from lumos.device.shard import COORDINATOR, Shard
from lumos.errors import ProtocolError, UsageError
from lumos.exchange.endpoint import EVERY_DOOR, Endpoint, Program, RunningProgram
from lumos.exchange.messages import Batch, Door, Inbox, Outbox, Topic
from lumos.exchange.observer import LedgerReport, OneProcess, add_up
from lumos.exchange.tape import current_tape
from lumos.typing import Ints

Result = TypeVar("Result")
Final = TypeVar("Final")


class Loopback:
    """The transport of a simulation.

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


class RecordingLoopback(Loopback):
    """The transport `recording`: arguments as those of `Loopback`.

    Raises:
        UsageError: there is no tape.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        doors: Collection[Door] = EVERY_DOOR,
        ideal: Collection[Topic] = (),
    ) -> None:
        super().__init__(shards, doors, ideal)
        tape = current_tape()
        if tape is None:
            raise UsageError(
                "`transport='recording'` needs a tape; use it within `lumos.exchange.recording()`"
            )
        self._tape = tape
        self._ideal = frozenset(ideal)
        self._devices = shards[0].total
        self._number = tape.open()
        self._round = 0

    def _carry(self, topic: Topic, outboxes: Sequence[Outbox]) -> list[Inbox]:
        inboxes = [
            Inbox(
                self._tape.instead(self._number, self._round, topic, inbox.batch), quiet=inbox.quiet
            )
            for inbox in super()._carry(topic, outboxes)
        ]
        batches = [inbox.batch for inbox in inboxes if inbox.batch.messages]
        if batches:
            delivered = Batch.joined(batches).in_order()
            clear = topic in self._ideal
            self._tape.add(self._number, self._round, topic, delivered, self._devices, clear=clear)
        self._round += 1
        return inboxes


class Router:
    """The shard of every device; it splits outboxes into inboxes.

    Args:
        hosts: [devices] number of the shard that hosts each device.
        shards: number of shards; the coordinator is the participant after the last one.
    """

    def __init__(self, hosts: Ints, shards: int) -> None:
        self._hosts = np.append(hosts, shards)  # index -1, the coordinator, is the last participant
        self.parties = shards + 1

    def route(self, topic: Topic, outboxes: Sequence[Outbox]) -> list[Inbox]:
        """The inboxes of all participants, the coordinator's last."""
        batches = [outbox.batch for outbox in outboxes if outbox.batch.messages]
        if not batches:
            return [topic.silence] * self.parties
        everything = Batch.joined(batches).in_order()
        lowest, highest = everything.receiver[0], everything.receiver[-1]
        if lowest < COORDINATOR or highest >= len(self._hosts) - 1:
            raise ProtocolError(f"topic {topic.name!r}: receiver out of range")
        if self.parties == 2 and lowest != COORDINATOR:
            parts = [everything, topic.no_messages]  # one shard hosts every device
        elif self.parties == 2 and highest == COORDINATOR:
            parts = [topic.no_messages, everything]
        else:
            to = self._hosts[everything.receiver]
            order = np.argsort(to, kind="stable")
            ends = np.searchsorted(to[order], np.arange(self.parties + 1))
            parts = [
                # Packed: how long the messages of others are is nothing to know.
                everything.take(order[ends[party] : ends[party + 1]]).packed()
                for party in range(self.parties)
            ]
        return [Inbox(part, quiet=False) for part in parts]
