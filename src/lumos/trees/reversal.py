"""Path reversals: from a device above the threshold, over full ones, to one that has room.

When all neighbours of a device above the threshold are full, what is left is a path over carried
edges to a device below the threshold: with every edge on it reversed, its first device is lighter
by one, its last heavier by one, and nobody between has changed. The search starts at the devices
above the threshold and stops at devices with room, so others take no part.
"""

import numpy as np

from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program
from lumos.exchange.topic import Door, Topic
from lumos.trees.edge_assignment import EdgeAssignment
from lumos.trees.sorted_sets import place_in_group
from lumos.typing import Ints

SEARCH = Topic(
    name="optimal/search",
    door=Door.CONTROL,
    vocabulary=("I have no room: can you, or anyone beyond you, carry an edge?",),
    learns="the other end of an edge learns that its carrier has no room, and that somebody that "
    "reaches it is above the threshold, and over how many edges",
)
FOUND = Topic(
    name="optimal/found",
    door=Door.CONTROL,
    vocabulary=("there is room",),
    learns="the carrier of an edge learns that the other end reaches a device with room, and over "
    "how many edges",
)
GRANT = Topic(
    name="optimal/grant",
    door=Door.CONTROL,
    vocabulary=("carry this edge",),
    learns="a device learns that a path goes through it, or ends at it",
)
_NONE = -1
_EMPTY = np.empty(0, np.int64)


def reverse_paths(state: EdgeAssignment, threshold: int) -> Program[tuple[bool, bool]]:
    """One phase: find paths, no two over the same edge, and reverse them.

    Returns:
        whether anybody is above the threshold, and whether any path was reversed. Both are public.
    """
    shard = state.shard
    found, onward = yield from _search(state, threshold)
    if found is None:
        return False, False
    # A device above the threshold grants as many paths as it is above it.
    rows = shard.owner[found]
    chosen = found[place_in_group(rows) < (state.workload - threshold)[rows]]
    given, taken = [_EMPTY], [_EMPTY]
    while True:
        inbox = yield GRANT.along(shard, chosen, 0)
        if inbox.quiet:
            break
        given.append(chosen)
        granted = shard.slots(inbox.receiver, inbox.sender)
        taken.append(granted)
        chosen = onward[granted]
        chosen = chosen[chosen != _NONE]
    state.reassign(np.concatenate(given), np.concatenate(taken))
    return True, len(given) > 1


def _search(state: EdgeAssignment, threshold: int) -> Program[tuple[Ints | None, Ints]]:
    """Waves from the devices above the threshold; whoever has room answers towards them.

    A full device answers those whose search reached it first, each for other room that it was told
    of. So answers go back wave by wave, and never in a circle.

    Returns:
        found: slots of devices above the threshold (increasing) over which there is room; None if
            nobody in the federation is above it.
        onward: [slots] where a full device answered over a slot: the slot that leads to the room.
    """
    shard = state.shard
    above = state.workload > threshold
    room = np.maximum(threshold - state.workload, 0)  # not promised yet
    reached = above | (room > 0)
    onward = np.full(len(state.keep), _NONE, np.int64)
    searching = np.flatnonzero(above)
    passed = waiting = told = _EMPTY  # slots over which: to answer now; to answer; there is room
    found = [_EMPTY]
    started = False
    while True:
        slots = shard.slots_of(searching)
        inbox = yield SEARCH.along(shard, slots[state.keep[slots]], 0)
        ended = inbox.quiet
        if ended and not started:
            return None, onward
        started = True
        asking = shard.slots(inbox.receiver, inbox.sender)
        rows = shard.owner[asking]
        ends = asking[place_in_group(rows) < room[rows]]
        room -= np.bincount(shard.owner[ends], minlength=len(shard))
        new = ~reached[rows]
        searching = np.unique(rows[new])
        reached[searching] = True
        waiting = np.concatenate([waiting, asking[new]])

        inbox = yield FOUND.along(shard, np.concatenate([passed, ends]), 0)
        if ended and inbox.quiet:
            break
        answered = shard.slots(inbox.receiver, inbox.sender)
        at_start = above[shard.owner[answered]]
        found.append(answered[at_start])
        told = np.concatenate([told, answered[~at_start]])
        passed, waiting, told = _matched(shard, waiting, told, onward)
    return np.sort(np.concatenate(found)), onward


def _matched(shard: Shard, waiting: Ints, told: Ints, onward: Ints) -> tuple[Ints, Ints, Ints]:
    """Match, at each device, slots that wait for an answer with slots that lead to room.

    Returns the slots to answer over now, and what is left of `waiting` and `told`.
    """
    waiting.sort()
    told.sort()
    ask, tell = (
        shard.owner[slots] * len(onward) + place_in_group(shard.owner[slots])
        for slots in (waiting, told)
    )
    _, ask, tell = np.intersect1d(ask, tell, assume_unique=True, return_indices=True)
    passed = waiting[ask]
    onward[passed] = told[tell]
    return passed, np.delete(waiting, ask), np.delete(told, tell)
