"""Means over seeds: of a score, and of the difference of two scores on the same seeds."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MeanScore:
    """Mean and spread of one number over seeds."""

    mean: float | None
    """None where no seed has it."""
    sd: float | None
    """Standard deviation over seeds, with n - 1; from two seeds on."""
    seeds: int

    @property
    def se(self) -> float | None:
        """Standard error of the mean: sd / √n."""
        return None if self.sd is None else self.sd / math.sqrt(self.seeds)

    def as_json(self) -> dict[str, Any]:
        """The same as a JSON object."""
        return {"mean": self.mean, "sd": self.sd, "se": self.se, "seeds": self.seeds}


def mean_of(by_seed: Mapping[int, float]) -> MeanScore:
    """Over the seeds that have the number."""
    values = list(by_seed.values())
    return MeanScore(
        mean=statistics.fmean(values) if values else None,
        sd=statistics.stdev(values) if len(values) > 1 else None,
        seeds=len(values),
    )


def paired_difference(one: Mapping[int, float], other: Mapping[int, float]) -> MeanScore:
    """Of one - other on the seeds that both have.

    Both are of the same split and coins of each seed, so their difference varies less than either.
    """
    return mean_of({seed: one[seed] - other[seed] for seed in one if seed in other})
