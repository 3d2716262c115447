"""The balancers as programs for any transport, each shard with a comparer of its own."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np

from lumos.device import PublicRandomness, Shard, cut
from lumos.exchange import EVERY_DOOR, Door, Endpoint, LedgerReport, Program, Topic
from lumos.graph import Graph
from lumos.trees.balancers.greedy import greedy
from lumos.trees.balancers.mcmc import mcmc, mcmc_coordinator
from lumos.trees.balancers.optimal import optimal
from lumos.twoparty.comparer import IDEAL_TOPICS, Comparer, IdealComparer, SecureComparer
from lumos.twoparty.workers import InProcess

SEED = 5
ITERATIONS = 4

Kept = set[tuple[int, int]]


class WholeTransport(Protocol):
    def run(
        self,
        device_program: Callable[[Shard, Endpoint], Program[Any]],
        coordinator_program: Callable[[Endpoint], Program[Any]],
    ) -> tuple[list[Any], Any]: ...

    def ledger(self) -> LedgerReport: ...


class TransportOf(Protocol):
    def __call__(
        self, shards: Sequence[Shard], doors: Collection[Door], ideal: Collection[Topic]
    ) -> WholeTransport: ...


def idle_program(_: Endpoint) -> Program[None]:
    yield from ()


def balanced(
    graph: Graph,
    shards: int,
    balancer: str,
    compare: str,
    transport_of: TransportOf,
) -> tuple[Kept, LedgerReport]:
    """Who keeps whom, and the ledger."""

    def device_program(shard: Shard, endpoint: Endpoint) -> Program[Any]:
        comparer: Comparer
        if compare == "secure":
            comparer = SecureComparer(shard, endpoint, InProcess())
        else:
            comparer = IdealComparer(shard, endpoint)
        if balancer == "mcmc":
            return mcmc(shard, comparer, ITERATIONS)
        return optimal(shard) if balancer == "optimal" else greedy(shard, comparer)

    def coordinator_program(endpoint: Endpoint) -> Program[None]:
        if balancer == "mcmc":
            return mcmc_coordinator(np.arange(graph.devices), PublicRandomness(SEED), ITERATIONS)
        return idle_program(endpoint)

    pieces = cut(graph, shards, SEED)
    transport = transport_of(pieces, EVERY_DOOR, IDEAL_TOPICS if compare == "ideal" else ())
    results, _ = transport.run(device_program, coordinator_program)
    kept: Kept = set()
    for shard, keep in zip(pieces, results, strict=True):
        slots = np.flatnonzero(keep)
        devices = shard.devices[shard.owner[slots]].tolist()
        kept.update(zip(devices, shard.neighbours[slots].tolist(), strict=True))
    return kept, transport.ledger()
