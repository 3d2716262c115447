"""What each device knows of its neighbours' workloads: heavier, level or lighter, and who leads.

The first half of Algorithm 3. Every edge is compared once; after that only where the workload of
an end changed so that the answer does not follow from the last one. A tried step can be taken back
without asking again.
"""

import numpy as np

from lumos.compare.comparer import Comparer, Signs
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program
from lumos.exchange.topic import Door, Topic
from lumos.session.pairs import ComparedPairs
from lumos.trees.maximum import CANDIDATE, MATCH, RESULT
from lumos.trees.sorted_sets import union
from lumos.typing import Ints

CHANGED = Topic(
    name="mcmc/changed",
    door=Door.CONTROL,
    vocabulary=("compare with me again", "I rose above you", "I fell below you"),
    learns="a neighbour learns that a level workload rose or fell, or that it is to compare again",
)
# A movement (+1, -1, or 0 where the sender only asks) as a word, and back; index -1 is the last.
_WORD_OF = np.array([0, 1, 2], np.uint8)
_MOVEMENT_OF = np.array([0, 1, -1], np.int8)
_WORD_OF.flags.writeable = _MOVEMENT_OF.flags.writeable = False  # all shards share them
_UP, _DOWN = _MOVEMENT_OF[1], _MOVEMENT_OF[2]


class WorkloadOrder:
    """Who is heavier, in one shard.

    Args:
        workload: [hosted] workloads; the caller changes them and then calls `compare_again`.
        bits: the public ℓ.
    """

    def __init__(self, shard: Shard, comparer: Comparer, workload: Ints, bits: int) -> None:
        self.shard = shard
        self.workload = workload
        self._comparer = comparer
        self._bits = bits
        # [slots] sign of wl(u) - wl(v); [hosted] number of strictly heavier neighbours
        self._sign = np.zeros(len(shard.neighbours), np.int8)
        self._heavier = np.zeros(len(shard), np.int64)
        self.contacted = np.empty(0, np.int64)
        """Slots whose other end was contacted in the last `compare_again`."""
        # [hosted] workloads at the last comparison; [slots] scratch for who moved
        self._compared = workload.copy()
        self._moved = np.zeros(len(shard.neighbours), np.int8)
        self._before: tuple[Ints, Signs, Ints, Ints, Ints, Ints] | None = None

    def compare_all(self) -> Program[None]:
        """Compare every edge and name the candidates to the coordinator."""
        shard = self.shard
        self._sign = yield from self._ask(np.arange(len(shard.neighbours)))
        self._heavier = np.bincount(shard.owner[self._sign < 0], minlength=len(shard))
        # A device without neighbours carries nothing and cannot be the heaviest.
        leads = np.flatnonzero((self._heavier == 0) & (shard.degree > 0))
        yield CANDIDATE.to_coordinator(shard, leads, 1)

    def compare_again(self, changed: Ints) -> Program[None]:
        """Learn the signs anew where the change of an end could alter them.

        A device rises by one, or it is the one that fell. A heavier end that rises and a lighter
        end that falls alter nothing: no message. Level ends send how they moved. A lighter
        end that rises and a heavier end that falls have to ask.

        Args:
            changed: positions, increasing.
        """
        shard = self.shard
        slots = shard.slots_of(changed)
        movement = np.where(self.workload[changed] > self._compared[changed], _UP, _DOWN)
        moved = movement.repeat(shard.degree[changed])
        sign = self._sign[slots]
        concerned = (sign * moved <= 0).nonzero()[0]
        contacted = slots[concerned]
        moved = np.where(sign[concerned] == 0, moved[concerned], 0)
        inbox = yield CHANGED.along(shard, contacted, _WORD_OF[moved])
        received = shard.slots(inbox.receiver, inbox.sender)
        slots = union(contacted, received)
        # Level ends sent how they moved; both rose by one where the two cancel. The others ask.
        self._moved[contacted] = moved
        self._moved[received] -= _MOVEMENT_OF[inbox.body]
        signs, before = np.sign(self._moved[slots]), self._sign[slots]
        self._moved[slots] = 0
        ask = before != 0
        signs[ask] = yield from self._ask(slots[ask])

        change = (signs < 0).astype(np.int64) - (before < 0)
        altered = change.nonzero()[0]
        owners, change = shard.owner[slots[altered]], change[altered]
        rows = union(owners, changed)
        led = self._heavier[rows] == 0
        self.contacted = contacted
        self._before = (slots, before, owners, change, changed, self._compared[changed])
        self._sign[slots] = signs
        np.add.at(self._heavier, owners, change)
        self._compared[changed] = self.workload[changed]
        leads = self._heavier[rows] == 0
        announced = led != leads
        # A leader whose workload changed has to be matched afresh.
        own = rows.searchsorted(changed)
        announced[own] |= leads[own]
        yield CANDIDATE.to_coordinator(shard, rows[announced], leads[announced].view(np.uint8))

    def take_back(self) -> None:
        """Forget what was learned since the last `compare_again`: the old answers hold again."""
        if self._before is not None:
            slots, sign, owners, change, changed, compared = self._before
            self._sign[slots], self._compared[changed] = sign, compared
            np.subtract.at(self._heavier, owners, change)
            self._before = None

    def play(self) -> Program[None]:
        """Take part in the candidates' tournament until there are no more matches."""
        shard = self.shard
        while True:
            inbox = yield MATCH.nothing()
            if inbox.quiet:
                return
            # A match message comes from the coordinator; its body is the opponent.
            # Sorted by player, then by opponent.
            pairs = ComparedPairs.of_ids(shard, inbox.receiver, inbox.body)
            signs = yield from self._comparer.three_way(
                pairs, self.workload[pairs.rows], self._bits
            )
            first = pairs.first
            words = (signs[first] + 1).view(np.uint8)
            yield RESULT.to_coordinator(shard, pairs.rows[first], words)

    def _ask(self, slots: Ints) -> Program[Signs]:
        """Compare the two ends of each of `slots`."""
        pairs = ComparedPairs.of_slots(self.shard, slots)
        return (yield from self._comparer.three_way(pairs, self.workload[pairs.rows], self._bits))
