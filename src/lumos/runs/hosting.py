"""Which devices this process hosts: all of them, cut into shards, or those of its rank."""

from dataclasses import dataclass

import numpy as np

from lumos.errors import UsageError
from lumos.exchange.observer import AcrossRanks, Observer, OneProcess
from lumos.ranks.world import World
from lumos.typing import Ints


@dataclass(frozen=True, eq=False)
class Hosting:
    """How a federation is spread over shards and processes.

    Args:
        shards: number of shards in this process, where it is the only one.
        world: the ranks of the run, each with one shard; None for one process.
    """

    shards: int = 1
    world: World | None = None

    def __post_init__(self) -> None:
        if self.world is not None and self.shards != 1:
            raise UsageError("a rank hosts one shard; leave out `shards`, or `ranks`")

    @property
    def count(self) -> int:
        """Number of all shards."""
        return self.shards if self.world is None else self.world.size

    @property
    def carrier(self) -> str:
        """What moves messages between them."""
        return "loopback" if self.world is None else "gloo"

    @property
    def observer(self) -> Observer:
        """How results come together."""
        return OneProcess() if self.world is None else AcrossRanks(self.world)

    def range_of(self, devices: int) -> list[Ints] | None:
        """The ids that this rank hosts, a range; None where one process hosts all of them.

        Raises:
            UsageError: there are more ranks than devices.
        """
        if self.world is None:
            return None
        ranks, rank = self.world.size, self.world.rank
        if ranks > devices:
            raise UsageError(
                f"`ranks` must be at most the number of devices ({devices}), got {ranks}"
            )
        ends = [devices * number // ranks for number in (rank, rank + 1)]
        return [np.arange(*ends, dtype=np.int64)]
