"""No balancing: every device keeps every neighbour, and nothing is compared."""

import numpy as np

from lumos.compare.comparer import Comparer
from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program, no_part
from lumos.trees.balancers import DegreeSums, Observe
from lumos.trees.settings import TreeSettings
from lumos.typing import Flags, Ints


def keep_all(shard: Shard) -> Program[Flags]:
    """Returns [slots] True everywhere, without a message."""
    yield from ()
    return np.ones(len(shard.neighbours), np.bool_)


class NoBalancer:
    """The balancer `none`."""

    compares = False
    iterative = False

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: TreeSettings, observe: Observe
    ) -> Program[Flags]:
        """Keep every neighbour."""
        return keep_all(shard)

    def coordinator_program(
        self, devices: Ints, public: PublicCoins, settings: TreeSettings
    ) -> Program[None]:
        """Nothing to do."""
        return no_part()

    def expected_comparisons(self, degrees: DegreeSums, settings: TreeSettings) -> int:
        """None."""
        return 0


NONE = NoBalancer()
