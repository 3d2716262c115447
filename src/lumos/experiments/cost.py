"""How long an epoch takes in a federation: the slowest device of every round, by a stated model.

Messages and bytes come from the ledger, device by device and topic by topic: one real epoch is run
and counted. Work is counted in floating-point operations of a device's own tree. Every topic of an
epoch has a round of its own, and nobody goes on before the slowest has finished:

    seconds = rounds · latency + Σ_topics max_u [work_u / flops + up_u / upload + down_u / download]
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse

from lumos.device.coins import PublicCoins
from lumos.encode.one_bit import largest_bin
from lumos.exchange.endpoint import Program
from lumos.graph import Graph
from lumos.model.settings import ModelSettings
from lumos.runs.federation import Federation
from lumos.training.config import Config
from lumos.training.profile import Problem
from lumos.training.split import Role, split_edges, split_vertices
from lumos.training.trainer import CoordinatorProgram, Trainer
from lumos.trees.balance import Balanced, balance
from lumos.typing import Doubles, Ints

WIDTH_ELSEWHERE = 128
"""Features where a graph has none: LastFM's in the paper."""
FORWARD, BACKWARD = "train/leaf", "aggregate/shares/ideal"
"""Before which message a device computes what."""
SUM = "aggregate/"
"""Topics of the masked sum begin so."""


@dataclass(frozen=True, kw_only=True)
class DeviceModel:
    """A phone on a mobile network."""

    latency: float = 0.05
    """Seconds until a message arrives, once in every round."""
    upload: float = 1.25e6
    """Bytes per second a device can send: 10 Mbit/s."""
    download: float = 6.25e6
    """Bytes per second a device can receive: 50 Mbit/s."""
    header: int = 100
    """Bytes that a carrier adds to each message: addresses, framing, authentication."""
    flops: float = 1e9
    """Floating-point operations per second of a device on matrices this small."""


class Traffic(NamedTuple):
    """What passed in one topic in one epoch, device by device."""

    sent: Doubles
    """[devices] messages."""
    received: Doubles
    bytes_sent: Doubles
    bytes_received: Doubles


class EpochCost(NamedTuple):
    """One epoch as the ledger has it."""

    flows: dict[str, Traffic]
    """By topic."""
    rounds: float


def forward_flops(workload: Ints, elements: Doubles, model: ModelSettings) -> Doubles:
    """[devices] operations of the forward pass of a two-layer GCN on a device's own tree.

    A tree of w branches has w own leaves, w neighbours, w parents and a root: 3w + 1 nodes, 3w
    edges; where w = 0, one leaf. The first product costs 2 · hidden for each feature element that
    is not zero (virtual nodes have none, own leaves are equal and multiplied once), the second
    2 · hidden · output for each node; passing messages costs 2 · width for both directions of each
    edge and for each node's own part.

    Args:
        workload: [devices] branches.
        elements: [devices] feature elements that are not zero: own, and received from neighbours.
    """
    nodes, edges = 3 * workload + 1, 3 * workload
    passing = 2 * (2 * edges + nodes) * (model.hidden + model.output)
    products = 2 * model.hidden * elements + 2 * model.hidden * model.output * nodes
    total: Doubles = (products + passing).astype(np.float64)
    return total


def elements_of(trees: Balanced, width: int) -> Doubles:
    """[devices] feature elements that a device multiplies: its own, and a bin of each neighbour's.

    A device v whose leaf is in ρ(v) trees sends each of them ⌈d/ρ(v)⌉ elements at most.
    """
    graph = trees.graph
    carrier = np.repeat(np.arange(graph.devices), graph.degrees)[trees.keep]
    leaf = graph.neighbours[trees.keep]
    receivers: Ints = np.bincount(leaf, minlength=graph.devices)
    bins = largest_bin(width, receivers)[leaf]
    received = np.bincount(carrier, weights=bins, minlength=graph.devices)
    total: Doubles = _own_elements(graph, width) + received
    return total


def _own_elements(graph: Graph, width: int) -> Doubles:
    features = graph.features
    if features is None:
        return np.full(graph.devices, float(width))
    if issparse(features):
        counts = np.diff(csr_array(features).indptr)
    else:
        counts = np.count_nonzero(np.asarray(features), axis=1)
    return np.asarray(counts, np.float64)


def epoch_seconds(
    epoch: EpochCost, work: Mapping[str, Doubles], device: DeviceModel
) -> dict[str, float]:
    """By topic, the seconds of the slowest device; under "" the latency of all rounds.

    Args:
        epoch: what passed.
        work: by topic, [devices] operations before it is sent.
        device: the stated model.
    """
    found = {"": epoch.rounds * device.latency}
    for topic, flow in epoch.flows.items():
        up = (flow.bytes_sent + device.header * flow.sent) / device.upload
        down = (flow.bytes_received + device.header * flow.received) / device.download
        busy = up + down
        if topic in work:
            busy = busy + work[topic] / device.flops
        found[topic] = float(busy.max(initial=0.0))
    return found


def measure(
    graph: Graph,
    *,
    task: str,
    balancers: tuple[str, ...],
    iterations: int,
    epochs: int,
    seed: int,
    device: DeviceModel | None = None,
) -> dict[str, Any]:
    """Messages and simulated seconds of an epoch, for each balancer. Plain numbers, for JSON."""
    device = device or DeviceModel()
    bare = graph.features is None
    if bare:
        graph = replace(graph, features=np.zeros((graph.devices, WIDTH_ELSEWHERE), np.float32))
    found: dict[str, Any] = {"device": asdict(device), "stand_in_features": bare, "by": {}}
    for balancer in balancers:
        config = Config.asked(
            profile="paper",
            task=task,
            balancer=balancer,
            iterations=iterations,
            compare="ideal",
            epsilon=float("inf"),  # noise comes before the first epoch, and in no message of one
            epochs=epochs,
        )
        federation, trees = _federation(graph, config, seed)
        passed = _passed(federation, epochs)
        work = _work(federation, trees, bare)
        found["by"][balancer] = _told(passed, work, trees, device)
    return found


def _federation(graph: Graph, config: Config, seed: int) -> tuple[Federation[Any], Balanced]:
    public = PublicCoins(seed)
    roles = np.full(graph.devices, Role.NOBODY, np.int64)
    held_back, classes = np.empty((0, 2), np.int64), 0
    if config.train.task == "link":
        split = split_edges(graph, public)
        graph, held_back = split.training, split.validation
    else:
        roles = split_vertices(np.asarray(graph.labels), public)
        classes = graph.class_count
    trees = balance(graph, config.trees, seed=seed)
    problem = Problem(
        graph=graph,
        keep=trees.keep,
        roles=roles,
        held_back=held_back,
        classes=classes,
        seed=seed,
        shards=1,
    )
    return Federation(problem, config), trees


def _passed(federation: Federation[Any], epochs: int) -> list[EpochCost]:
    """What passed in each epoch."""
    federation.run(lambda trainer: trainer.setup(), lambda program: program.setup())
    found, before = [], _counts(federation)
    for epoch in range(epochs):
        federation.run(partial(_epoch, number=epoch), partial(_epoch, number=epoch))
        after = _counts(federation)
        found.append(_difference(before, after))
        before = after
    return found


def _epoch(program: Trainer[Any] | CoordinatorProgram, number: int) -> Program[None]:
    return program.epochs(number, number + 1)


def _counts(federation: Federation[Any]) -> dict[str, Ints]:
    return {
        name: np.array(counts)
        for name, counts in federation.carrier.endpoints[0].ledger.state().items()
    }


def _difference(before: dict[str, Ints], after: dict[str, Ints]) -> EpochCost:
    passed = {
        name: (counts - before[name] if name in before else counts).astype(np.float64)
        for name, counts in after.items()
    }
    topics = dict.fromkeys(name.rsplit("|", 1)[0] for name in passed)
    nothing = np.zeros_like(passed["|rounds"])
    flows = {
        topic: Traffic(*(passed.get(f"{topic}|{part}", nothing) for part in Traffic._fields))
        for topic in topics
        if topic
    }
    moving = {
        topic: flow for topic, flow in flows.items() if flow.sent.any() or flow.received.any()
    }
    return EpochCost(moving, float(passed["|round"][0]))


def _work(federation: Federation[Any], trees: Balanced, bare: bool) -> dict[str, Doubles]:
    """By topic, [devices] operations; the backward pass costs twice the forward one."""
    config, graph = federation.config, federation.problem.graph
    width = graph.feature_count
    own = replace(trees, graph=replace(graph, features=None)) if bare else trees
    forward = forward_flops(trees.workload, elements_of(own, width), config.model)
    return {FORWARD: forward, BACKWARD: 2 * forward}


def _told(
    passed: list[EpochCost], work: dict[str, Doubles], trees: Balanced, device: DeviceModel
) -> dict[str, Any]:
    """Means over the epochs."""
    every = []
    nothing = np.zeros(len(trees.workload))
    for epoch in passed:
        seconds = epoch_seconds(epoch, work, device)
        flows = epoch.flows
        trained = [flow for topic, flow in flows.items() if not topic.startswith(SUM)]
        summed = [value for topic, value in seconds.items() if topic.startswith(SUM)]
        sent = sum((flow.sent for flow in flows.values()), nothing)
        bytes_sent = sum((flow.bytes_sent for flow in flows.values()), nothing)
        tree_sent = sum((flow.sent for flow in trained), nothing)
        whole = sum(seconds.values())
        every.append(
            {
                "messages": sent.mean(),
                "tree_messages": tree_sent.mean(),
                "largest_tree_messages": tree_sent.max(),
                "bytes": bytes_sent.mean(),
                "seconds": whole,
                # Each topic of the sum has a round of its own, and its latency.
                "seconds_without_sum": whole - sum(summed) - device.latency * len(summed),
                "rounds": epoch.rounds,
            }
        )
    means = {name: float(np.mean([one[name] for one in every])) for name in every[0]}
    shown = {topic: round(value, 6) for topic, value in seconds.items()}
    return {
        **{name: round(value, 6) for name, value in means.items()},
        "slowest": shown,
        "largest_work": float(sum(work.values(), nothing).max()),
        "max_workload": trees.max_workload,
    }
