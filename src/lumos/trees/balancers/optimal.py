"""The optimal balancer: a public threshold falls until no assignment stays within it.

Under a threshold t, devices that carry more than t hand edges to neighbours that carry less, and
reverse paths to devices that do, until nobody is above t, or no path is left. Then t is possible or
impossible, and everybody knows which. Proof of the latter: take all devices that can be reached
over carried edges from those above t. Every device of this set carries only edges inside the set,
at least t of them, and some carry more. So the set has more than t · |set| inner edges, and in
every assignment some device of it carries more than t. Later thresholds are higher, so edges move
only within the set, and what it proves stays true.

Nothing is compared, and a device that is not above a threshold, and is not asked by one that is,
sends nothing at all.
"""

from lumos.compare.comparer import Comparer
from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program, no_part
from lumos.trees.balancers import DegreeSums, Observe
from lumos.trees.edge_assignment import EdgeAssignment
from lumos.trees.handovers import hand_over
from lumos.trees.reversal import reverse_paths
from lumos.trees.settings import TreeSettings
from lumos.typing import Flags, Ints

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


class OptimalBalancer:
    """The balancer `optimal`."""

    compares = False
    iterative = False

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: TreeSettings, observe: Observe
    ) -> Program[Flags]:
        """Handovers and path reversals."""
        return optimal(shard)

    def coordinator_program(
        self, devices: Ints, public: PublicCoins, settings: TreeSettings
    ) -> Program[None]:
        """Nothing to do."""
        return no_part()

    def expected_comparisons(self, degrees: DegreeSums, settings: TreeSettings) -> int:
        """None."""
        return 0


OPTIMAL = OptimalBalancer()
