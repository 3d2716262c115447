"""Balancers: who carries which edge. One file per entry of `BALANCERS`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lumos.compare.comparer import Comparer
from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program
from lumos.registry import Registry
from lumos.typing import Flags, Ints

if TYPE_CHECKING:
    from lumos.trees.settings import TreeSettings

Observe = Callable[[int, int], None]
"""Callback `(iteration, largest workload)`. Simulation only: no participant may know the latter."""


class DegreeSums(NamedTuple):
    """What the observer knows of all degrees together."""

    edges: int
    squares: int
    """The sum of their squares."""

    @staticmethod
    def of(degrees: Ints) -> "DegreeSums":
        """Of [devices] degrees."""
        return DegreeSums(int(degrees.sum()) // 2, int((degrees**2).sum()))


class Balancer(Protocol):
    """What an entry of `BALANCERS` provides."""

    compares: bool
    """Whether it compares at all. If not, no comparison worker is started for it, and its device
    program gets a comparer that refuses."""
    iterative: bool
    """Whether it takes `settings.iterations` steps; `Balanced.history` then shows their effect."""

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: "TreeSettings", observe: Observe
    ) -> Program[Flags]:
        """The part of the devices of one shard.

        Args:
            shard: the hosted devices and their neighbours.
            comparer: compares private values of two devices.
            settings: of the run.
            observe: call it before each step, in the shard that knows the largest workload.

        Returns:
            [slots] True where the hosted device carries the edge; every edge at one end at least.
        """
        ...

    def coordinator_program(
        self, devices: Ints, public: PublicCoins, settings: "TreeSettings"
    ) -> Program[None]:
        """The coordinator's part; `no_part()` if it has none. It takes part in the same rounds.

        Args:
            devices: ids of all that take part, increasing.
            public: coins that everyone can recompute from the run seed.
            settings: of the run.
        """
        ...

    def expected_comparisons(self, degrees: "DegreeSums", settings: "TreeSettings") -> int:
        """How many comparisons a run is likely to need; 0 where `compares` is False."""
        ...


BALANCERS: Registry[Balancer] = Registry(
    "balancer",
    {
        "none": "lumos.trees.balancers.none:NONE",
        "greedy": "lumos.trees.balancers.greedy:GREEDY",
        "mcmc": "lumos.trees.balancers.mcmc:MCMC",
        "optimal": "lumos.trees.balancers.optimal:OPTIMAL",
    },
)
