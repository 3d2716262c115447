"""The optimal balancer: edges are handed over, and paths of carried edges reversed, until no such
path leads to a device whose workload is lower by two or more.

Then the largest workload is the least possible. Proof: take a device of largest workload f and all
devices that can be reached from it over carried edges. Every device of this set carries only edges
inside the set; the first carries f of them, each other at least f - 1. So the set has more than
(f - 1) · |set| inner edges, and in every assignment some device of the set carries at least f.
"""

import numpy as np

from lumos.compare.comparer import Comparer, agree_on_length, count_objections
from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program
from lumos.exchange.masked_flag import anyone, count_for_everyone
from lumos.graph import Graph
from lumos.trees.balancers import Observe
from lumos.trees.balancers.greedy import greedy_once
from lumos.trees.edge_assignment import EdgeAssignment
from lumos.trees.handovers import move
from lumos.trees.reversal import reverse_paths
from lumos.trees.settings import TreeSettings
from lumos.typing import Flags


def optimal(shard: Shard, comparer: Comparer) -> Program[Flags]:
    """Balance. Returns [slots] True where the hosted device carries the edge, each edge once."""
    state = EdgeAssignment(shard, (yield from greedy_once(shard, comparer)))
    # No workload ever rises above the largest at the start; protocols compare values up to 3 above.
    bits = yield from agree_on_length(shard, state.workload + 3)
    step = 0
    while True:
        step = yield from move(state, comparer, bits, step)
        if not (yield from reverse_paths(state, comparer, bits, step)):
            break
    # Every device checks what it knows; whether anybody objects is all that becomes known.
    doubt = np.zeros(len(shard), np.bool_)
    doubt[shard.owner[state.keep & (state.high > 1)]] = True
    if (yield from anyone(shard, doubt)):
        raise AssertionError(
            "after balancing, a carried edge still leads to a device that is lighter by two"
        )
    return state.keep


def optimal_coordinator(total: int) -> Program[None]:
    """The coordinator's part: a public bit for each bit length tried, and one for the check."""
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
