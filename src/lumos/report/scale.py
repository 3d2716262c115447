"""Axes: from numbers to places, and where the ticks are."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """A range of numbers and the places of its ends.

    Args:
        low, high: the numbers at the two ends; low < high.
        start, end: their places.
        bent: numbers are spaced as log(1 + number), for workloads and other long tails.
    """

    low: float
    high: float
    start: float
    end: float
    bent: bool = False

    def __call__(self, number: float) -> float:
        """The place of a number."""
        low, high, here = (self._bend(value) for value in (self.low, self.high, number))
        return self.start + (here - low) / (high - low) * (self.end - self.start)

    def _bend(self, number: float) -> float:
        return math.log1p(number) if self.bent else number

    def ticks(self, about: int = 5) -> list[float]:
        """Round numbers from low to high, both included where they are round."""
        if self.bent:
            found = [0.0]
            for rung in (1, 2, 5, *(n * 10**p for p in range(1, 12) for n in (1, 2, 5))):
                apart = abs(self(rung) - self(found[-1])) if rung <= self.high else 0.0
                if apart > abs(self.end - self.start) / 11:
                    found.append(float(rung))
            return found
        step = _round_step((self.high - self.low) / about)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def around(
    values: Iterable[float | None], start: float, end: float, *, from_zero: bool = False
) -> Scale:
    """A scale that holds all values, its ends at round numbers."""
    known = [value for value in values if value is not None and math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low < 1e-12 * max(1.0, abs(high)):
        low, high = (low, low + 1) if from_zero else (low - 0.5, high + 0.5)
    step = _round_step((high - low) / 5)
    return Scale(
        math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, start, end
    )


def shown(number: float) -> str:
    """A tick as people write it."""
    text = f"{number:,.4f}".rstrip("0").rstrip(".") if abs(number) < 1e9 else f"{number:.0e}"
    return text.replace("-", "−") if text != "-0" else "0"


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= rough * (1 - 1e-9))
