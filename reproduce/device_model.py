"""A stated model of devices and their network: how long an epoch takes in a federation.

Every topic of an epoch has a round of its own, and nobody goes on before the slowest has finished:

    seconds = rounds · latency + Σ_topics max_u [work_u / flops + up_u / upload + down_u / download]

Work is counted in floating-point operations on a device's own tree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse

from lumos.graph import Graph
from lumos.ldp.one_bit import largest_bin
from lumos.model import ModelSettings
from lumos.trees.balance import Balanced
from lumos.typing import Doubles, Ints


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
    """Bytes that a transport adds to each message: addresses, framing, authentication."""
    flops: float = 1e9
    """Floating-point operations per second of a device on matrices this small."""


class Traffic(NamedTuple):
    """Messages of one topic in one epoch, device by device."""

    sent: Doubles
    """[devices] messages."""
    received: Doubles
    bytes_sent: Doubles
    bytes_received: Doubles


class EpochCost(NamedTuple):
    """One epoch as the ledger has it."""

    traffic: dict[str, Traffic]
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
    transport = np.repeat(np.arange(graph.devices), graph.degrees)[trees.keep]
    leaf = graph.neighbours[trees.keep]
    receivers: Ints = np.bincount(leaf, minlength=graph.devices)
    bins = largest_bin(width, receivers)[leaf]
    received = np.bincount(transport, weights=bins, minlength=graph.devices)
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
        epoch: what was sent and received.
        work: by topic, [devices] operations before it is sent.
        device: the stated model.
    """
    seconds = {"": epoch.rounds * device.latency}
    for topic, flow in epoch.traffic.items():
        up = (flow.bytes_sent + device.header * flow.sent) / device.upload
        down = (flow.bytes_received + device.header * flow.received) / device.download
        busy = up + down
        if topic in work:
            busy = busy + work[topic] / device.flops
        seconds[topic] = float(busy.max(initial=0.0))
    return seconds
