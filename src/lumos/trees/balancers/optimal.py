"""The optimal balancer: moves and path reversals until no path leads down by two.

Then the largest workload is the least possible, and so is the second largest, and so on: no
device can be made lighter without making one heavier that was at least as heavy. The proof is a
set of devices. Take a device of largest workload f and all that can be reached from it over
carried edges: whoever is in the set carries only edges inside it, at least f - 1 each and the
first f, so the edges inside outnumber (f - 1) · |set|, and whatever the assignment, someone in
the set carries f.
"""

import numpy as np

from lumos.compare.rounds import Comparer, agree_on_length, count_objections
from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program
from lumos.exchange.masked_flag import anyone, count_for_everyone
from lumos.graph import Graph
from lumos.trees.balancers import Observe
from lumos.trees.balancers.greedy import greedy_once
from lumos.trees.edge_assignment import EdgeAssignment
from lumos.trees.moves import move
from lumos.trees.reversal import reverse_paths
from lumos.trees.settings import TreeSettings
from lumos.typing import Flags


def optimal(shard: Shard, comparer: Comparer) -> Program[Flags]:
    """Balance. Returns [slots] True where the hosted device carries the edge, each edge once."""
    state = EdgeAssignment(shard, (yield from greedy_once(shard, comparer)))
    # No workload ever rises above the largest one at the start; + 3 for what is added to values.
    bits = yield from agree_on_length(shard, state.workload + 3)
    step = 0
    while True:
        step = yield from move(state, comparer, bits, step)
        if not (yield from reverse_paths(state, comparer, bits, step)):
            break
    # Every device checks what it knows; only "nobody objects" becomes known.
    doubt = np.zeros(len(shard), np.bool_)
    doubt[shard.owner[state.keep & (state.high > 1)]] = True
    if (yield from anyone(shard, doubt)):
        raise AssertionError("a device found an edge that leads down by two after the end")
    return state.keep


def optimal_coordinator(total: int) -> Program[None]:
    """The coordinator's part: a public bit for each length tried and one at the end, no more."""
    yield from count_objections(total)
    yield from count_for_everyone(total)


class OptimalBalancer:
    """The balancer `optimal`."""

    compares = True
    iterative = False

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: TreeSettings, observe: Observe
    ) -> Program[Flags]:
        """Moves and path reversals."""
        return optimal(shard, comparer)

    def coordinator_program(
        self, total: int, public: PublicCoins, settings: TreeSettings
    ) -> Program[None]:
        """Counts objections."""
        return optimal_coordinator(total)

    def expected_comparisons(self, graph: Graph, settings: TreeSettings) -> int:
        """5 to 7 for each edge (Facebook, LastFM, Twitch: `benchmarks/bench_balancers.py`)."""
        return int(6.5 * graph.edges)


OPTIMAL = OptimalBalancer()
