"""What everybody knows after an epoch."""

from typing import NamedTuple


class EpochRecord(NamedTuple):
    """What everybody knows after an epoch, from its sum."""

    epoch: int
    """1 for the first."""
    loss: float | None
    """Mean training loss; None where nothing is predicted yet."""
    score: float | None
    """Validation score of the weights that this epoch started with, higher is better; None
    where nobody validates."""
