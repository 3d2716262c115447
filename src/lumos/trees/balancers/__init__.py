"""Balancers: they decide who carries which edge. One file each, named in `BALANCERS`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, get_args

from lumos.crypto.groups import AUTO, check_group
from lumos.device.randomness import PublicRandomness
from lumos.device.shard import Shard
from lumos.errors import UsageError, one_of
from lumos.exchange.endpoint import Program, idle_program
from lumos.registry import Registry
from lumos.twoparty.comparer import Comparer
from lumos.typing import Flags, Ints

Observe = Callable[[int, int], None]
"""Callback `(iteration, largest workload)`. Simulation only: no participant may know the latter."""


class DegreeSums(NamedTuple):
    """The observer's sums over all degrees."""

    edges: int
    squares: int
    """The sum of their squares."""

    @staticmethod
    def of(degrees: Ints) -> "DegreeSums":
        """Return the sums over [devices] degrees."""
        return DegreeSums(int(degrees.sum()) // 2, int((degrees**2).sum()))


class Balancer(Protocol):
    """An entry of `BALANCERS`."""

    compares: bool
    """True if it compares at all. If not, no comparison worker is started for it, and its device
    program gets a comparer that refuses."""
    iterative: bool
    """True if it takes `settings.iterations` steps; `Balanced.history` then shows their effect."""

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
        self, devices: Ints, public: PublicRandomness, settings: "TreeSettings"
    ) -> Program[None]:
        """The coordinator's part; `idle_program()` if it has none. It takes part in the same
        rounds.

        Args:
            devices: ids of all that take part, increasing.
            public: randomness that everyone can recompute from the run seed.
            settings: of the run.
        """
        ...

    def expected_comparisons(self, degrees: "DegreeSums", settings: "TreeSettings") -> int:
        """Estimate the comparisons of a run; 0 where `compares` is False."""
        ...


class ComparesNothing:
    """Base class of balancers in which devices compare nothing and need no coordinator."""

    compares = False
    iterative = False

    def coordinator_program(
        self, devices: Ints, public: PublicRandomness, settings: "TreeSettings"
    ) -> Program[None]:
        """Take part in no round."""
        return idle_program()

    def expected_comparisons(self, degrees: "DegreeSums", settings: "TreeSettings") -> int:
        """Return 0."""
        return 0


BALANCERS: Registry[Balancer] = Registry(
    "balancer",
    {
        "none": "lumos.trees.balancers.greedy:NONE",
        "greedy": "lumos.trees.balancers.greedy:GREEDY",
        "mcmc": "lumos.trees.balancers.mcmc:MCMC",
        "optimal": "lumos.trees.balancers.optimal:OPTIMAL",
    },
)


Compare = Literal["secure", "ideal"]


@dataclass(frozen=True, kw_only=True)
class TreeSettings:
    """Settings of the tree constructor."""

    balancer: str = "optimal"
    """Rule for the owner of an edge. none: both ends; greedy: Algorithm 1 of the paper; mcmc:
    Algorithms 1-3; optimal: the smallest possible maximum; or the name of a registered balancer
    (`lumos.trees.balancers.BALANCERS`)."""
    iterations: int = 1000
    """Steps of Algorithm 2 (mcmc only)."""
    compare: Compare = "secure"
    """secure: two-party cryptography; ideal: in the clear, with the same counts and results."""
    comparison_budget: float | None = None
    """Most comparison bits that any pair may reveal; a run that would exceed it stops."""
    group: str = AUTO
    """Group of secret comparisons, a name of `lumos.crypto.groups.GROUPS`. ed25519: in constant
    time; secp256k1: twice as quick, for simulations; auto: secp256k1 with `randomness='seeded'`,
    ed25519 with `randomness='system'`. Ideal comparisons are booked as those of the group."""
    workers: int | None = None
    """Processes for the curve work of secret comparisons; all cores by default."""

    def __post_init__(self) -> None:
        one_of("balancer", self.balancer, BALANCERS.names())
        one_of("compare", self.compare, get_args(Compare))
        check_group(self.group)
        if self.iterations < 0:
            raise UsageError(f"`iterations` must be 0 or more, got {self.iterations}")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"`workers` must be 1 or more, got {self.workers}")
        if self.comparison_budget is not None and not self.comparison_budget >= 0:
            raise UsageError(f"`comparison_budget` must be 0 or more, got {self.comparison_budget}")

    def ignored(self, name: str) -> str:
        """Name the settings with which another one has no effect; empty where it has one.

        `compare` always has an effect: it decides what may be computed in the clear, whatever the
        balancer turns out to need.
        """
        balancer = BALANCERS[self.balancer]
        if name == "iterations" and not balancer.iterative:
            return f"`balancer='{self.balancer}'`, only with one that takes steps (mcmc)"
        if name in ("workers", "comparison_budget", "group") and not balancer.compares:
            return f"`balancer='{self.balancer}'`, only with one that compares (greedy, mcmc)"
        if name == "workers" and self.compare != "secure":
            return f"`compare='{self.compare}'`, only with `compare='secure'`"
        return ""
