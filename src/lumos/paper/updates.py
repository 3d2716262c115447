"""The vector that a device adds to an epoch's sum: gradients, then statistics.

With a wide ring (`literal`) numbers stand in it as they are. With 32 bits each weight tensor has a
public range of its own, ±2^e, and travels as a share of it, so that its numbers are rounded to
multiples of 2^(e - f), f fraction bits of the fixed point:

    word = round(gradient · 2^-e · 2^f),     |gradient · 2^-e| ≤ 1

A device whose gradient of a tensor exceeds the range scales it down to the range, as gradients are
clipped, and says so by a flag; a second flag says that a number exceeds an eighth of the range. The
sum counts both flags, for each tensor. After an epoch in which anybody was clipped the range grows
fourfold; after one in which nobody set the second flag it is halved, down to ±4: a network that has
learnt its devices has small gradients, until one of them is suddenly wrong. So ranges are functions
of earlier sums, and the same at every participant.

Statistics are exact: each is a whole number of steps of 2^-24, in digits of f bits, a word each.
"""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from lumos.errors import InputError
from lumos.paper.tasks import STATISTICS
from lumos.secagg.parameters import FixedPoint
from lumos.training.config import UPDATES, Config
from lumos.typing import Arrays, Doubles, Ints

LEAST_EXPONENT = 2
"""Ranges begin at ±4, and never become smaller: a fresh network's gradients stay below 2."""
MAX_EXPONENT = int(math.log2(UPDATES.limit))
GROWTH = 2
"""Doublings of a range that was too narrow."""
NEAR = 1 / 8
"""Share of a range below which everybody must stay for it to be halved."""
STEP_BITS = UPDATES.fraction_bits
"""Statistics are multiples of 2^-24, and no gradient is rounded to finer steps."""


class SumLayout:
    """The places of gradients and statistics in the vectors of a run's sums, and ranges.

    Args:
        config: settings.
        devices: in the run.
        sizes: numbers of weights of the model's tensors, in their order.
    """

    def __init__(self, config: Config, devices: int, sizes: Sequence[int]) -> None:
        self._spans = [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]
        self._weights = sum(sizes)
        self._ranged = config.updates.least_fraction_bits is not None
        """False in the wide ring, where numbers travel as they are."""
        self._exact = not self._ranged or config.train.aggregate == "ideal"
        """Sums in the clear have as many words, but are not rounded to the ranges."""
        self._bits = FixedPoint.of(config.updates, devices).fraction_bits
        self._digits = math.ceil((MAX_EXPONENT + STEP_BITS + 1) / self._bits)
        self._least = max(LEAST_EXPONENT, self._bits - STEP_BITS)
        """e of the smallest range, or of that whose steps are 2^-24."""
        self.exponents: Ints = np.full(len(sizes), self._least)
        """[tensors] e of each range ±2^e."""
        self.clipped_devices = 0
        """Most devices that scaled down a gradient in one epoch."""
        self.clipped_epochs = 0
        """Epochs in which any device did."""

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        if not self._ranged:
            return self._weights + len(STATISTICS)
        return self._weights + 2 * len(self._spans) + self._digits * len(STATISTICS)

    def vectors(self, gradients: Doubles, statistics: Doubles) -> Doubles:
        """Return [devices, width] the vectors of single devices.

        Args:
            gradients: [devices, weights]
            statistics: [devices, statistics]

        Raises:
            InputError: a statistic exceeds ±2^18.
        """
        if self._exact:
            return self._padded(gradients, statistics)
        scaled, flags = np.empty_like(gradients), []
        for span, exponent in zip(self._spans, self.exponents.tolist(), strict=True):
            part = gradients[:, span] * 2.0**-exponent
            largest = np.abs(part).max(axis=1, initial=0)
            beyond = np.maximum(largest, 1)[:, None]
            scaled[:, span] = np.clip(part / beyond, -1, 1)
            flags += [largest > 1, largest >= NEAR]
        columns = np.stack(flags, axis=1).astype(np.float64)
        return np.concatenate([scaled, columns, self._in_digits(statistics)], axis=1)

    def fused(self, gradient: Doubles, statistics: Doubles) -> Doubles:
        """Return [width] a sum of vectors in the clear, rounded once, to steps of 2^-24."""
        total = self._padded(gradient[None], statistics[None])[0]
        rounded: Doubles = np.rint(total * 2.0**STEP_BITS) * 2.0**-STEP_BITS
        return rounded

    def read(self, total: Doubles) -> tuple[Doubles, Doubles]:
        """Return the summed gradients and statistics, and set the ranges of the next sum."""
        gradient, rest = total[: self._weights], total[self._weights :]
        if self._exact:
            return gradient, rest[-len(STATISTICS) :]
        flags, digits = np.split(rest, [2 * len(self._spans)])
        factors = np.repeat(2.0**self.exponents, [span.stop - span.start for span in self._spans])
        clipped, near = np.rint(flags).astype(np.int64).reshape(-1, 2).T
        if clipped.any():
            self.clipped_epochs += 1
            self.clipped_devices = max(self.clipped_devices, int(clipped.max()))
        grown = np.where(clipped > 0, GROWTH, np.where(near > 0, 0, -1))
        self.exponents = np.clip(self.exponents + grown, self._least, MAX_EXPONENT)
        return gradient * factors, self._from_digits(digits)

    def warnings(self) -> list[str]:
        """Return a warning if any gradient did not fit its range."""
        if not self.clipped_epochs:
            return []
        return [
            f"in {self.clipped_epochs:,} epochs gradients of up to {self.clipped_devices:,} "
            "devices exceeded the range of 32-bit sums and were scaled down to it; the range grew "
            "after each"
        ]

    def state_dict(self) -> Arrays:
        """Return the ranges, and counts of clipped gradients."""
        return {
            "exponents": self.exponents,
            "clipped": np.array([self.clipped_epochs, self.clipped_devices]),
        }

    def load_state_dict(self, state: Arrays) -> None:
        """Go on from a state."""
        self.exponents = state["exponents"]
        self.clipped_epochs, self.clipped_devices = state["clipped"].tolist()

    def _padded(self, gradients: Doubles, statistics: Doubles) -> Doubles:
        empty = self.width - self._weights - len(STATISTICS)
        padding = np.zeros((len(gradients), empty))
        return np.concatenate([gradients, padding, statistics], axis=1)

    def _in_digits(self, statistics: Doubles) -> Doubles:
        """[devices, digits · statistics] lowest digits first; the highest has the sign."""
        if not (np.abs(statistics) <= 2.0**MAX_EXPONENT).all():
            raise InputError(f"a statistic of a device exceeds ±{1 << MAX_EXPONENT:,}")
        left, columns = np.rint(statistics * 2.0**STEP_BITS).astype(np.int64), []
        for _ in range(self._digits - 1):
            columns.append(left & ((1 << self._bits) - 1))
            left = left >> self._bits
        return np.concatenate([*columns, left], axis=1) * 2.0**-self._bits

    def _from_digits(self, digits: Doubles) -> Doubles:
        places = np.rint(digits * 2.0**self._bits).reshape(self._digits, -1).tolist()
        whole = [
            sum(int(digit) << (self._bits * place) for place, digit in enumerate(column))
            for column in zip(*places, strict=True)
        ]
        return np.array(whole, np.float64) * 2.0**-STEP_BITS
