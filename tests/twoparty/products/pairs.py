"""Running sums over pairs: what the tests of this folder share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from tests.secagg.federation import shards_of
from tests.session_doubles import Toy

from lumos.device import Shard
from lumos.errors import ProtocolError
from lumos.exchange import EVERY_DOOR, Endpoint, LedgerReport, Outbox, Program
from lumos.exchange.endpoint import RunningProgram
from lumos.exchange.transports.loopback import Loopback
from lumos.secagg import (
    AggregateSettings,
    IdealAggregator,
    IdealCoordinator,
    SecureAggregator,
    SecureCoordinator,
)
from lumos.secagg.ideal import IDEAL_TOPICS as IDEAL_SUMS
from lumos.twoparty.product_sums import (
    IDEAL_TOPICS,
    PairedCoordinator,
    SecurePairedSums,
    paired_sums,
)


@dataclass
class Problem:
    """A random matching with random words, numbers and noise."""

    total: int = 12
    words: int = 9
    width: int = 3
    steps: int = 1
    unmatched: int = 2
    seed: int = 0
    noisy: bool = True
    partner: np.ndarray = field(init=False)
    chosen: np.ndarray = field(init=False)
    vectors: np.ndarray = field(init=False)
    noise: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        randomness = np.random.default_rng(self.seed)
        order = randomness.permutation(self.total)[self.unmatched :]
        self.partner = np.full(self.total, -1, np.int64)
        self.partner[order[::2]], self.partner[order[1::2]] = order[1::2], order[::2]
        self.chosen = (randomness.random((self.total, self.words)) < 0.3).astype(np.int8)
        shape = (self.steps, self.total)
        self.vectors = randomness.integers(-127, 128, (*shape, self.width)).astype(np.int8)
        self.noise = randomness.normal(scale=3, size=(*shape, self.words * self.width))

    def pairs(self) -> list[tuple[int, int]]:
        return [(u, int(v)) for u, v in enumerate(self.partner) if u < v]

    def truth(
        self, step: int, fraction_bits: int, pairs: list[tuple[int, int]], noisy: np.ndarray
    ) -> np.ndarray:
        """The oracle: Python's whole numbers, of these pairs and the noise of these devices.

        Of devices without a partner, those whose noise is in it add half of their own product.
        """
        total = np.zeros((self.words, self.width), object)
        for u, v in pairs:
            for one, other in ((u, v), (v, u)):
                row = self.chosen[one].astype(object)
                total += np.outer(row, self.vectors[step][other].astype(object))
        for alone in np.arange(self.total)[noisy]:
            if self.partner[alone] < 0:
                half = [int(number / 2) for number in self.vectors[step][alone].tolist()]
                total += np.outer(self.chosen[alone].astype(object), np.array(half, object))
        total = total.ravel() * 2 ** (fraction_bits - 7)
        if self.noisy:
            rounded = np.rint(self.noise[step][noisy] * 2.0**fraction_bits).astype(object)
            total = total + rounded.sum(axis=0)
        return np.array(total, np.float64) * 2.0**-fraction_bits


@dataclass
class PairedRun:
    """One run of sums over pairs.

    transport: makes the transport from shards, doors and permitted topics.
    wrap: gets the program of each shard, and may return another one.
    """

    problem: Problem
    backend: str = "secure"
    shards: int = 1
    settings: AggregateSettings = field(default_factory=AggregateSettings)
    transport: Callable[..., Any] = Loopback
    aggregator: type[SecureAggregator] = SecureAggregator
    coordinator: type[SecureCoordinator] = SecureCoordinator
    wrap: Callable[[Shard, Program[Any]], Program[Any]] = lambda _, program: program
    toy: bool = False
    paired_coordinator: Callable[[Any], Any] = PairedCoordinator
    ledger: LedgerReport | None = None
    made: Any = None
    aggregators: list[Any] = field(default_factory=list)

    def run(self) -> tuple[list[list[Any]], list[Any]]:
        """The sums that each shard, and the coordinator, got in each step."""
        problem, ideal = self.problem, self.backend == "ideal"

        def devices(shard: Shard, endpoint: Endpoint) -> Program[list[Any]]:
            return self.wrap(shard, self._devices(shard, endpoint))

        def coordinator(endpoint: Endpoint) -> Program[list[Any]]:
            kind = IdealCoordinator if ideal else self.coordinator
            sums = kind(problem.total, endpoint, self.settings)
            yield from sums.setup()
            party = self.paired_coordinator(sums)
            got = []
            for _ in range(problem.steps):
                got.append((yield from party.sum(problem.words * problem.width)))
            return got

        permitted = IDEAL_TOPICS | IDEAL_SUMS if ideal else ()
        transport = self.transport(shards_of(problem.total, self.shards), EVERY_DOOR, permitted)
        self.made = transport
        result = transport.run(devices, coordinator)
        self.ledger = transport.ledger()
        return result

    def _sums(self, shard: Shard, endpoint: Endpoint, aggregator: Any) -> Any:
        if self.toy:
            return SecurePairedSums(shard, endpoint, aggregator, group=Toy())
        return paired_sums(shard, endpoint, aggregator)

    def _devices(self, shard: Shard, endpoint: Endpoint) -> Program[list[Any]]:
        problem, here = self.problem, shard.devices
        kind = IdealAggregator if self.backend == "ideal" else self.aggregator
        aggregator = kind(shard, endpoint, self.settings)
        self.aggregators.append(aggregator)
        yield from aggregator.setup()
        sums = self._sums(shard, endpoint, aggregator)
        yield from sums.setup(problem.partner[here].copy(), csr_array(problem.chosen[here]))
        got = []
        for step in range(problem.steps):
            noise = problem.noise[step][here] if problem.noisy else None
            got.append((yield from sums.sum(problem.vectors[step][here].copy(), noise, step)))
        return got


class Dying(Loopback):
    """A loopback in which parties really stop: they are not advanced and send nothing.

    Every party goes its own way: a round is held among the parties that wait at its topic.

    Args:
        deaths: by shard, the round (counted from 0) from which on it is silent.
        cut: a topic, a sender and a receiver whose messages are lost.
        tolerant: a party that raises `ProtocolError` is silent from then on.
    """

    def __init__(
        self,
        *arguments: Any,
        deaths: dict[int, int] | None = None,
        cut: tuple[str, int, int] | None = None,
        tolerant: bool = False,
    ) -> None:
        super().__init__(*arguments)
        self._deaths = deaths or {}
        self._tolerant = tolerant
        self._cut = cut
        self.rounds: list[str] = []
        self.refused: dict[int, ProtocolError] = {}
        self.swaps: list[tuple[str, list[Any]]] = []

    def run(self, device_program: Any, coordinator_program: Any) -> Any:
        coordinator = RunningProgram(coordinator_program(self.coordinator), self.coordinator)
        devices = {
            number: RunningProgram(device_program(shard, endpoint), endpoint)
            for number, (shard, endpoint) in enumerate(
                zip(self._shards, self.endpoints, strict=True)
            )
        }
        everybody = {**devices, len(devices): coordinator}
        silent: set[int] = set()
        while waiting := {n: p for n, p in everybody.items() if n not in silent and not p.finished}:
            topic = next(iter(waiting.values())).outbox.topic
            among = [p.outbox.topic for n, p in waiting.items() if p is not coordinator]
            free = [topic for topic in among if not topic.coordinator]
            if free:
                topic = free[0]
            elif not coordinator.finished:
                topic = coordinator.outbox.topic
            else:
                break  # they wait for a coordinator that has gone
            now = len(self.rounds)
            silent |= {number for number, first in self._deaths.items() if first <= now}
            present = {
                n: p for n, p in waiting.items() if n not in silent and p.outbox.topic is topic
            }
            if not present:
                raise ProtocolError("nobody is left")
            outboxes = [topic.nothing()] * len(everybody)
            for number, party in present.items():
                batch = party.outbox.batch
                if self._cut is not None and self._cut[0] == topic.name:
                    _, sender, receiver = self._cut
                    lost = (batch.sender == sender) & (batch.receiver == receiver)
                    batch = batch.take(~lost)
                outboxes[number] = Outbox(topic, batch)
            self.rounds.append(topic.name)
            self.swaps.append((topic.name, [outbox.batch for outbox in outboxes]))
            inboxes = self._router.route(topic, outboxes)
            for number, party in present.items():
                if number in silent:
                    continue
                try:
                    party.resume(inboxes[number])
                except ProtocolError as error:
                    if not self._tolerant or party is coordinator:
                        raise
                    self.refused[number] = error
                    silent.add(number)
        results = [getattr(party, "result", None) for party in devices.values()]
        return results, getattr(coordinator, "result", None)


class Watched:
    """Keeps every outbox of the device programs; `tamper` may change them."""

    def __init__(self, tamper: Callable[[Outbox], Outbox] | None = None) -> None:
        self.sent: list[Outbox] = []
        self._tamper = tamper

    def __call__(self, shard: Shard, program: Program[Any]) -> Program[Any]:
        inbox = None
        try:
            while True:
                outbox = next(program) if inbox is None else program.send(inbox)
                if self._tamper is not None:
                    outbox = self._tamper(outbox)
                self.sent.append(outbox)
                inbox = yield outbox
        except StopIteration as stop:
            return stop.value

    def bodies(self, name: str) -> list[tuple[int, int, bytes]]:
        """Sender, receiver and body of every message of a topic, in order."""
        return [
            (sender, receiver, body.tobytes())
            for outbox in self.sent
            if outbox.topic.name == name
            for sender, receiver, body in zip(
                outbox.batch.sender.tolist(),
                outbox.batch.receiver.tolist(),
                outbox.batch.body,
                strict=True,
            )
        ]
