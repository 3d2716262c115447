"""Path reversals: from a device to one lighter by two, over devices that lie between.

After the moves, a carried edge leads down by at most one. What is left to gain is a path that goes
down by one, then along level edges, then down by one again: with every edge on it reversed, its
first device is lighter by one, its last heavier by one, and nobody between has changed.
"""

import numpy as np

from lumos.compare.comparer import Comparer
from lumos.exchange.endpoint import Program
from lumos.exchange.topic import Door, Topic
from lumos.session.pairs import ComparedPairs
from lumos.trees.edge_assignment import BOUND, EXACT, UNKNOWN, EdgeAssignment, draw_one_each
from lumos.trees.sorted_sets import first_of_each
from lumos.typing import Ints

ASK_LEVEL = Topic(
    name="optimal/ask-level",
    door=Door.CONTROL,
    vocabulary=("are we level?",),
    learns="the other end of an edge learns that the carrier wants to compare",
)
SLACK = Topic(
    name="optimal/slack",
    door=Door.CONTROL,
    vocabulary=("from me a way leads down",),
    learns="a carrier learns that the other end reaches a lighter device, and over how many edges",
)
CLAIM = Topic(
    name="optimal/claim",
    door=Door.CONTROL,
    vocabulary=("pass it on", "take it"),
    learns="a device learns that a path goes through it, or ends at it",
)
REPLY = Topic(
    name="optimal/reply",
    door=Door.CONTROL,
    vocabulary=("done", "busy"),
    learns="a device learns whether the path beyond it was reversed",
)
_DONE, _BUSY = 0, 1
_PASS, _END = 0, 1
_NONE = -1
_EMPTY = np.empty(0, np.int64)


def reverse_paths(state: EdgeAssignment, comparer: Comparer, bits: int, step: int) -> Program[bool]:
    """One phase: find ways down, reverse disjoint paths. False when there was no path at all."""
    yield from _find_levels(state, comparer, bits)
    onward, starts = yield from _find_slack(state, step)
    # First half of the starts, by private coins, so that paths get in each other's way less;
    # when that half has none, all. No start anywhere: the workloads are optimal.
    drawn = draw_one_each(state.shard, starts, "where a path starts", step)
    coin = state.shard.coins.uniform(state.shard.owner[drawn], "start a path now", step)[:, 0]
    for chosen in (drawn[coin < 0.5], drawn):
        if (yield from _claim(state, chosen, onward)):
            return True
    return False


def _find_levels(state: EdgeAssignment, comparer: Comparer, bits: int) -> Program[None]:
    """Ask, for each carried edge whose gap may be 0 or 1 and is not known, which it is."""
    shard = state.shard
    asked = np.flatnonzero(state.keep & (state.high >= 0) & (state.low != state.high))
    inbox = yield ASK_LEVEL.along(shard, asked, 0)
    asking = shard.slots(inbox.receiver, inbox.sender)
    slots = np.concatenate([asked, asking])
    slots.sort()
    pairs = ComparedPairs.of_slots(shard, slots)
    signs = yield from comparer.three_way(pairs, state.workload[pairs.rows], bits)
    mine = state.keep[slots]
    own, gap = slots[mine], signs[mine].astype(np.int32)
    # The gap is at most 1 (the moves ended), so "heavier" means exactly 1.
    state.high[own] = gap
    state.low[own] = np.where(gap < 0, -UNKNOWN, gap)
    state.carrier_knows[slots[~mine]] = np.where(signs[~mine] > 0, BOUND, EXACT)


def _find_slack(state: EdgeAssignment, step: int) -> Program[tuple[Ints, Ints]]:
    """Waves from the lower ends upwards.

    Returns:
        onward: [hosted] slot over which a way leads down, or -1.
        starts: slots (increasing) that go down by one to a device with a way further down.
    """
    shard = state.shard
    exact = state.keep & (state.low == state.high)
    down = np.flatnonzero(exact & (state.high == 1))
    onward = np.full(len(shard), _NONE, np.int64)
    lowest = draw_one_each(shard, down, "which way down", step)
    onward[shard.owner[lowest]] = lowest
    reached = shard.owner[lowest]
    starts: list[Ints] = []
    while True:
        slots = shard.slots_of(reached)
        slots = slots[~state.keep[slots] & (state.carrier_knows[slots] == EXACT)]
        inbox = yield SLACK.along(shard, slots, 0)
        if inbox.quiet:
            break
        upward = shard.slots(inbox.receiver, inbox.sender)
        upward = upward[exact[upward]]
        starts.append(upward[state.high[upward] == 1])
        level = upward[state.high[upward] == 0]
        level = level[onward[shard.owner[level]] == _NONE]
        level = level[first_of_each(shard.owner[level])]
        onward[shard.owner[level]] = level
        reached = shard.owner[level]
    return onward, np.unique(np.concatenate(starts)) if starts else np.empty(0, np.int64)


def _claim(state: EdgeAssignment, chosen: Ints, onward: Ints) -> Program[bool]:
    """Send claims down the ways; each device serves one path. False when nobody claimed.

    Args:
        chosen: first slots of the paths, one for each start.
        onward: [hosted] slot over which a device passes a claim on.
    """
    shard = state.shard
    busy = np.zeros(len(shard), np.bool_)
    back = np.full(len(shard), _NONE, np.int64)  # slot towards the start of the path
    given, taken, started, ended = [_EMPTY], [_EMPTY], [_EMPTY], [_EMPTY]
    busy[shard.owner[chosen]] = True
    claims, words = chosen, np.full(len(chosen), _PASS, np.uint8)
    replies, answers = _EMPTY, np.empty(0, np.uint8)
    claimed = False
    while True:
        inbox = yield CLAIM.along(shard, claims, words)
        no_claims = inbox.quiet
        claimed |= not no_claims
        claiming = shard.slots(inbox.receiver, inbox.sender)
        rows = shard.owner[claiming]
        # The first claim to a free device is served; all others are answered "busy".
        served = first_of_each(rows) & ~busy[rows]
        busy[rows] = True
        back[rows[served]] = claiming[served]
        ends = claiming[served & (inbox.body == _END)]
        ended.append(shard.owner[ends])
        taken.append(ends)
        claims = onward[rows[served & (inbox.body == _PASS)]]
        words = np.where(state.high[claims] == 1, _END, _PASS).astype(np.uint8)

        refused = claiming[~served]
        replies = np.concatenate([replies, ends, refused])
        answers = np.concatenate(
            [answers, np.full(len(ends), _DONE, np.uint8), np.full(len(refused), _BUSY, np.uint8)]
        )
        inbox = yield REPLY.along(shard, replies, answers)
        if no_claims and inbox.quiet:
            break
        replied = shard.slots(inbox.receiver, inbox.sender)
        rows = shard.owner[replied]
        done = inbox.body == _DONE
        start = back[rows] == _NONE
        given.append(replied[done])
        taken.append(back[rows[done & ~start]])
        started.append(rows[done & start])
        replies, answers = back[rows[~start]], inbox.body[~start]
    if claimed:
        # A path that ended was served all the way, so its "done" reached the start.
        lighter, heavier = np.concatenate(started), np.concatenate(ended)
        yield from state.reassign(
            np.concatenate(given),
            np.concatenate(taken),
            np.concatenate([lighter, heavier]),
            np.repeat([-1, 1], [len(lighter), len(heavier)]),
            exact=True,
        )
    return claimed
