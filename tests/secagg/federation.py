"""Running masked sums over the loopback: what the tests of this folder share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lumos.device import PrivateRandomness, PublicRandomness, Shard, simulated_secrets
from lumos.exchange import EVERY_DOOR, Endpoint, LedgerReport, Outbox, Program
from lumos.exchange.transports.loopback import Loopback
from lumos.secagg import (
    AggregateSettings,
    IdealAggregator,
    IdealCoordinator,
    SecureAggregator,
    SecureCoordinator,
    Stage,
    shares,
)
from lumos.secagg.ideal import IDEAL_TOPICS
from lumos.secagg.mask_graph import MaskGraph, contributions_of, seed_of

SEED = 5


def simulated(devices: np.ndarray) -> np.ndarray:
    """Secrets that whoever knows the run seed can compute."""
    return simulated_secrets(SEED, devices)


def shards_of(
    total: int, count: int, secrets: Callable[[np.ndarray], np.ndarray] = simulated
) -> list[Shard]:
    """Shards of devices without data neighbours: masked sums never look at them."""
    shards = []
    for number in range(count):
        devices = np.arange(number, total, count, dtype=np.int64)
        shards.append(
            Shard(
                devices,
                total,
                np.zeros(len(devices) + 1, np.int64),
                np.empty(0, np.int64),
                PrivateRandomness(secrets(devices)),
                PublicRandomness(SEED),
            )
        )
    return shards


def drawn_graph(total: int, k: int) -> MaskGraph:
    """The mask graph that simulated devices draw: it follows from the run seed."""
    [everyone] = shards_of(total, 1)
    return MaskGraph(total, k, seed_of(contributions_of(everyone, 0), 0))


def some_graph(total: int, k: int, number: int = 0) -> MaskGraph:
    """One mask graph of many."""
    return MaskGraph(total, k, number.to_bytes(32, "little"))


def graph_in_order(order: np.ndarray, k: int) -> MaskGraph:
    """The mask graph on a given ring of ids."""
    graph = some_graph(len(order), k)
    graph._ring.ids = order
    return graph


def some_elements(*shape: int, seed: int = 0) -> np.ndarray:
    """Elements of the field."""
    return np.random.default_rng(seed).integers(0, shares.PRIME, shape).astype(np.uint16)


@dataclass
class Federation:
    """One run of masked sums, with ways to interfere.

    tamper: gets every outbox of a device program, and may return another one.
    aggregator, coordinator: other classes for the parties.
    fused: hand in the float sum of each shard.
    crop: leave out rows of the vectors beyond this one.
    secrets: of the devices, by their ids.
    """

    settings: AggregateSettings
    backend: str = "secure"
    shards: int = 1
    tamper: Callable[[Outbox], Outbox] | None = None
    aggregator: type[SecureAggregator] = SecureAggregator
    coordinator: type[SecureCoordinator] = SecureCoordinator
    fused: bool = False
    crop: int | None = None
    transport: type[Any] = Loopback
    secrets: Callable[[np.ndarray], np.ndarray] = simulated
    inputs: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    sent: list[Outbox] = field(default_factory=list)
    ledger: LedgerReport | None = None

    def run(
        self, rounds: Sequence[np.ndarray], drop_stage: Sequence[np.ndarray] | None = None
    ) -> tuple[list[list[Any]], list[Any]]:
        """The sums that each shard, and the coordinator, got in each round."""
        total = len(rounds[0])
        stages = drop_stage or [np.full(total, Stage.NEVER, np.int8)] * len(rounds)
        widths = [vectors.shape[1] for vectors in rounds]
        self.inputs = list(zip(rounds, stages, strict=True))

        def devices(shard: Shard, endpoint: Endpoint) -> Program[list[Any]]:
            ideal = self.backend == "ideal"
            kind = IdealAggregator if ideal else self.aggregator
            aggregator = kind(shard, endpoint, self.settings)
            yield from self._watched(aggregator.setup())
            sums = []
            for number in range(len(widths)):
                program = self._sum(aggregator, shard.devices, number)
                sums.append((yield from self._watched(program)))
            return sums

        def coordinator(endpoint: Endpoint) -> Program[list[Any]]:
            kind = IdealCoordinator if self.backend == "ideal" else self.coordinator
            party = kind(total, endpoint, self.settings)
            yield from party.setup()
            sums = []
            for width in widths:
                sums.append((yield from party.sum(width)))
            return sums

        permitted = IDEAL_TOPICS if self.backend == "ideal" else ()
        transport = self.transport(
            shards_of(total, self.shards, self.secrets), EVERY_DOOR, permitted
        )
        result = transport.run(devices, coordinator)
        self.ledger = transport.ledger()
        return result

    def _sum(self, aggregator: Any, devices: np.ndarray, number: int) -> Program[Any]:
        """A shard's part of one sum; it gets copies, as it would on a machine of its own."""
        vectors, silent = self.inputs[number]
        mine = vectors[devices][: self.crop]
        if self.fused:
            return aggregator.sum_fused(mine.sum(axis=0))
        if self.backend == "ideal":
            return aggregator.sum(mine)
        return aggregator.sum(mine, silent[devices])

    def _watched(self, program: Program[Any]) -> Program[Any]:
        inbox = None
        try:
            while True:
                outbox = next(program) if inbox is None else program.send(inbox)
                if self.tamper is not None:
                    outbox = self.tamper(outbox)
                self.sent.append(outbox)
                inbox = yield outbox
        except StopIteration as stop:
            return stop.value

    def bodies(self, name: str) -> dict[int, list[bytes]]:
        """By sender, the bodies of a topic in the order they were sent."""
        found: dict[int, list[bytes]] = {}
        for outbox in self.sent:
            if outbox.topic.name == name:
                for sender, body in zip(
                    outbox.batch.sender.tolist(), outbox.batch.body, strict=True
                ):
                    found.setdefault(sender, []).append(body.tobytes())
        return found


def fixed_sum(vectors: np.ndarray, fraction_bits: int) -> np.ndarray:
    """The oracle: whole numbers in Python, added up one by one."""
    scaled = np.rint(vectors * 2.0**fraction_bits).astype(object)
    totals = [sum(map(int, column)) for column in scaled.T]
    return np.array(totals, np.float64) * 2.0**-fraction_bits
