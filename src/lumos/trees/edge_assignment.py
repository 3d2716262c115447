"""Who carries which edge, as one shard sees it, and which neighbours have no room left."""

import numpy as np

from lumos.device.shard import Shard
from lumos.typing import Flags, Ints


class EdgeAssignment:
    """State of the optimal balancer in one shard; all arrays are over its slots or devices.

    Args:
        keep: [slots] True where the hosted device carries the edge; each edge once.
    """

    def __init__(self, shard: Shard, keep: Flags) -> None:
        self.shard = shard
        self.keep = keep
        self.workload: Ints = np.bincount(shard.owner[keep], minlength=len(shard))
        self.full: Flags = np.zeros(len(keep), np.bool_)
        """[slots] True where the other end of a carried edge is known to have no room: as long as
        the threshold does not rise, it stays so."""

    def reassign(self, given: Ints, taken: Ints) -> None:
        """Change carriers.

        Args:
            given: slots whose edge the other end carries from now on.
            taken: slots whose edge the hosted device carries from now on. The former carrier has
                no room: it gave an edge away, or it passed one on.
        """
        owner, hosted = self.shard.owner, len(self.shard)
        self.keep[given], self.keep[taken] = False, True
        self.full[taken] = True
        self.workload -= np.bincount(owner[given], minlength=hosted)
        self.workload += np.bincount(owner[taken], minlength=hosted)
