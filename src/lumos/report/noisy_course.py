"""Whether a noisy series moved at all: a curve that shows nothing but noise is not drawn."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

SURE = 2.0
"""Standard deviations by which a series must move to be called visible."""


class Movement:
    """How a noisy series moved: the means of its first and its last third, and how sure they are.

    The noise of one value is estimated from differences of neighbours, √(mean(Δ²)/2), which a slow
    course hardly moves (von Neumann 1941).
    """

    def __init__(self, values: Sequence[float]) -> None:
        third = max(1, len(values) // 3)
        self.first, self.last = fmean(values[:third]), fmean(values[-third:])
        steps = [after - before for before, after in pairwise(values)]
        self.noise = math.sqrt(fmean([step**2 for step in steps]) / 2) if steps else 0.0
        self.error = self.noise / math.sqrt(third)

    @property
    def visible(self) -> bool:
        """Whether the series moved by more than its noise explains."""
        return abs(self.last - self.first) > SURE * math.sqrt(2) * self.error


def movement(values: Sequence[float | None]) -> Movement:
    """How the finite values of a series moved."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return Movement(finite or [0.0])


def with_error(value: float, error: float) -> str:
    """A value and its error with as many decimals as the error has meaning."""
    digits = 3 if error <= 0 else max(0, min(6, 1 - math.floor(math.log10(error))))
    return f"{value:.{digits}f} ± {error:.{digits}f}"
