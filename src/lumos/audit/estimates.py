"""What an attack measured, with an interval for any confidence. All of it can be stored as JSON."""

import math

import msgspec
from scipy.special import betaincinv, gammaincinv, ndtri


class Proportion(msgspec.Struct, frozen=True, tag="proportion"):
    """How often a guess was right; the interval is that of Clopper and Pearson (1934)."""

    hits: float
    """Not whole where many dependent cases count as fewer independent ones."""
    trials: int

    @property
    def value(self) -> float:
        """The share of hits."""
        return self.hits / self.trials if self.trials else math.nan

    def interval(self, confidence: float) -> tuple[float, float]:
        """Two-sided, and never too narrow for independent trials."""
        tail, hits, missed = (1 - confidence) / 2, self.hits, self.trials - self.hits
        low = float(betaincinv(hits, missed + 1, tail)) if hits else 0.0
        high = float(betaincinv(hits + 1, missed, 1 - tail)) if missed else 1.0
        return low, high

    def trials_to_show(self, advantage: float, confidence: float) -> int:
        """Trials after which an interval around this share is narrower than ± `advantage`."""
        spread = max(self.value * (1 - self.value), 0.01)
        return math.ceil(spread * (_deviations(confidence) / advantage) ** 2)


class Area(msgspec.Struct, frozen=True, tag="area"):
    """An area under the ROC curve; the interval is that of Hanley and McNeil (1982)."""

    auc: float
    positives: int
    negatives: int

    @property
    def value(self) -> float:
        """The area: 0.5 is chance."""
        return self.auc

    @property
    def trials(self) -> int:
        """Cases of the rarer kind."""
        return min(self.positives, self.negatives)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Two-sided, by the normal distribution."""
        if not self.trials:
            return 0.0, 1.0
        reach = _deviations(confidence) * self.error
        return max(0.0, self.auc - reach), min(1.0, self.auc + reach)

    def trials_to_show(self, advantage: float, confidence: float) -> int:
        """Cases of the rarer kind for an interval narrower than ± `advantage`."""
        if not self.trials:
            return math.ceil((_deviations(confidence) / advantage) ** 2 / 6)
        needed = (_deviations(confidence) * self.error / advantage) ** 2
        return math.ceil(needed * self.trials)

    @property
    def error(self) -> float:
        """Standard error, of at least one case of each kind."""
        positives, negatives = self.positives, self.negatives
        auc = min(max(self.auc, 1e-6), 1 - 1e-6)
        both_positive, both_negative = auc / (2 - auc), 2 * auc**2 / (1 + auc)
        variance = (
            auc * (1 - auc)
            + (positives - 1) * (both_positive - auc**2)
            + (negatives - 1) * (both_negative - auc**2)
        ) / (positives * negatives)
        return math.sqrt(max(variance, 0.0))


class Mean(msgspec.Struct, frozen=True, tag="mean"):
    """A number with a standard error."""

    mean: float
    error: float
    trials: int

    @property
    def value(self) -> float:
        """The number itself."""
        return self.mean

    def interval(self, confidence: float) -> tuple[float, float]:
        """Two-sided, by the normal distribution."""
        reach = _deviations(confidence) * self.error
        return self.mean - reach, self.mean + reach

    def trials_to_show(self, advantage: float, confidence: float) -> int:
        """Trials for an interval narrower than ± `advantage`."""
        needed = (_deviations(confidence) * self.error / advantage) ** 2
        return math.ceil(needed * self.trials)


class NoiseRatio(msgspec.Struct, frozen=True, tag="noise"):
    """A stated deviation of normal noise by the one found: above 1, there is less than stated."""

    square: float
    """Σ of squares of the numbers that were found, in units of the stated deviation."""
    numbers: int

    @property
    def value(self) -> float:
        """The ratio."""
        return math.sqrt(self.numbers / max(self.square, 1e-300))

    @property
    def trials(self) -> int:
        """Each number is one."""
        return self.numbers

    def interval(self, confidence: float) -> tuple[float, float]:
        """Two-sided and exact: squares of the true deviation have a χ² distribution."""
        tails, half = ((1 - confidence) / 2, (1 + confidence) / 2), self.numbers / 2
        scale = max(self.square, 1e-300)
        low, high = (math.sqrt(2 * float(gammaincinv(half, tail)) / scale) for tail in tails)
        return low, high

    def trials_to_show(self, advantage: float, confidence: float) -> int:
        """Numbers for an interval narrower than ± `advantage`: their relative error is 1/√(2N)."""
        return math.ceil((_deviations(confidence) * self.value / advantage) ** 2 / 2)


class Exactly(msgspec.Struct, frozen=True, tag="exact"):
    """A number without chance in it: a count, or a likelihood that was computed."""

    number: float
    trials: int = 1

    @property
    def value(self) -> float:
        """The number itself."""
        return self.number

    def interval(self, confidence: float) -> tuple[float, float]:
        """The number itself, twice."""
        return self.number, self.number

    def trials_to_show(self, advantage: float, confidence: float) -> int:
        """One is enough."""
        return 1


class CertifiedEpsilon(msgspec.Struct, frozen=True, tag="certified"):
    """The least ε that is compatible with how often a test raises its hand in two worlds.

    A mechanism with (ε, δ) has P[hand | one] ≤ e^ε · P[hand | other] + δ for every test.
    """

    hits: int
    """Raised in the world in which it should be."""
    positives: int
    false_hits: int
    negatives: int
    delta: float = 0.0
    tests: int = 1
    """Of how many tests this is the best: each gets a part of the error."""

    @property
    def trials(self) -> int:
        """Runs of the rarer world."""
        return min(self.positives, self.negatives)

    @property
    def value(self) -> float:
        """By the observed shares."""
        return _epsilon(
            self.hits / self.positives, (self.false_hits + 0.5) / self.negatives, self.delta
        )

    def interval(self, confidence: float) -> tuple[float, float]:
        """From what is certified, to infinity; each share has half of the error."""
        each = 1 - (1 - confidence) / (2 * self.tests)
        low, _ = Proportion(self.hits, self.positives).interval(each)
        _, high = Proportion(self.false_hits, self.negatives).interval(each)
        return _epsilon(low, high, self.delta), math.inf

    def trials_to_show(self, advantage: float, confidence: float) -> int:
        """There is no such number: what is certified grows with the logarithm of trials."""
        return self.trials


Estimate = Proportion | Area | Mean | NoiseRatio | Exactly | CertifiedEpsilon


def _epsilon(hit: float, false_hit: float, delta: float) -> float:
    return max(0.0, math.log(max(hit - delta, 1e-300) / max(false_hit, 1e-300)))


def _deviations(confidence: float) -> float:
    return float(ndtri((1 + confidence) / 2))
