"""Who carries which edge, and what the carrier knows of the other end's workload.

Workloads stay private. About an edge that u carries to v, u knows bounds of wl(u) - wl(v) that
follow from answers, and shifts them when its own workload changes: it does not ask what it can
deduce, except whether the other end will take an edge. The other end v remembers what u could have
deduced, and tells u that an answer is out of date only when that matters: after v became lighter,
or after any change if u knows the exact gap.
"""

import numpy as np

from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program
from lumos.exchange.topic import Door, Topic
from lumos.trees.sorted_sets import first_of_each
from lumos.typing import Flags, Ints

UNKNOWN = 1 << 20
"""No bound; no workload comes near it."""

NOTHING, BOUND, EXACT = 0, 1, 2
"""What the carrier of an edge can deduce about the other end."""

CHANGED = Topic(
    name="optimal/changed",
    door=Door.CONTROL,
    vocabulary=("my workload changed: what you knew of it no longer holds",),
    learns="the carrier of an edge learns that the other end changed, mostly that it fell",
)


class EdgeAssignment:
    """State of the optimal balancer in one shard; all arrays are over its slots or devices.

    Args:
        keep: [slots] True where the hosted device carries the edge; each edge once.
    """

    def __init__(self, shard: Shard, keep: Flags) -> None:
        self.shard = shard
        self.keep = keep
        self.workload: Ints = np.bincount(shard.owner[keep], minlength=len(shard))
        # Bounds of wl(u) - wl(v), where u carries (u, v).
        self.low = np.full(len(keep), -UNKNOWN, np.int32)
        self.high = np.full(len(keep), UNKNOWN, np.int32)
        # Where the other end carries the edge: what it can deduce about the hosted device.
        self.carrier_knows = np.zeros(len(keep), np.int8)

    def reassign(
        self, given: Ints, taken: Ints, rows: Ints, by: Ints, exact: bool
    ) -> Program[None]:
        """Reassign edges and change workloads; afterwards no taken edge leads down.

        Args:
            given: slots whose edge the other end carries from now on.
            taken: slots whose edge the hosted device carries from now on.
            rows: [changed] positions of devices whose workload changed, each once.
            by: [changed] the change, +1 or -1.
            exact: whether the ends of a reassigned edge know that they are level now, or only
                that the new carrier is not heavier.
        """
        self.keep[given] = False
        self.low[given], self.high[given] = -UNKNOWN, UNKNOWN
        self.carrier_knows[taken] = NOTHING
        yield from self._change(rows, by)
        self.keep[taken] = True
        self.low[taken], self.high[taken] = (0 if exact else -UNKNOWN), 0
        self.carrier_knows[given] = EXACT if exact else BOUND

    def _change(self, rows: Ints, by: Ints) -> Program[None]:
        """Change workloads, shift known bounds, and notify carriers whose bounds are outdated."""
        shard = self.shard
        self.workload[rows] += by
        slots = shard.slots_of(rows)
        shift = np.repeat(by, shard.degree[rows])
        mine = self.keep[slots]
        own, moved = slots[mine], shift[mine].astype(np.int32)
        self.low[own] += np.where(self.low[own] == -UNKNOWN, 0, moved)
        self.high[own] += np.where(self.high[own] == UNKNOWN, 0, moved)
        needed = np.where(shift < 0, BOUND, EXACT)
        outdated = slots[~mine & (self.carrier_knows[slots] >= needed)]
        self.carrier_knows[outdated] = NOTHING
        inbox = yield CHANGED.along(shard, outdated, 0)
        stale = shard.slots(inbox.receiver, inbox.sender)
        self.low[stale], self.high[stale] = -UNKNOWN, UNKNOWN


def draw_one_each(shard: Shard, slots: Ints, purpose: str, step: int) -> Ints:
    """One of `slots` (increasing) for each device that has any, by its private coin."""
    start = np.flatnonzero(first_of_each(shard.owner[slots]))
    count = np.diff(np.append(start, len(slots)))
    rows = shard.owner[slots[start]]
    coin = shard.coins.uniform(rows, purpose, step)[:, 0]
    drawn: Ints = slots[start + (coin * count).astype(np.int64)]
    return drawn
