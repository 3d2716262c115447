"""A transport that does not evidence weights the program: messages are bytes, and who waits is
poisoned.

While one shard runs, every array that can be reached from the suspended programs of the others
holds nonsense. A program that reads another shard's memory, by whatever reference, computes
with that nonsense.
"""

import types
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import numpy as np
from tests.exchange.post import Post, PostOffice, Tamper, packed, unpacked

from lumos.device import Shard
from lumos.errors import ProtocolError
from lumos.exchange import (
    EVERY_DOOR,
    Door,
    Endpoint,
    Inbox,
    LedgerReport,
    Outbox,
    Program,
    Topic,
    add_up,
)
from lumos.exchange.observer import OneProcess

_PUBLIC = (Topic, Door)  # the same for all parties


def reachable(*roots: Any) -> list[np.ndarray]:
    """All arrays that own memory and can be reached from `roots`, each once."""
    found: dict[int, np.ndarray] = {}
    seen: dict[int, Any] = {}  # keeps what it has seen alive, so that no id is used twice
    waiting = list(roots)
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if isinstance(thing, np.ndarray):
            while isinstance(thing.base, np.ndarray):
                thing = thing.base
            if thing.size:
                found[id(thing)] = thing
        else:
            waiting.extend(_inside(thing))
    return list(found.values())


def _inside(thing: Any) -> Collection[Any]:
    if isinstance(thing, types.GeneratorType):
        frame = thing.gi_frame
        return [*frame.f_locals.values(), thing.gi_yieldfrom] if frame is not None else []
    if isinstance(thing, dict):
        return [*thing.keys(), *thing.values()]
    if isinstance(thing, list | tuple | set | frozenset):
        return thing
    if isinstance(thing, types.MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, types.FunctionType):
        return [cell.cell_contents for cell in thing.__closure__ or ()]
    if type(thing).__module__.split(".")[0] != "lumos" or isinstance(thing, _PUBLIC):
        return []
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    fields = [getattr(thing, name) for name in slots if hasattr(thing, name)]
    return [*getattr(thing, "__dict__", {}).values(), *fields]


def poison(array: np.ndarray) -> None:
    """Floats become NaN, integers extreme, truths lies."""
    if array.dtype.kind == "f":
        array[...] = np.nan
    elif array.dtype.kind == "i":
        array[...] = np.iinfo(array.dtype).min
    elif array.dtype.kind == "u":
        array[...] = np.iinfo(array.dtype).max
    elif array.dtype.kind == "b":
        np.logical_not(array, out=array)
    else:
        raise TypeError(f"an array of {array.dtype} in a program")


class _Party:
    """A program whose arrays are readable only while it runs."""

    def __init__(self, program: Program[Any], endpoint: Endpoint) -> None:
        self._program = program
        self._endpoint = endpoint
        self._topic: Topic | None = None
        self._kept: list[tuple[np.ndarray, np.ndarray]] = []
        self.finished = False
        self.result: Any = None
        self.outgoing = b""
        self.seal()

    def seal(self) -> None:
        arrays = reachable(self._program, self._endpoint, self.result)
        # Frozen arrays cannot be poisoned, but nor can anybody write messages into them.
        self._kept = [(array, array.copy()) for array in arrays if array.flags.writeable]
        for array, _ in self._kept:
            poison(array)

    def unseal(self) -> None:
        for array, kept in self._kept:
            array[...] = kept
        self._kept = []

    def run(self, incoming: bytes | None) -> None:
        """From one outbox to the next, with this party's arrays restored."""
        self.unseal()
        try:
            if incoming is None:
                outbox = next(self._program)
            else:
                assert self._topic is not None
                inbox = unpacked(msgspec.msgpack.decode(incoming, type=Post))
                outbox = self._program.send(self._endpoint.check_incoming(self._topic, inbox))
        except StopIteration as stop:
            self.finished, self.result = True, stop.value
        else:
            self._topic = outbox.topic
            self.outgoing = packed(self._endpoint.check_outgoing(outbox))
        self.seal()


class Isolated:
    """Like `Loopback`, for shards that may be up to no good."""

    def __init__(
        self,
        shards: Sequence[Shard],
        doors: Collection[Door] = EVERY_DOOR,
        ideal: Collection[Topic] = (),
        tamper: Tamper | None = None,
    ) -> None:
        hosts = [0] * shards[0].total
        for number, shard in enumerate(shards):
            for device in shard.devices.tolist():
                hosts[device] = number
        self.office = PostOffice(hosts, tamper)
        self._shards = shards
        self.observer = OneProcess()
        self.endpoints = [Endpoint(shard, doors, ideal) for shard in shards]
        self.coordinator = Endpoint(None, doors, ideal)

    def run(
        self,
        device_program: Callable[[Shard, Endpoint], Program[Any]],
        coordinator_program: Callable[[Endpoint], Program[Any]],
    ) -> tuple[list[Any], Any]:
        programs = [
            device_program(shard, endpoint)
            for shard, endpoint in zip(self._shards, self.endpoints, strict=True)
        ]
        parties = [
            _Party(program, endpoint)
            for program, endpoint in zip(programs, self.endpoints, strict=True)
        ]
        coordinator = _Party(coordinator_program(self.coordinator), self.coordinator)
        everybody = [*parties, coordinator]
        for party in everybody:
            party.run(None)
        while not any(party.finished for party in parties):
            topic = self.office.topic_of(parties[0].outgoing)
            present = everybody if topic.coordinator else parties
            if any(party.finished for party in present):
                raise ProtocolError(f"the parties are out of step at topic {topic.name!r}")
            posts = self.office.deliver([party.outgoing for party in present])
            for party, post in zip(present, posts, strict=True):
                party.run(post)
        if not all(party.finished for party in everybody):
            raise ProtocolError("the parties did not finish in the same round")
        for party in reversed(everybody):
            party.unseal()
        return [party.result for party in parties], coordinator.result

    def ledger(self) -> LedgerReport:
        ledgers = [endpoint.ledger for endpoint in (*self.endpoints, self.coordinator)]
        return add_up(ledgers, self._shards[0].total)


class Recorder:
    """A blocking transport for one party: answers each outbox with a prepared inbox."""

    def __init__(self, answer: Callable[[Outbox], Inbox]) -> None:
        self._answer = answer
        self.outboxes: list[Outbox] = []

    def swap(self, outbox: Outbox) -> Inbox:
        self.outboxes.append(outbox)
        return self._answer(outbox)
