"""Settings of the tree constructor: the one place where its defaults stand."""

from dataclasses import dataclass
from typing import Literal, get_args

from lumos.errors import UsageError, one_of

Balancer = Literal["none", "greedy", "mcmc", "optimal"]
Compare = Literal["secure", "ideal"]


@dataclass(frozen=True, kw_only=True)
class TreeSettings:
    """How the trees are balanced."""

    balancer: Balancer = "optimal"
    """none: keep every neighbour; greedy: Algorithm 1; mcmc: Algorithms 1-3; optimal: ours."""
    iterations: int = 1000
    """Steps of Algorithm 2 (mcmc only)."""
    compare: Compare = "secure"
    """secure: two-party cryptography; ideal: computed in the clear, counted alike, labelled so."""
    comparison_budget: float | None = None
    """Most comparison bits that any pair may reveal; a run that would exceed it stops."""
    workers: int | None = None
    """Processes for the curve work of secret comparisons; all cores by default."""

    def __post_init__(self) -> None:
        for name, allowed in (("balancer", Balancer), ("compare", Compare)):
            one_of(name, getattr(self, name), get_args(allowed))
        if self.iterations < 0:
            raise UsageError(f"--iterations must be 0 or more, got {self.iterations}")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers must be 1 or more, got {self.workers}")
        if self.comparison_budget is not None and not self.comparison_budget >= 0:
            raise UsageError(f"--comparison-budget must be 0 or more, got {self.comparison_budget}")
