"""What a coalition can open if it knows the mask graph: the oracle of the bounds on colluders."""

import numpy as np

from lumos.secagg import masks, shares
from lumos.secagg.mask_graph import MaskGraph
from lumos.secagg.parameters import FixedPoint
from lumos.secagg.shares import PAIR, SELF, reconstruct_secret
from lumos.typing import Bytes, Doubles, Flags, Ints


def coalition_around(graph: MaskGraph, victim: int, size: int) -> Flags:
    """Return [devices] who colludes: `size` mask neighbours of one device, chosen by the graph."""
    colluding = np.zeros(graph.total, np.bool_)
    colluding[graph.of(np.array([victim]))[0, :size]] = True
    return colluding


def surrounded(graph: MaskGraph, needed: int, colluding: Flags) -> Flags:
    """Return [devices] whose vectors a coalition opens.

    Args:
        needed: colluding neighbours that it takes: t with a coordinator that follows the protocol,
            2t - k with one that lies.
    """
    return ~colluding & (graph.count(colluding) >= needed)


def opened_alone(graph: MaskGraph, threshold: int, colluding: Flags, wanted: Flags) -> Flags:
    """Return [devices] the largest honest group within `wanted` that can be opened alone.

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
    """Return whether two disjoint windows of h places have t - h colluders each.

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
    of: masks.SumId,
    victim: int,
    masked: Bytes,
    wrapped: Bytes,
    slots: Ints,
    values: shares.Elements,
) -> Doubles:
    """Return the vector of one device, from t values or more, if all its neighbours take part.

    Args:
        of: the sum.
        masked: the message with its masked vector, which the coordinator received.
        wrapped: the message with its wrapped seeds, which the coordinator received.
        slots: [values] the slot of the victim in which each colluder sits.
        values: [values, 2, limbs] what each colluder holds: of the self and of the pair secret.
    """
    k = graph.neighbours
    sealed, of_pair = np.split(wrapped, [masks.SEED * k])
    size = len(masked) - len(of_pair)  # as much is published of both secrets
    keys = []
    for which, published in ((SELF, masked[size:]), (PAIR, of_pair)):
        corrections = np.ascontiguousarray(published[masks.COMMITMENT :]).view("<u2")
        known, answering = np.zeros((1, k, shares.LIMBS), np.uint16), np.zeros((1, k), np.bool_)
        known[0, slots], answering[0, slots] = values[:, which], True
        later = corrections.reshape(1, -1, shares.LIMBS)
        everyone = np.ones((1, k), np.bool_)
        secret = reconstruct_secret(known, later, everyone, answering, k - later.shape[1])
        keys.append(masks.keys_of(secret, np.array([victim]), which, of))
    seeds = np.ascontiguousarray(sealed).view("<u4").reshape(1, k, 4).astype(np.uint32)
    others = graph.of(np.array([victim]))[0]
    low, high = np.minimum(others, victim), np.maximum(others, victim)
    pair_masks = masks.pair_keys_of(masks.wrap(seeds, keys[PAIR])[0], low, high, of)
    words = fixed.unpack(masked[:size])[None].copy()
    # The victim added the masks with larger ids and took away those with smaller ones.
    added = np.append(victim < others, True)
    nobody = np.full(len(added), masks.NOBODY)
    every = np.vstack([pair_masks, keys[SELF]])
    masks.add_masks(words, every, np.where(added, nobody, 0), np.where(added, 0, nobody))
    return fixed.decode(fixed.unpack(fixed.pack(words))[0])
