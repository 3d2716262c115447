"""The balancer `optimal`: a public threshold falls until no assignment stays within it.

Under a threshold t, devices that carry more than t hand edges to neighbours that carry less, and
reverse paths to devices that do, until nobody is above t, or no path is left. Then t is possible
or impossible, and everybody knows which. Proof of the latter: take all devices that can be
reached over carried edges from those above t. Every device of this set carries only edges inside
the set, at least t of them, and some carry more. So the set has more than t · |set| inner edges,
and in every assignment some device of it carries more than t. Later thresholds are higher, so
edges move only within the set, and what it proves stays true.

Nothing is compared, and a device that is not above a threshold, and is not asked by one that is,
sends nothing at all.

In the order of the file: the state of a shard, handovers, path reversals, the program.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program
from lumos.exchange.messages import Door, Topic
from lumos.trees.balancers import ComparesNothing, Observe, TreeSettings
from lumos.twoparty.comparer import Comparer
from lumos.typing import Flags, Ints


class EdgeAssignment:
    """State of the optimal balancer in one shard; all arrays are over its slots or devices.

    Args:
        keep: [slots] True where the hosted device carries the edge; each edge once.
    """

    def __init__(self, shard: Shard, keep: Flags) -> None:
        self.shard = shard
        self.keep = keep
        self.workload: Ints = np.bincount(shard.owner[keep], minlength=len(shard))
        self.full: Flags = np.zeros(len(keep), np.bool_)
        """[slots] True where the other end of a carried edge is known to have no room: as long as
        the threshold does not rise, it stays so."""

    def reassign(self, given: Ints, taken: Ints) -> None:
        """Change the owners of edges.

        Args:
            given: slots whose edge the other end carries from now on.
            taken: slots whose edge the hosted device carries from now on. The former owner has
                no room: it gave an edge away, or it passed one on.
        """
        owner, hosted = self.shard.owner, len(self.shard)
        self.keep[given], self.keep[taken] = False, True
        self.full[taken] = True
        self.workload -= np.bincount(owner[given], minlength=hosted)
        self.workload += np.bincount(owner[taken], minlength=hosted)


# Handovers: a device above the threshold gives edges to neighbours that have room.
#
# Nothing is compared: the threshold is public, and every device knows its own workload. A device
# asks over as many of its carried edges as it is above the threshold, drawn by private randomness,
# and asks each at most once while the threshold does not rise. Who is not asked learns nothing.

ASK = Topic(
    name="optimal/ask",
    door=Door.CONTROL,
    vocabulary=("I am above the threshold: can you carry our edge?",),
    learns="the other end of an edge learns that its owner is above the public threshold",
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
    randomness = shard.randomness.uniform_each(
        np.bincount(rows, minlength=len(shard)), "whom to ask", step
    )
    order = np.lexsort((randomness, rows))
    asked = open_[order[place_in_group(rows) < above[rows]]]
    asked.sort()
    return asked


# Path reversals: from a device above the threshold, over full ones, to one that has room.
#
# When all neighbours of a device above the threshold are full, what is left is a path over carried
# edges to a device below the threshold: with every edge on it reversed, its first device is lighter
# by one, its last heavier by one, and nobody between has changed. The search starts at the devices
# above the threshold and stops at devices with room, so others take no part.

SEARCH = Topic(
    name="optimal/search",
    door=Door.CONTROL,
    vocabulary=("I have no room: can you, or anyone beyond you, carry an edge?",),
    learns="the other end of an edge learns that its owner has no room, and that somebody that "
    "reaches it is above the threshold, and over how many edges",
)
FOUND = Topic(
    name="optimal/found",
    door=Door.CONTROL,
    vocabulary=("there is room",),
    learns="the owner of an edge learns that the other end reaches a device with room, and over "
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

    A full device answers those whose search reached it first, each for other room that it
    knows of. So answers go back wave by wave, and never in a circle.

    Returns:
        found: slots of devices above the threshold (increasing) over which there is room; None if
            nobody in the federation is above it.
        onward: [slots] where a full device answered over a slot: the slot that leads to the room.
    """
    shard = state.shard
    above = state.workload > threshold
    room = np.maximum(threshold - state.workload, 0)  # not guaranteed yet
    reached = above | (room > 0)
    onward = np.full(len(state.keep), _NONE, np.int64)
    searching = np.flatnonzero(above)
    passed = waiting = leading = _EMPTY  # slots over which: to answer now; to answer; there is room
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
        leading = np.concatenate([leading, answered[~at_start]])
        passed, waiting, leading = _matched(shard, waiting, leading, onward)
    return np.sort(np.concatenate(found)), onward


def _matched(shard: Shard, waiting: Ints, leading: Ints, onward: Ints) -> tuple[Ints, Ints, Ints]:
    """Match, at each device, slots that wait for an answer with slots that lead to room.

    Returns the slots to answer over now, and what is left of `waiting` and `leading`.
    """
    waiting.sort()
    leading.sort()
    ask, lead = (
        shard.owner[slots] * len(onward) + place_in_group(shard.owner[slots])
        for slots in (waiting, leading)
    )
    _, ask, lead = np.intersect1d(ask, lead, assume_unique=True, return_indices=True)
    passed = waiting[ask]
    onward[passed] = leading[lead]
    return passed, np.delete(waiting, ask), np.delete(leading, lead)


# The device's program and the balancer.

FALL = 8
"""A threshold that was possible is followed by one lower by this part of it."""


def optimal(shard: Shard) -> Program[Flags]:
    """Balance. Returns [slots] True where the hosted device carries the edge, each edge once."""
    me = shard.devices[shard.owner]
    coin = shard.public.for_pairs("who carries at the start", me, shard.neighbours)
    state = EdgeAssignment(shard, coin == (me < shard.neighbours))
    # impossible < least possible largest workload ≤ possible; both are public.
    impossible, possible = -1, shard.total - 1
    last, step = possible, 0
    while possible - impossible > 1:
        threshold = next_threshold(impossible, possible)
        if threshold > last:
            state.full[:] = False
        last = threshold
        step = yield from hand_over(state, threshold, step)
        above = reversed_ = True
        while above and reversed_:
            above, reversed_ = yield from reverse_paths(state, threshold)
        if above:
            impossible = threshold
        else:
            possible = threshold
    return state.keep


def next_threshold(impossible: int, possible: int) -> int:
    """The threshold to try: down by parts until one is impossible, then halfway.

    A threshold far below the optimum would make many devices answer for nothing.
    """
    if impossible < 0:
        return possible - max(1, possible // FALL)
    return (impossible + possible) // 2


class OptimalBalancer(ComparesNothing):
    """The balancer `optimal`."""

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: TreeSettings, observe: Observe
    ) -> Program[Flags]:
        """Handovers and path reversals."""
        return optimal(shard)


OPTIMAL = OptimalBalancer()


# Distinct values of sorted arrays.


def first_of_each(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """[values] True where a value of the sorted array comes for the first time."""
    first = np.empty(len(values), np.bool_)
    first[:1] = True
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return first


def union(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """All distinct values of the two, increasing; `np.union1d` without its overhead."""
    both = np.concatenate([first, second])
    both.sort()
    distinct: npt.NDArray[np.int64] = both[first_of_each(both)]
    return distinct


def place_in_group(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """[values] how many equal values stand before each one in the sorted array."""
    starts = np.flatnonzero(first_of_each(values))
    sizes = np.diff(np.append(starts, len(values)))
    place: npt.NDArray[np.int64] = np.arange(len(values)) - np.repeat(starts, sizes)
    return place
