"""Colluders who choose themselves: what they open of a mask graph that they know, or do not know.

Whoever knows the mask graph before enrolment picks the mask neighbours of one device. t of them
hold t shares of both of its secrets, and with the coordinator's copy of its message they have its
vector (`recovered_vector`). A coordinator that lies needs 2t - k of them. With the draw of
`lumos.aggregate.mask_draw` a coalition is chosen before the graph, and `surrounded` and `parted`
happen with the probabilities of `lumos.aggregate.parameters` only.

The audit holds two draws by the real protocol, with coins from the operating system, and reads who
agreed on a key with whom from its messages. For every device the attacker picks t mask
neighbours that it had in the first draw, or as many as may collude, and is given those that it has
in the second.
"""

import math
from collections.abc import Iterator

import numpy as np

from lumos.aggregate import (
    AggregateSettings,
    SecureAggregator,
    SecureCoordinator,
    mask_parameters,
    masks,
    shamir,
)
from lumos.aggregate.derived_shares import reconstruct
from lumos.aggregate.fixed_point import FixedPoint
from lumos.aggregate.mask_graph import MaskGraph
from lumos.aggregate.parameters import DRAWS
from lumos.aggregate.share_vault import PAIR, SELF
from lumos.audit.attacks import Attack
from lumos.audit.audit_row import AuditRow
from lumos.audit.estimates import Exactly
from lumos.audit.scene import Scene
from lumos.device.shard import cut
from lumos.exchange.carrier import CARRIERS
from lumos.exchange.endpoint import EVERY_DOOR
from lumos.exchange.tape import recording
from lumos.graph import Graph
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
    of: masks.SumId,
    victim: int,
    masked: Bytes,
    wrapped: Bytes,
    slots: Ints,
    values: shamir.Elements,
) -> Doubles:
    """The vector of one device, if the values are t or more and all its neighbours are in the sum.

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
        known, answering = np.zeros((1, k, shamir.LIMBS), np.uint16), np.zeros((1, k), np.bool_)
        known[0, slots], answering[0, slots] = values[:, which], True
        later = corrections.reshape(1, -1, shamir.LIMBS)
        everyone = np.ones((1, k), np.bool_)
        secret = reconstruct(known, later, everyone, answering, k - later.shape[1])
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


MOST = 1000
"""Devices of the drawn federation."""


def agreed_pairs(devices: int, settings: AggregateSettings) -> Flags:
    """[devices, devices] who sent whom a key in the setup of a run, from its messages."""
    nobody = Graph.from_edges(np.empty((0, 2), np.int64), devices=devices)
    shards = cut(nobody, 1, 0, "system")
    with recording(lambda topic, batch: None) as tape:
        carrier = CARRIERS["recording"](shards, EVERY_DOOR, ())
        carrier.run(
            lambda shard, endpoint: SecureAggregator(shard, endpoint, settings).setup(),
            lambda endpoint: SecureCoordinator(devices, endpoint, settings).setup(),
        )
    (traffic,) = (t for t in tape.traffic if t.topic.name == "aggregate/keys")
    joined = np.zeros((devices, devices), np.bool_)
    joined[traffic.pairs // (devices + 1), traffic.pairs % (devices + 1)] = True
    return joined


def caught(before: Flags, after: Flags, many: int) -> Ints:
    """[devices] how many of so many, chosen by one draw, are mask neighbours in another."""
    chosen = before & (np.cumsum(before, axis=1) <= many)
    found: Ints = np.count_nonzero(chosen & after, axis=1)
    return found


def run(scene: Scene) -> Iterator[AuditRow]:
    """Two draws, and the computed failure bound of the audited federation."""
    settings = scene.config(scene.tasks[0]).updates
    devices = min(MOST, scene.graph.devices)
    parameters = mask_parameters(settings, devices)
    scene.say(f"drawing mask graphs of {devices:,} devices")
    before, after = (agreed_pairs(devices, settings) for _ in range(2))
    tolerated = math.ceil(settings.corrupt * devices)
    chosen = min(parameters.threshold, tolerated)  # nothing is promised against more
    held = caught(before, after, chosen)
    needed = 2 * parameters.threshold - parameters.neighbours
    yield AuditRow(
        attack=ATTACK.name,
        adversary="the coordinator with chosen devices",
        about=f"devices whose vector {chosen} colluders open, chosen for each device "
        "by everything before the draw",
        measure="devices",
        estimate=Exactly(float((held >= needed).sum()), devices),
        bound=0.0 if parameters.neighbours < devices - 1 else None,
        bound_is="10 % may collude, chosen before the draw (docs/privacy.md)",
        knows_mechanism=True,
        note=f"at most {held.max()} of them are mask neighbours of their device; a coordinator "
        f"that lies needs {needed}",
    )
    whole = mask_parameters(settings, scene.graph.devices)
    failure = DRAWS * (whole.surrounded + whole.parted)
    yield AuditRow(
        attack=ATTACK.name,
        adversary="the coordinator with chosen devices",
        about=f"that {settings.corrupt:.0%} of {scene.graph.devices:,} devices, chosen before the "
        f"draw, open some vector: computed probability, in 2^-{settings.security_bits}",
        measure="probability",
        estimate=Exactly(failure * 2.0**settings.security_bits),
        bound=1.0,
        bound_is=f"2^-{settings.security_bits} over a run (lumos.aggregate.parameters)",
    )


ATTACK = Attack(name="colluders", title="colluders who choose themselves", run=run)
