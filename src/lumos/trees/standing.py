"""What each device knows of its neighbours' workloads: heavier, level or lighter, and who leads.

The first half of Algorithm 3. Every edge is compared once; after that only where the workload of
an end changed so that the answer does not follow from the last one. A tried step can be taken back
without asking again.
"""

import numpy as np
import numpy.typing as npt

from lumos.compare.rounds import Comparer, Pairs, Signs
from lumos.device.shard import COORDINATOR, Shard
from lumos.exchange.endpoint import Program
from lumos.exchange.topic import Door, Topic
from lumos.trees.distinct import first_of_each
from lumos.trees.maximum import CANDIDATE, MATCH, RESULT, Tournament

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

CHANGED = Topic(
    name="mcmc/changed",
    door=Door.CONTROL,
    vocabulary=("my workload fell", "my workload rose by one"),
    learns="neighbours learn how the device's workload changed in this step",
)


class Standing:
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
        self._changed = np.zeros(len(shard), np.bool_)
        # [hosted] workloads at the last comparison; [slots] scratch for who moved how
        self._compared = workload.copy()
        self._moved = np.zeros(len(shard.neighbours), np.int8)
        self._before: tuple[Ints, Signs, Ints, Ints, Ints, Ints] | None = None

    def compare_all(self) -> Program[None]:
        """Compare every edge and name the candidates to the coordinator."""
        shard = self.shard
        slots = np.arange(len(shard.neighbours))
        yield from self._compare(slots, np.zeros(len(slots), np.int8), np.ones(len(slots), bool))
        # A device without neighbours carries nothing and cannot be the heaviest.
        leads = np.flatnonzero((self._heavier == 0) & (shard.degree > 0))
        yield CANDIDATE.send(shard.devices[leads], np.full(len(leads), COORDINATOR), 1)

    def compare_again(self, changed: Ints) -> Program[None]:
        """Learn the signs anew at the edges of devices whose workload changed.

        A device rises by one, or it is the one that fell. Of an edge whose lighter or level end
        fell, or whose heavier or level end rose, or whose ends both rose, both ends know the new
        sign; the others are asked. Args: `changed`: positions, increasing.
        """
        shard = self.shard
        own = shard.slots_of(changed)
        risen = self.workload[changed] > self._compared[changed]
        direction = np.repeat(np.where(risen, 1, -1), shard.degree[changed])
        inbox = yield CHANGED.send(
            shard.devices[shard.owner[own]],
            shard.neighbours[own],
            (direction > 0).astype(np.uint8),
        )
        near = shard.slots(inbox.receiver, inbox.sender)
        slots = np.concatenate([own, near])
        slots.sort()
        slots = slots[first_of_each(slots)]
        rows = shard.owner[slots]
        rows = rows[first_of_each(rows)]
        sign = self._sign[slots]
        led = self._heavier[rows] == 0
        self._before = (slots, sign, rows, self._heavier[rows], changed, self._compared[changed])
        self._compared[changed] = self.workload[changed]

        # How u moved against v: up, down, or not at all when both rose by one.
        self._moved[own] += direction
        self._moved[near] -= np.where(inbox.body > 0, 1, -1)
        moved = np.sign(self._moved[slots])
        self._moved[slots] = 0
        known = np.where(moved == 0, sign, moved).astype(np.int8)
        yield from self._compare(slots, known, moved * sign < 0)
        leads = self._heavier[rows] == 0
        # A leader whose workload changed has to be matched afresh.
        self._changed[changed] = True
        news = (led != leads) | (leads & self._changed[rows])
        self._changed[changed] = False
        yield CANDIDATE.send(
            shard.devices[rows[news]],
            np.full(int(news.sum()), COORDINATOR),
            leads[news].astype(np.uint8),
        )

    def take_back(self) -> None:
        """Forget what was learned since the last `compare_again`: the old answers hold again."""
        if self._before is not None:
            slots, sign, rows, heavier, changed, compared = self._before
            self._sign[slots], self._heavier[rows] = sign, heavier
            self._compared[changed] = compared
            self._before = None

    def play(self) -> Program[None]:
        """Take part in the candidates' tournament until there are no more matches."""
        shard = self.shard
        while True:
            inbox = yield MATCH.nothing()
            if inbox.quiet:
                return
            # A match message comes from the coordinator; its body is the opponent.
            players, opponents = inbox.receiver, inbox.body  # by player, then by opponent
            pairs = Pairs.of_ids(shard, players, opponents)
            signs = yield from self._comparer.three_way(
                pairs, self.workload[pairs.rows], self._bits
            )
            first = pairs.first
            yield RESULT.send(
                players[first],
                np.full(int(first.sum()), COORDINATOR),
                (signs[first] + 1).astype(np.uint8),
            )

    def _compare(self, slots: Ints, signs: Signs, ask: Flags) -> Program[None]:
        """Take over known `signs` of `slots`, and ask where `ask` says so."""
        asked = slots[ask]
        pairs = Pairs.of_slots(self.shard, asked)
        signs[ask] = yield from self._comparer.three_way(
            pairs, self.workload[pairs.rows], self._bits
        )
        change = (signs < 0).astype(np.int64) - (self._sign[slots] < 0)
        np.add.at(self._heavier, self.shard.owner[slots], change)
        self._sign[slots] = signs


def hold_tournament(tournament: Tournament, lighter: int | None = None) -> Program[set[int]]:
    """The coordinator's part: who is a candidate now, then matches until one is left.

    Args:
        lighter: the one device whose workload may have fallen since the last tournament.

    Returns:
        the devices whose standing changed.
    """
    inbox = yield CANDIDATE.nothing()
    tournament.update(inbox.sender.tolist(), (inbox.body != 0).tolist(), lighter)
    while True:
        matches = tournament.matches()
        if not matches:
            yield MATCH.nothing()
            return set(inbox.sender.tolist())
        pairs = np.array(matches, np.int64)
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        yield MATCH.send(np.full(len(pairs), COORDINATOR), pairs[:, 0], pairs[:, 1])
        # The smaller id of a match reports; reports arrive in the order of the matches.
        results = yield RESULT.nothing()
        for (first, second), code in zip(matches, results.body.tolist(), strict=True):
            tournament.record(first, second, code - 1)
