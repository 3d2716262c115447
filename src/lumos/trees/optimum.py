"""The least possible largest workload and its proof, by the observer: an oracle, no protocol."""

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from lumos.graph import Graph
from lumos.graph.arrays import spans
from lumos.typing import Ints


def least_largest_workload(graph: Graph) -> int:
    """The least possible largest workload, by maximum flow.

    Start from any assignment. Workload k is possible iff the surplus above k can flow, along
    carried edges, to devices with room below k. Binary search over k.
    """
    if not graph.edges:
        return 0
    first, second = graph.edge_list().T
    degree = graph.degrees
    owner = np.where(degree[first] <= degree[second], first, second)
    other = first + second - owner
    workload = np.bincount(owner, minlength=graph.devices)
    low, high = -(-graph.edges // graph.devices), int(workload.max())
    while low < high:
        middle = (low + high) // 2
        if _possible(owner, other, workload, middle):
            high = middle
        else:
            low = middle + 1
    return low


def _possible(owner: Ints, other: Ints, workload: Ints, most: int) -> bool:
    devices = len(workload)
    source, sink = devices, devices + 1
    over, under = np.flatnonzero(workload > most), np.flatnonzero(workload < most)
    tails = np.concatenate([owner, np.full(len(over), source), under])
    heads = np.concatenate([other, over, np.full(len(under), sink)])
    room = np.concatenate(
        [np.ones(len(owner), np.int64), workload[over] - most, most - workload[under]]
    )
    network = csr_array((room.astype(np.int32), (tails, heads)), shape=(devices + 2, devices + 2))
    flow = maximum_flow(network, source, sink)
    return bool(flow.flow_value == (workload[over] - most).sum())


def certificate(graph: Graph, keep: npt.NDArray[np.bool_], workload: Ints) -> Ints:
    """All devices reachable over carried edges from those of largest workload, increasing.

    Args:
        keep: [2 · edges] over the graph's neighbour array: True where the device carries it.
        workload: [devices].
    """
    inside = workload == workload.max(initial=0)
    frontier = np.flatnonzero(inside)
    degrees = graph.degrees
    while len(frontier):
        slots = spans(graph.offsets[frontier], degrees[frontier])
        reached = np.unique(graph.neighbours[slots[keep[slots]]])
        frontier = reached[~inside[reached]]
        inside[frontier] = True
    return np.flatnonzero(inside)


def forced_workload(graph: Graph, devices: Ints) -> int:
    """Return the workload that `devices` force: one of them has at least ⌈inner edges / |set|⌉.

    Reads only the graph and the set, so that it can check anybody's certificate.
    """
    if not len(devices):
        return 0
    inside = np.zeros(graph.devices, np.bool_)
    inside[devices] = True
    first, second = graph.edge_list().T
    inner = int((inside[first] & inside[second]).sum())
    return -(-inner // int(inside.sum()))
