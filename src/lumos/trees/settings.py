"""Settings of the tree constructor: the one place where its defaults stand."""

from dataclasses import dataclass
from typing import Literal

from lumos.errors import UsageError

Balancer = Literal["none", "greedy", "mcmc", "optimal"]
Compare = Literal["ideal"]
Coins = Literal["simulated", "system"]


@dataclass(frozen=True, kw_only=True)
class TreeSettings:
    """How the trees are balanced."""

    balancer: Balancer = "optimal"
    """none: keep every neighbour; greedy: Algorithm 1; mcmc: Algorithms 1-3; optimal: ours."""
    iterations: int = 1000
    """Steps of Algorithm 2 (mcmc only)."""
    compare: Compare = "ideal"
    """ideal: computed in the clear, counted as if it were secret, and labelled so."""
    coins: Coins = "simulated"
    """Device secrets from the run seed (a run can be repeated) or from the operating system."""

    def __post_init__(self) -> None:
        if self.iterations < 0:
            raise UsageError(f"--iterations must be 0 or more, got {self.iterations}")
