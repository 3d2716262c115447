"""(ε, δ) of Gaussian mechanisms from first principles: privacy losses, composed by convolution.

With noise of standard deviation s, a change by Δ has μ = Δ/s, and its privacy loss is normal with
mean μ²/2 and variance μ². Losses of all sums add up, and δ(ε) = E[max(0, 1 - e^(ε - loss))].
"""

import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from scipy.special import ndtr
from tests.narrow import present

from lumos.strict.classify.stages import (
    AGREEMENT,
    COUNTS,
    ENCODER,
    EVIDENCE_WEIGHTS,
    LAST_PROPAGATED,
    PREDICTED,
    PROPAGATED,
    RANDOMIZED,
    SELECTION,
    TEMPERATURE,
    TREES,
    ClassifySchedule,
)
from lumos.strict.features import CENTRES, SIZES
from lumos.training.split import Role

DELTA = 1e-5
"""δ of the defaults."""

STEP, POINTS = 1e-3, 1 << 16
"""Losses are rounded to multiples of a step, from -32 to 32."""
LOSSES = STEP * (np.arange(POINTS) - POINTS // 2)
POSITIVE = LOSSES[POINTS // 2 :]


def epsilon_of(mus: Iterable[float], delta: float) -> float:
    """The ε at which mechanisms with these μ have this δ together."""
    transform = np.ones(POINTS // 2 + 1, np.complex128)
    for mu, times in Counter(round(mu, 15) for mu in mus if mu > 0).items():
        transform *= _transform(mu) ** times
    chances = np.fft.irfft(transform, POINTS)[: POINTS // 2]  # of losses from 0 on
    # δ falls as ε grows: bisection between 0 and the largest loss.
    if _delta(chances, 0.0) <= delta:
        return 0.0
    low, high = 0.0, float(POSITIVE[-1])
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(chances, middle) > delta else (low, middle)
    return high


@lru_cache(maxsize=64)
def _transform(mu: float) -> np.ndarray:
    """Of the privacy loss of one mechanism, rounded to the grid."""
    edges = (np.append(LOSSES, LOSSES[-1] + STEP) - STEP / 2 - mu**2 / 2) / mu
    return np.fft.rfft(np.fft.ifftshift(np.diff(ndtr(edges))))


def _delta(chances: np.ndarray, epsilon: float) -> float:
    first = int(np.searchsorted(POSITIVE, epsilon))
    return float(-(chances[first:] * np.expm1(epsilon - POSITIVE[first:])).sum())


# The sums of a run.


def all_sums(schedule: ClassifySchedule) -> list[tuple[str, int]]:
    """Stage and number of every sum of a run, in order."""
    epochs = range(schedule.config.train.epochs)
    before = {"none": "", "size": "s", "standard": "scscs"}[schedule.scaling]
    return [
        *(({"s": SIZES, "c": CENTRES}[literal], 0) for literal in before),
        *((stage.name, step) for stage, step in map(schedule.place, epochs)),
        *((stage.name, 0) for stage in schedule.last_stages),
    ]


def honest_noise(schedule: ClassifySchedule, stage: str, step: int) -> float:
    """Standard deviation of the shares of the devices that neither collude nor drop out."""
    noise = present(schedule[stage].noise(step))
    devices = schedule.devices
    absent = math.ceil(0.10 * devices) + math.ceil(0.05 * devices)
    return noise.share * math.sqrt(devices - absent)


IN_SUMS: dict[Role, set[str]] = {
    Role.TRAIN: {SIZES, CENTRES, COUNTS, ENCODER, RANDOMIZED},
    Role.VALIDATION: {
        RANDOMIZED,
        PROPAGATED,
        AGREEMENT,
        PREDICTED,
        LAST_PROPAGATED,
        EVIDENCE_WEIGHTS,
        TREES,
        SELECTION,
        TEMPERATURE,
    },
    Role.TEST: set(),
}
"""Who adds a vector in which stage (docs/strict-proofs.md), if all devices do not take part."""


def mus(schedule: ClassifySchedule, role: Role, question: str, changes: int = 1) -> list[float]:
    """μ of every sum of a device of some role, from noise and moves alone.

    If all devices take part, those without a training label add shorter vectors to the encoder.
    """
    found = []
    for stage, step in all_sums(schedule):
        part = float(stage in IN_SUMS[role])
        if stage == ENCODER and role != Role.TRAIN and schedule.all_take_part:
            part = schedule.others_part
        move = part * moves(schedule, stage)[question]
        found.append(changes * move / honest_noise(schedule, stage, step))
    return found


def moves(schedule: ClassifySchedule, stage: str) -> dict[str, float]:
    """How far a vector moves, and by an edge the sum; written out for the default clip of 0.3.

    An edge moves one vector of the stages that train, and two of those that judge predictions.
    """
    cone = 2.0 if schedule.signed else math.sqrt(2)
    short = 0.3 * schedule.strength
    others = 2.0 if schedule.strict.tree_network else 1.0
    far = {"norm": 0.3, "features": 0.6, "edge": 0.6}
    matrix = {"norm": 1.0, "features": 0.0, "edge": 0.25}
    every = math.sqrt(1 + 2 * others)
    return {
        SIZES: {"norm": 1.0, "features": math.sqrt(2), "edge": 0.0},
        CENTRES: {"norm": 1.0, "features": 2.0, "edge": 0.0},
        COUNTS: {"norm": 1.0, "features": math.sqrt(2), "edge": 0.0},
        ENCODER: {"norm": short, "features": cone * short, "edge": 0.0},
        RANDOMIZED: matrix,
        PROPAGATED: matrix,
        AGREEMENT: {"norm": 1.0, "features": 0.0, "edge": 0.0},
        PREDICTED: matrix,
        LAST_PROPAGATED: matrix,
        EVIDENCE_WEIGHTS: far,
        TREES: far,
        SELECTION: {
            "norm": math.sqrt(1 + others),
            "features": every,
            "edge": 2 * math.sqrt(others),
        },
        TEMPERATURE: {
            "norm": math.sqrt(5),
            "features": math.sqrt(5),
            "edge": 2 * math.sqrt(5),
        },
    }[stage]
