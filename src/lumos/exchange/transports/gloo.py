"""Gloo: one shard in every rank, the coordinator at rank 0, and messages between them as bytes.

The face is that of `Loopback`: the programs cannot tell which of them moves their messages. A
round is one swap of the world (`lumos.ranks.world`): two collectives, one if nobody sends. Only
what the receiver reads travels: ids as 32 bits, lengths where messages differ in length, bodies;
one body for many receivers once. What a device spends (ε) stays in its own ledger.

`Hosts` knows the rank of every device: by bounds of ranges, or one or two bytes for each device.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from lumos.device.shard import COORDINATOR, Shard
from lumos.errors import ProtocolError, UsageError
from lumos.exchange.endpoint import EVERY_DOOR, Endpoint, Program, RunningProgram
from lumos.exchange.messages import Batch, Door, Inbox, Outbox, Topic
from lumos.exchange.observer import AcrossRanks, LedgerReport, add_up_parts, ledger_part
from lumos.ranks.world import LANES, NOTHING, Arrived, Sending, SwapKind, present
from lumos.typing import Ints

Numbers = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
Result = TypeVar("Result")
Final = TypeVar("Final")

TO_SHARD, TO_COORDINATOR, FROM_COORDINATOR = range(LANES)

_ID = np.dtype("<i4")


class Gloo:
    """The transport of a simulation over several processes.

    Args:
        shards: the one shard of this rank.
        doors: the doors that the profile keeps open.
        ideal: topics of ideal backends that may be booked by formula.

    Raises:
        UsageError: this process is no rank, or hosts several shards.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        doors: Collection[Door] = EVERY_DOOR,
        ideal: Collection[Topic] = (),
    ) -> None:
        world = present()
        if world is None:
            raise UsageError(
                "`transport='gloo'` needs ranks: start them with `ranks`, or with torchrun"
            )
        if len(shards) != 1:
            raise UsageError(f"a rank hosts one shard, not {len(shards)}; leave out `shards`")
        self._world = world
        (self._shard,) = shards
        self.endpoints = [Endpoint(self._shard, doors, ideal)]
        self.coordinator = Endpoint(None, doors, ideal)
        self.observer = AcrossRanks(world)
        self._hosts = self._all_hosts()

    def _all_hosts(self) -> "Hosts":
        """Gather which rank hosts which device; a range is sent by its ends."""
        ids = self._shard.devices
        whole = as_range(ids)
        numbers = ids if whole is None else ids[[0, -1]]
        sending = Sending(len(numbers), int(whole is not None), numbers.astype(_ID).view(np.uint8))
        lanes = [[sending, NOTHING, NOTHING]] * self._world.size
        self._world.wait_for_first()
        received = self._world.swap(SwapKind.GATHER, "hosts", lanes)
        if received is None:
            raise ProtocolError("no rank hosts a device")
        every: list[range | Ints] = []
        for rank in received:
            numbers = rank[0].body.view(_ID).astype(np.int64)
            ends = range(int(numbers[0]), int(numbers[-1]) + 1)
            every.append(ends if rank[0].width else numbers)
        return Hosts.of(every, self._shard.total)

    def run(
        self,
        device_program: Callable[[Shard, Endpoint], Program[Result]],
        coordinator_program: Callable[[Endpoint], Program[Final]],
    ) -> tuple[list[Result], Final]:
        """Run the program of this rank's shard, and the coordinator's at rank 0.

        Elsewhere the coordinator's result is None.
        """
        world = self._world
        world.wait_for_first()  # it may still write, or add up what passed before
        party = RunningProgram(device_program(self._shard, self.endpoints[0]), self.endpoints[0])
        coordinator = None
        if world.first:
            coordinator = RunningProgram(coordinator_program(self.coordinator), self.coordinator)
        while not party.finished:
            topic = party.outbox.topic
            outboxes = [party.take()]
            present_one = coordinator if topic.coordinator else None
            if present_one is not None:
                if present_one.finished or present_one.outbox.topic is not topic:
                    raise ProtocolError(f"the parties are out of step at topic {topic.name!r}")
                outboxes.append(present_one.take())
            to_shard, to_coordinator = self._carry(topic, outboxes)
            party.resume(to_shard)
            if present_one is not None:
                present_one.resume(to_coordinator)
        if coordinator is not None and not coordinator.finished:
            raise ProtocolError("the parties did not finish in the same round")
        world.swap(SwapKind.FINISHED, "finished", [[NOTHING] * LANES] * world.size)
        return [party.result], None if coordinator is None else coordinator.result  # type: ignore[return-value]

    def _carry(self, topic: Topic, outboxes: list[Outbox]) -> tuple[Inbox, Inbox]:
        """Move one round; return what the shard and the coordinator of this rank receive."""
        addressed: list[list[Batch | None]] = [[None] * LANES for _ in range(self._world.size)]
        for lane, outbox in zip((TO_SHARD, FROM_COORDINATOR), outboxes, strict=False):
            if outbox.batch.messages:
                self._address(outbox.batch, lane, addressed)
        outboxes.clear()
        mine = addressed[self._world.rank]
        # What stays in this rank is counted in the head, and not turned into bytes and back.
        sent = [
            [_counted(batch) if lanes is mine else _sending(batch) for batch in lanes]
            for lanes in addressed
        ]
        received = self._world.swap(SwapKind.ROUND, topic.name, sent)
        del sent, addressed
        if received is None:
            return topic.silence, topic.silence
        # In the order of the ranks: senders then increase, which is quicker to sort.
        every = [
            [
                mine[lane] if rank == self._world.rank else _batch(topic, arrived, lane)
                for lane, arrived in enumerate(lanes)
            ]
            for rank, lanes in enumerate(received)
        ]
        del received, mine
        to_shard = [lanes[lane] for lanes in every for lane in (TO_SHARD, FROM_COORDINATOR)]
        to_coordinator = [lanes[TO_COORDINATOR] for lanes in every]
        del every
        return _inbox(topic, to_shard), _inbox(topic, to_coordinator)

    def _address(self, batch: Batch, lane: int, addressed: list[list[Batch | None]]) -> None:
        """Put the messages of an outbox into the lanes of the ranks that host their receivers."""
        batch = Batch(batch.sender, batch.receiver, batch.body, None, batch.lengths)
        if lane == TO_SHARD:
            upward = batch.receiver == COORDINATOR
            if upward.all():
                addressed[0][TO_COORDINATOR] = batch
                return
            if upward.any():
                addressed[0][TO_COORDINATOR] = batch.take(upward)
                batch = batch.take(~upward)
        to = self._hosts.ranks(batch.receiver)
        for rank, lanes in enumerate(addressed):
            here = to == rank
            count = np.count_nonzero(here)
            if count:
                lanes[lane] = batch if count == len(to) else batch.take(here)

    def ledger(self) -> LedgerReport:
        """Everything that passed, added up at rank 0; elsewhere what this rank's shard did."""
        own = ledger_part(self.endpoints[0].ledger)
        parts = self.observer.gather("ledger", [own])
        if not self._world.first:
            hosted = len(self._shard)
            return add_up_parts([{**own, "devices": np.arange(hosted)}], hosted)
        parts.append(ledger_part(self.coordinator.ledger))
        return add_up_parts(parts, self._shard.total)


def _counted(batch: Batch | None) -> Sending:
    """Messages that stay in this rank: their number alone."""
    return NOTHING if batch is None else Sending(batch.messages, 0, NOTHING.body)


def _sending(batch: Batch | None) -> Sending:
    """The messages as bytes: senders, receivers, lengths where they differ, bodies.

    The width is that of one body in bytes, times 4, and flags: 1 where one body is for all of them,
    2 where all have its length.
    """
    if batch is None:
        return NOTHING
    body, lengths = batch.body, batch.lengths
    once = len(body) > 1 and body.strides[0] == 0
    rows = np.ascontiguousarray(body[:1] if once else body)
    width = rows.nbytes // len(rows)
    alike = lengths is not None and bool((lengths == width).all())
    ids = [batch.sender, batch.receiver]
    if lengths is not None and not alike:
        ids.append(lengths)
    columns = [np.ascontiguousarray(column, _ID).view(np.uint8) for column in ids]
    flat = np.concatenate([*columns, rows.reshape(-1).view(np.uint8)])
    return Sending(batch.messages, 4 * width + 2 * alike + once, flat)


def _batch(topic: Topic, received: Arrived, lane: int) -> Batch:
    """The messages of one lane. `Endpoint.check_incoming` checks them.

    Raises:
        ProtocolError: the bytes do not match their head.
    """
    count = received.messages
    if count == 0:
        return topic.no_messages
    width, flags = divmod(received.width, 4)
    once, alike = bool(flags & 1), bool(flags & 2)
    columns = 3 if topic.shape is None and not alike else 2
    start = columns * count * _ID.itemsize
    rows = 1 if once else count
    if len(received.body) != start + rows * width or (
        topic.shape is not None and width != topic.size
    ):
        raise ProtocolError(f"topic {topic.name!r}: bytes arrived that are no messages")
    ids = received.body[:start].view(_ID).reshape(columns, count).astype(np.int64)
    shape = (width,) if topic.shape is None else topic.shape
    flat = received.body[start:].view(topic.element)
    body = np.require(flat, requirements="A").reshape(rows, *shape)
    if once:
        body = np.broadcast_to(body, (count, *shape))
    if lane == FROM_COORDINATOR and (ids[0] != COORDINATOR).any():
        raise ProtocolError(f"topic {topic.name!r}: a device spoke in place of the coordinator")
    lengths: Ints | None = None
    if topic.shape is None:
        lengths = np.broadcast_to(np.int64(width), count) if alike else ids[2]
    return Batch(ids[0], ids[1], body, None, lengths)


def _inbox(topic: Topic, batches: list[Batch | None]) -> Inbox:
    """All messages for one participant, by receiver, then sender."""
    some = [batch for batch in batches if batch is not None and batch.messages]
    batches.clear()
    if not some:
        return Inbox(topic.no_messages, quiet=False)
    joined = Batch.joined(some)
    del some
    return Inbox(joined.in_order().packed(), quiet=False)


class Hosts:
    """The rank of every device.

    Args:
        bounds: [ranks + 1] rank r hosts bounds[r] … bounds[r + 1] - 1; None where ranks host any.
        numbers: [devices] the rank of each, where ranks host any.
    """

    def __init__(self, bounds: Ints | None, numbers: Numbers | None) -> None:
        self._bounds, self._numbers = bounds, numbers

    @staticmethod
    def of(devices: Sequence[range | Ints], total: int) -> "Hosts":
        """From what each rank hosts: a range, or [hosted] ids, increasing.

        Raises:
            ProtocolError: a device is hosted nowhere, or twice.
        """
        ranges = [ids for ids in devices if isinstance(ids, range)]
        ends = [ids.stop for ids in ranges]
        if len(ranges) == len(devices) and [ids.start for ids in ranges] == [0, *ends[:-1]]:
            if ends[-1] != total:
                raise ProtocolError("a device is hosted by no rank")
            return Hosts(np.array([0, *ends]), None)
        numbers: Numbers = (
            np.zeros(total, np.uint8) if len(devices) <= 256 else np.zeros(total, np.uint16)
        )
        seen = np.zeros(total, np.bool_)
        for rank, hosted in enumerate(devices):
            ids = slice(hosted.start, hosted.stop) if isinstance(hosted, range) else hosted
            if seen[ids].any():
                raise ProtocolError(f"rank {rank} hosts a device that another rank hosts too")
            seen[ids] = True
            numbers[ids] = rank
        if not seen.all():
            raise ProtocolError("a device is hosted by no rank")
        return Hosts(None, numbers)

    def ranks(self, ids: Ints) -> Numbers:
        """[ids] the rank of each device."""
        if self._numbers is not None:
            return self._numbers[ids]
        bounds = np.asarray(self._bounds)
        if len(bounds) > 257:
            return (np.searchsorted(bounds, ids, side="right") - 1).astype(np.uint16)
        ranks = np.zeros(len(ids), np.uint8)
        for bound in bounds[1:-1].tolist():  # few: cheaper than a search for each id
            ranks += ids >= bound
        return ranks


def as_range(ids: Ints) -> range | None:
    """The same ids as a range; None where they are none."""
    first, last = int(ids[0]), int(ids[-1])
    return range(first, last + 1) if last - first == len(ids) - 1 else None
