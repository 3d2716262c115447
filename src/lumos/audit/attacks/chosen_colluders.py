"""Colluders who choose themselves: what they open of a mask graph that they know, or do not know.

Whoever knows the mask graph before enrolment picks the mask neighbours of one device. t of them
hold t shares of both of its secrets, and with the coordinator's copy of its message they have its
vector (`recovered_vector`). A coordinator that lies needs 2t - k of them. With the draw of
`lumos.aggregate.mask_draw` a coalition is chosen before the graph, and `surrounded` and `parted`
happen with the probabilities of `lumos.aggregate.parameters` only.
"""

from typing import Any

import numpy as np

from lumos.aggregate import masks, shamir
from lumos.aggregate.fixed_point import FixedPoint
from lumos.aggregate.mask_graph import MaskGraph
from lumos.typing import Bytes, Doubles, Flags, Ints


def coalition_around(graph: MaskGraph, victim: int, size: int) -> Flags:
    """[devices] who colludes: so many mask neighbours of one device, chosen by the graph."""
    colluding = np.zeros(graph.total, np.bool_)
    colluding[graph.of(np.array([victim]))[0, :size]] = True
    return colluding


def surrounded(graph: MaskGraph, needed: int, colluding: Flags) -> Flags:
    """[devices] whose vectors a coalition opens.

    Args:
        needed: colluding neighbours that it takes: t with a coordinator that follows the protocol,
            2t - k with one that lies.
    """
    return ~colluding & (graph.count(colluding) >= needed)


def opened_alone(graph: MaskGraph, threshold: int, colluding: Flags, wanted: Flags) -> Flags:
    """[devices] the largest group of honest devices within `wanted` that can be opened alone.

    A lying coordinator leaves all others out; a device opens a sum if t of its neighbours are in
    it, and colluders say that they are.
    """
    group = wanted & ~colluding
    while True:
        staying = group & (graph.count(group | colluding) >= threshold)
        if np.array_equal(staying, group):
            return group
        group = staying


def parted(graph: MaskGraph, threshold: int, colluding: Flags) -> bool:
    """Whether two windows of h places, without a common place, have t - h colluders each.

    Without them no group that is opened alone leaves out two runs of h neighbouring places, nor one
    run of k.
    """
    total, h = graph.total, graph.neighbours // 2
    if graph.neighbours == total - 1:
        return False
    ring = colluding[graph.order].astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(np.tile(ring, 2))])
    heavy = sums[h : h + total] - sums[:total] >= threshold - h  # by the first place of a window
    there = np.concatenate([[0], np.cumsum(np.tile(heavy, 2))])
    starts = np.flatnonzero(heavy)
    # A second window begins h places after the first at least, and ends before it.
    return bool((there[starts + total - h + 1] - there[starts + h] > 0).any())


def recovered_vector(
    graph: MaskGraph,
    fixed: FixedPoint,
    victim: int,
    masked: Bytes,
    wrapped: Bytes,
    slots: Ints,
    shares: shamir.Elements,
) -> Doubles:
    """The vector of one device, if the shares are t or more and all its neighbours are in the sum.

    Args:
        masked: the message with its masked vector, which the coordinator received.
        wrapped: the message with its wrapped seeds, which the coordinator received.
        slots: [shares] the slot of the victim in which each colluder sits.
        shares: [shares, 2, limbs] what each colluder holds: of the self and of the pair secret.
    """
    points = np.tile(slots + 1, (2, 1))
    secrets = shamir.reconstruct(points, shares.transpose(1, 0, 2))
    self_key, pair_key = masks.keys_of(secrets)
    seeds = np.ascontiguousarray(wrapped[: -2 * masks.COMMITMENT]).view("<u4")
    seeds = masks.wrap(seeds.reshape(1, -1, 8).astype(np.uint32), pair_key[None])[0]
    words: np.ndarray[Any, Any] = np.ascontiguousarray(masked).view(fixed.dtype)[None].copy()
    # The victim added the masks with larger ids and took away those with smaller ones.
    added = np.append(victim < graph.of(np.array([victim]))[0], True)
    nobody = np.full(len(added), masks.NOBODY)
    keys = np.vstack([seeds, self_key[None]])
    masks.add_masks(words, keys, np.where(added, nobody, 0), np.where(added, 0, nobody))
    return fixed.decode(words[0])
