"""Scales: from numbers to positions on an axis, and where the ticks are."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """A range of numbers and the positions of its ends.

    Args:
        low, high: the numbers at the two ends; low < high.
        start, end: their positions.
        logarithmic: numbers are spaced as log(1 + number), for workloads and other long tails.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, number: float) -> float:
        """The position of a number."""
        low, high, value = (self._transformed(n) for n in (self.low, self.high, number))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def _transformed(self, number: float) -> float:
        return math.log1p(number) if self.logarithmic else number

    def ticks(self, about: int = 5) -> list[float]:
        """Round numbers from low to high, both included where they are round."""
        if self.logarithmic:
            return self._logarithmic_ticks()
        step = _round_step((self.high - self.low) / about)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]

    def _logarithmic_ticks(self) -> list[float]:
        """0, then of 1, 2, 5, 10, 20, 50, … those that are far enough from the one before."""
        ticks = [0.0]
        for tick in (n * 10**power for power in range(12) for n in (1, 2, 5)):
            gap = abs(self(tick) - self(ticks[-1])) if tick <= self.high else 0.0
            if gap > abs(self.end - self.start) / 11:
                ticks.append(float(tick))
        return ticks


def fit_scale(
    values: Iterable[float | None], start: float, end: float, *, from_zero: bool = False
) -> Scale:
    """A scale that holds all values, its ends at round numbers."""
    finite = [value for value in values if value is not None and math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low < 1e-12 * max(1.0, abs(high)):
        low, high = (low, low + 1) if from_zero else (low - 0.5, high + 0.5)
    step = _round_step((high - low) / 5)
    return Scale(
        math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, start, end
    )


def format_tick(number: float) -> str:
    """A number as people write it at an axis."""
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    text = f"{number:,.4f}".rstrip("0").rstrip(".") if abs(number) < 1e9 else f"{number:.0e}"
    return text.replace("-", "−") if text != "-0" else "0"


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= rough * (1 - 1e-9))
