"""Algorithm 1: the greedy start, by one three-way comparison of round(ln deg) on every edge."""

import numpy as np

from lumos.compare.comparer import Comparer, Signs
from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program, no_part
from lumos.graph import Graph
from lumos.session.pairs import ComparedPairs
from lumos.trees.balancers import Observe
from lumos.trees.settings import TreeSettings
from lumos.typing import Flags


def compare_degrees(shard: Shard, comparer: Comparer) -> Program[Signs]:
    """[slots] sign of round(ln deg(u)) - round(ln deg(v)): one three-way answer for each edge."""
    rounded = np.rint(np.log(np.maximum(shard.degree, 1))).astype(np.int64)
    # A degree is below the public number of devices, so ln deg needs 4 bits up to e^15.5 devices.
    bits = 4 if shard.total < np.exp(15.5) else 8
    pairs = ComparedPairs.of_slots(shard, np.arange(len(shard.neighbours)))
    return (yield from comparer.three_way(pairs, rounded[pairs.rows], bits))


def greedy(shard: Shard, comparer: Comparer) -> Program[Flags]:
    """Algorithm 1. Returns [slots]: True where u keeps v, that is where v's class is not lower.

    On a tie both ends keep the edge, as the printed algorithm has it (errata 1).
    """
    signs = yield from compare_degrees(shard, comparer)
    return signs <= 0


def greedy_once(shard: Shard, comparer: Comparer) -> Program[Flags]:
    """The greedy start with each edge kept once: a public coin of the pair breaks ties."""
    signs = yield from compare_degrees(shard, comparer)
    me = shard.devices[shard.owner]
    coin = shard.public.for_pairs("ties of the greedy start", me, shard.neighbours)
    keep: Flags = np.where(signs == 0, coin == (me < shard.neighbours), signs < 0)
    return keep


class GreedyBalancer:
    """The balancer `greedy`."""

    compares = True
    iterative = False

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: TreeSettings, observe: Observe
    ) -> Program[Flags]:
        """Algorithm 1."""
        return greedy(shard, comparer)

    def coordinator_program(
        self, total: int, public: PublicCoins, settings: TreeSettings
    ) -> Program[None]:
        """Nothing to do."""
        return no_part()

    def expected_comparisons(self, graph: Graph, settings: TreeSettings) -> int:
        """One for each edge, exactly."""
        return graph.edges


GREEDY = GreedyBalancer()
