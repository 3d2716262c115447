"""Transports: they move messages between the participants of a federation. One file each.

transport = TRANSPORTS["loopback"](shards, doors, ideal)
results, result = transport.run(device_program, coordinator_program)
transport.ledger()
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

from lumos.device.shard import Shard
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.messages import Door, Topic
from lumos.exchange.observer import LedgerReport, Observer
from lumos.registry import Registry

Result = TypeVar("Result")
Final = TypeVar("Final")


class Transport(Protocol):
    """Moves the messages of a federation: in memory, between processes, over a network."""

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """One endpoint for each shard of this process, in their order."""
        ...

    @property
    def coordinator(self) -> Endpoint:
        """The coordinator's endpoint."""
        ...

    @property
    def observer(self) -> Observer:
        """The observer, which gathers results and ledgers of all shards."""
        ...

    def run(
        self,
        device_program: Callable[[Shard, Endpoint], Program[Result]],
        coordinator_program: Callable[[Endpoint], Program[Final]],
    ) -> tuple[list[Result], Final]:
        """Run one program per shard and the coordinator's; returns their results."""
        ...

    def ledger(self) -> LedgerReport:
        """Everything that passed so far, added up by the observer."""
        ...


class TransportFactory(Protocol):
    """Makes the transport of one federation."""

    def __call__(
        self, shards: Sequence[Shard], doors: Collection[Door], ideal: Collection[Topic]
    ) -> Transport:
        """A transport whose endpoints check every message.

        Args:
            shards: those that this process hosts; together with other ranks', all of them.
            doors: the doors that the profile keeps open.
            ideal: topics of ideal backends that may compute in the clear and be booked by
                formula; none in a run with secure backends.
        """
        ...


TRANSPORTS: Registry[TransportFactory] = Registry(
    "transport",
    {
        "loopback": "lumos.exchange.transports.loopback:Loopback",
        "gloo": "lumos.exchange.transports.gloo:Gloo",
        "recording": "lumos.exchange.transports.loopback:RecordingLoopback",
    },
)
"""Every transport by name."""
