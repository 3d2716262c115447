"""What a run reports while it trains."""

from collections.abc import Callable

import msgspec


class EpochEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch of one arm is over."""

    arm: str
    """`run`, or what is trained beside it: `own`, `control`."""
    epoch: int
    """1 for the first."""
    loss: float | None
    """Mean training loss; None where nothing is predicted yet."""
    score: float | None
    """Validation score of the weights that the epoch started with; None where nobody validates."""
    seconds: float
    """That the epoch took."""


OnEpoch = Callable[[EpochEvent], None]
