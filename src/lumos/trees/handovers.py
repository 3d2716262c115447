"""Handovers: a device above the threshold gives edges to neighbours that have room.

Nothing is compared: the threshold is public, and every device knows its own workload. A device
asks over as many of its carried edges as it is above the threshold, drawn by private coins, and
asks each at most once while the threshold does not rise. Who is not asked learns nothing.
"""

import numpy as np

from lumos.exchange.endpoint import Program
from lumos.exchange.topic import Door, Topic
from lumos.trees.edge_assignment import EdgeAssignment
from lumos.trees.sorted_sets import place_in_group
from lumos.typing import Ints

ASK = Topic(
    name="optimal/ask",
    door=Door.CONTROL,
    vocabulary=("I am above the threshold: can you carry our edge?",),
    learns="the other end of an edge learns that its carrier is above the public threshold",
)
TAKE = Topic(
    name="optimal/take",
    door=Door.CONTROL,
    vocabulary=("I carry this edge now",),
    learns="a device above the threshold learns that the other end was below it; from silence, "
    "that it is not",
)


def hand_over(state: EdgeAssignment, threshold: int, step: int) -> Program[int]:
    """Hand edges over until nobody has anyone left to ask. Returns the next unused step number."""
    shard = state.shard
    while True:
        step += 1
        asked = _draw(state, threshold, step)
        inbox = yield ASK.along(shard, asked, 0)
        if inbox.quiet:
            return step
        asking = shard.slots(inbox.receiver, inbox.sender)
        rows = shard.owner[asking]
        taken = asking[place_in_group(rows) < threshold - state.workload[rows]]
        inbox = yield TAKE.along(shard, taken, 0)
        # Whoever refused is full, and whoever took an edge is not asked over it again.
        state.full[asked] = True
        state.reassign(shard.slots(inbox.receiver, inbox.sender), taken)


def _draw(state: EdgeAssignment, threshold: int, step: int) -> Ints:
    """Slots to ask over: of each device above the threshold, as many as it is above it."""
    shard = state.shard
    above = state.workload - threshold
    open_ = np.flatnonzero(state.keep & ~state.full & (above > 0)[shard.owner])
    rows = shard.owner[open_]
    coins = shard.coins.uniform_each(np.bincount(rows, minlength=len(shard)), "whom to ask", step)
    order = np.lexsort((coins, rows))
    asked = open_[order[place_in_group(rows) < above[rows]]]
    asked.sort()
    return asked
