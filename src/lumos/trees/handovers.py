"""Moves: an edge goes to its other end where that end is lighter by two or more.

Every device asks one of its open edges in a round; every device that is asked takes at most one.
All moves of a round can be put in an order (lightest receiver first) in which each is valid when
its turn comes, so the sum of squared workloads falls with every move, and the moves end.
"""

import numpy as np

from lumos.compare.comparer import Comparer, at_least
from lumos.exchange.endpoint import Program
from lumos.exchange.topic import Door, Topic
from lumos.session.pairs import ComparedPairs
from lumos.trees.edge_assignment import BOUND, EdgeAssignment, draw_one_each
from lumos.trees.sorted_sets import first_of_each

ASK = Topic(
    name="optimal/ask",
    door=Door.CONTROL,
    vocabulary=("are you lighter than me by two?",),
    learns="the other end of an edge learns that the carrier would give it away, if heavier",
)
TAKE = Topic(
    name="optimal/take",
    door=Door.CONTROL,
    vocabulary=("I carry this edge now",),
    learns="the former carrier learns that the other end took the edge",
)


def move(state: EdgeAssignment, comparer: Comparer, bits: int, step: int) -> Program[int]:
    """Move edges until nobody has an open question. Returns the next unused step number."""
    shard = state.shard
    while True:
        step += 1
        open_ = np.flatnonzero(state.keep & (state.high >= 2))
        asked = draw_one_each(shard, open_, "which edge to move", step)
        inbox = yield ASK.along(shard, asked, 0)
        if inbox.quiet:
            return step
        asking = shard.slots(inbox.receiver, inbox.sender)

        # wl(asker) ≥ wl(other) + 2, one bit
        slots = np.concatenate([asked, asking])
        order = np.argsort(slots)
        slots = slots[order]
        asker = order < len(asked)
        pairs = ComparedPairs.of_slots(shard, slots)
        values = state.workload[pairs.rows] + np.where(asker, 0, 2)
        lighter = yield from at_least(comparer, pairs, values, asker, bits)

        state.high[slots[asker & ~lighter]] = 1
        refused = slots[~asker & ~lighter]
        state.carrier_knows[refused] = np.maximum(state.carrier_knows[refused], BOUND)

        willing = slots[~asker & lighter]
        taken = willing[first_of_each(shard.owner[willing])]
        takers = shard.owner[taken]
        inbox = yield TAKE.send(shard.devices[takers], shard.neighbours[taken], 0)
        given = shard.slots(inbox.receiver, inbox.sender)
        givers = shard.owner[given]

        # A device that gave one edge and took another has not changed. Otherwise
        # wl(giver) ≥ wl(taker) + 2 before, so wl(taker) ≤ wl(giver) after: both ends know.
        rows = np.setxor1d(takers, givers, assume_unique=True)
        by = np.where(np.isin(rows, takers), 1, -1)
        yield from state.reassign(given, taken, rows, by, exact=False)
