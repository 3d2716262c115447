"""Settings of the tree constructor: the one place where its defaults stand."""

from dataclasses import dataclass
from typing import Literal, get_args

from lumos.crypto.group import AUTO, check_group
from lumos.errors import UsageError, one_of
from lumos.trees.balancers import BALANCERS

Compare = Literal["secure", "ideal"]


@dataclass(frozen=True, kw_only=True)
class TreeSettings:
    """How the trees are balanced."""

    balancer: str = "optimal"
    """none: keep every neighbour; greedy: Algorithm 1; mcmc: Algorithms 1-3; optimal: ours; or the
    name of a registered balancer (`lumos.trees.balancers.BALANCERS`)."""
    iterations: int = 1000
    """Steps of Algorithm 2 (mcmc only)."""
    compare: Compare = "secure"
    """secure: two-party cryptography; ideal: computed in the clear, counted alike, labelled so."""
    comparison_budget: float | None = None
    """Most comparison bits that any pair may reveal; a run that would exceed it stops."""
    group: str = AUTO
    """Group of secret comparisons, a name of `lumos.crypto.group.GROUPS`. ed25519: in constant
    time; secp256k1: twice as quick, for simulations; auto: secp256k1 with `coins='simulated'`,
    ed25519 with `coins='system'`. Ideal comparisons are booked as those of the group."""
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
        """With which of these settings another one has no effect; empty where it has one.

        `compare` always has a meaning: it says what may be computed in the clear, whatever the
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
