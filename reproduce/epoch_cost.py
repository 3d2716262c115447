"""Messages and simulated seconds of an epoch: a real epoch is run, and its ledger is counted."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from lumos.device.randomness import PublicRandomness
from lumos.graph import Graph
from lumos.runs.loop import Federation
from lumos.training.config import Config, Task
from lumos.training.problem import Problem
from lumos.training.profile import PAPER
from lumos.training.split import Role, split_edges, split_vertices
from lumos.training.trainer import ShardResult
from lumos.trees.balance import Balanced, balance
from lumos.typing import Doubles, Ints
from reproduce.device_model import (
    DeviceModel,
    EpochCost,
    Traffic,
    elements_of,
    epoch_seconds,
    forward_flops,
)

STAND_IN_FEATURES = 128
"""Number of features where a graph has none: LastFM's in the paper."""
FORWARD, BACKWARD = "train/leaf", "aggregate/wrapped/ideal"
"""The topics before which a device computes its forward and its backward pass."""
SUM = "aggregate/"
"""Prefix of the topics of the masked sum."""


def measure_epoch(
    graph: Graph,
    *,
    task: Task,
    balancers: tuple[str, ...],
    iterations: int,
    epochs: int,
    seed: int,
    device: DeviceModel | None = None,
) -> dict[str, Any]:
    """Messages and simulated seconds of an epoch, for each balancer; figures for JSON."""
    device = device or DeviceModel()
    stand_in = graph.features is None
    if stand_in:
        graph = replace(graph, features=np.zeros((graph.devices, STAND_IN_FEATURES), np.float32))
    by_balancer = {}
    for balancer in balancers:
        config = Config.of(
            profile=PAPER,
            task=task,
            balancer=balancer,
            iterations=iterations,
            compare="ideal",
            epsilon=float("inf"),  # noise comes before the first epoch, and in no message of one
            epochs=epochs,
        )
        federation, trees = simulated_federation(graph, config, seed)
        costs = _run_epochs(federation, epochs)
        work = _work(federation, trees, stand_in)
        by_balancer[balancer] = _figures(costs, work, trees, device)
    return {"device": asdict(device), "stand_in_features": stand_in, "by": by_balancer}


def simulated_federation(
    graph: Graph, config: Config, seed: int
) -> tuple[Federation[ShardResult], Balanced]:
    """Return the simulation of all devices in one shard, before its setup, and their trees."""
    public = PublicRandomness(seed)
    roles = np.full(graph.devices, Role.NOBODY, np.int64)
    held_back, classes = np.empty((0, 2), np.int64), 0
    if config.train.task == "link":
        split = split_edges(graph, public)
        graph, held_back = split.training, split.validation
    else:
        roles = split_vertices(np.asarray(graph.labels), public)
        classes = graph.class_count
    trees = balance(graph, config.trees, seed=seed)
    problem = Problem.of(
        graph=graph,
        keep=trees.keep,
        roles=roles,
        held_back=held_back,
        classes=classes,
        seed=seed,
        shards=1,
    )
    return Federation(problem, config), trees


def _run_epochs(federation: Federation[ShardResult], epochs: int) -> list[EpochCost]:
    """Run some epochs and count what each of them sends."""
    federation.run(lambda trainer: trainer.setup(), lambda program: program.setup())
    costs, before = [], _counts(federation)
    for epoch in range(epochs):
        _run_epoch(federation, epoch)
        after = _counts(federation)
        costs.append(_difference(before, after))
        before = after
    return costs


def _run_epoch(federation: Federation[ShardResult], epoch: int) -> None:
    federation.run(
        lambda trainer: trainer.epochs(epoch, epoch + 1),
        lambda program: program.epochs(epoch, epoch + 1),
    )


def _counts(federation: Federation[ShardResult]) -> dict[str, Ints]:
    return {
        name: np.array(counts)
        for name, counts in federation.transport.endpoints[0].ledger.state_dict().items()
    }


def _difference(before: dict[str, Ints], after: dict[str, Ints]) -> EpochCost:
    counted = {
        name: (counts - before[name] if name in before else counts).astype(np.float64)
        for name, counts in after.items()
    }
    topics = dict.fromkeys(name.rsplit("|", 1)[0] for name in counted)
    nothing = np.zeros_like(counted["|rounds"])
    flows = {
        topic: Traffic(*(counted.get(f"{topic}|{part}", nothing) for part in Traffic._fields))
        for topic in topics
        if topic
    }
    moving = {
        topic: flow for topic, flow in flows.items() if flow.sent.any() or flow.received.any()
    }
    return EpochCost(moving, float(counted["|round"][0]))


def _work(
    federation: Federation[ShardResult], trees: Balanced, stand_in: bool
) -> dict[str, Doubles]:
    """By topic, [devices] operations; the backward pass costs twice the forward one."""
    config, graph = federation.config, trees.graph
    width = graph.feature_count
    own = replace(trees, graph=replace(graph, features=None)) if stand_in else trees
    forward = forward_flops(trees.workload, elements_of(own, width), config.model)
    return {FORWARD: forward, BACKWARD: 2 * forward}


def _figures(
    costs: list[EpochCost], work: dict[str, Doubles], trees: Balanced, device: DeviceModel
) -> dict[str, Any]:
    """Means over the epochs."""
    every = []
    nothing = np.zeros(len(trees.workload))
    for epoch in costs:
        seconds = epoch_seconds(epoch, work, device)
        flows = epoch.traffic
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
