"""The balancers `none`, which keeps every edge at both ends, and `greedy`, Algorithm 1."""

import numpy as np

from lumos.device.randomness import PublicRandomness
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program, idle_program
from lumos.trees.balancers import ComparesNothing, DegreeSums, Observe, TreeSettings
from lumos.twoparty.comparer import Comparer
from lumos.twoparty.workers import ComparedPairs
from lumos.typing import Flags, Ints


def keep_all(shard: Shard) -> Program[Flags]:
    """Return [slots] True everywhere, without a message."""
    yield from ()
    return np.ones(len(shard.neighbours), np.bool_)


class NoBalancer(ComparesNothing):
    """The balancer `none`."""

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: TreeSettings, observe: Observe
    ) -> Program[Flags]:
        """Keep every neighbour."""
        return keep_all(shard)


NONE = NoBalancer()


# Algorithm 1: the greedy start, by one three-way comparison of round(ln deg) on every edge.


def greedy(shard: Shard, comparer: Comparer) -> Program[Flags]:
    """Algorithm 1. Returns [slots]: True where u keeps v, that is where v's class is not lower.

    One three-way answer for each edge: the sign of round(ln deg(u)) - round(ln deg(v)). On a tie
    both ends keep the edge, as the printed algorithm has it (errata 1).
    """
    rounded = np.rint(np.log(np.maximum(shard.degree, 1))).astype(np.int64)
    # A degree is below the public number of devices, so ln deg needs 4 bits up to e^15.5 devices.
    bits = 4 if shard.total < np.exp(15.5) else 8
    pairs = ComparedPairs.of_slots(shard, np.arange(len(shard.neighbours)))
    signs = yield from comparer.three_way(pairs, rounded[pairs.rows], bits)
    return signs <= 0


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
        self, devices: Ints, public: PublicRandomness, settings: TreeSettings
    ) -> Program[None]:
        """Nothing to do."""
        return idle_program()

    def expected_comparisons(self, degrees: DegreeSums, settings: TreeSettings) -> int:
        """One for each edge, exactly."""
        return degrees.edges


GREEDY = GreedyBalancer()
