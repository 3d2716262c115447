"""The report of an audit: estimates with intervals, rows with verdicts, and its JSON.

An estimate is a number that an attack measured; it has an interval for any confidence.
"""

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from scipy.special import betaincinv, gammaincinv, ndtri

from lumos.display import DISPLAYS, frame_of_rows
from lumos.secagg.noise import Noise
from lumos.typing import Doubles

if TYPE_CHECKING:
    import pandas


class Proportion(msgspec.Struct, frozen=True, tag="proportion"):
    """The share of right guesses; the interval is that of Clopper and Pearson (1934)."""

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

    def best(self) -> "Proportion":
        """Return the result of an attack of the same size that is always right."""
        return Proportion(self.trials, self.trials)


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

    def best(self) -> "Area":
        """Return the result of an attack of the same size that ranks every case correctly."""
        return Area(1.0, self.positives, self.negatives)

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


class _Unbounded(msgspec.Struct, frozen=True):
    """A number without an upper end."""

    def best(self) -> "Exactly":
        """Return infinity, which a perfect attack finds."""
        return Exactly(math.inf)


class Mean(_Unbounded, frozen=True, tag="mean"):
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


class NoiseRatio(_Unbounded, frozen=True, tag="noise"):
    """A stated deviation of normal noise by the one found: above 1, there is less than stated."""

    square: float
    """Σ of squares of the numbers that were found, in units of the stated deviation."""
    numbers: int

    @property
    def value(self) -> float:
        """The ratio."""
        return math.sqrt(self.numbers / max(self.square, 1e-300))

    def interval(self, confidence: float) -> tuple[float, float]:
        """Two-sided and exact: squares of the true deviation have a χ² distribution."""
        tails, half = ((1 - confidence) / 2, (1 + confidence) / 2), self.numbers / 2
        scale = max(self.square, 1e-300)
        low, high = (math.sqrt(2 * float(gammaincinv(half, tail)) / scale) for tail in tails)
        return low, high


class Exactly(_Unbounded, frozen=True, tag="exact"):
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
    """Number of tests of which this is the best: each gets a part of the error."""

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

    def best(self) -> "CertifiedEpsilon":
        """Return the result of a test of the same size that is always right."""
        return CertifiedEpsilon(
            self.positives, self.positives, 0, self.negatives, self.delta, self.tests
        )


Estimate = Proportion | Area | Mean | NoiseRatio | Exactly | CertifiedEpsilon


def _epsilon(hit: float, false_hit: float, delta: float) -> float:
    return max(0.0, math.log(max(hit - delta, 1e-300) / max(false_hit, 1e-300)))


def _deviations(confidence: float) -> float:
    return float(ndtri((1 + confidence) / 2))


# Rows of an audit, and the verdict on each.

FILE = "audit.json"
"""In a run folder: the report page has a chapter of it."""
CONFIDENCE = 0.999
"""Probability that no row of an audit is called exceeded by chance."""
SMALL = 0.02
"""An advantage that "at chance" has to exclude."""
EXCEEDED, WITHIN, NO_POWER, NO_BOUND = "EXCEEDED", "within", "no power", "no bound claimed"


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """One figure: something that one adversary infers about one thing."""

    attack: str = ""
    """Name in `ATTACKS`; an attack writes it into its rows."""
    adversary: str
    """Name of the adversary: one neighbour, a non-neighbour, the coordinator, a broker …"""
    about: str
    """Subject of the inference, and the messages that it uses."""
    measure: str
    """Kind of the number: accuracy, AUC, μ, ε, bytes …"""
    estimate: Estimate
    chance: float | None = None
    """The same number of an attacker without these messages; None where there is none."""
    chance_is: str = ""
    """Guess of that attacker: the most frequent label, its own degree …"""
    bound: float | None = None
    """Claimed upper bound of the number; None where no bound is claimed."""
    bound_is: str = ""
    """Source of the claim: a cell of the table of guarantees, a sentence."""
    undefended: float | None = None
    """The same number for a broken variant without the defence; None where there is none."""
    knows_mechanism: bool = False
    """True if the attacker computes with the true probabilities of the mechanism: only then can a
    figure at chance mean anything."""
    note: str = ""

    @property
    def value(self) -> float:
        """The measured number."""
        return self.estimate.value


def finding(
    adversary: str,
    about: str,
    measure: str,
    estimate: Estimate,
    *,
    chance: tuple[float, str] | None = None,
    bound: tuple[float, str] | None = None,
    undefended: float | None = None,
    knows_mechanism: bool = False,
    note: str = "",
) -> AuditRow:
    """Return a row of an attack; arguments are those of `AuditRow`.

    Args:
        chance: the number of an attacker without these messages, and who that is.
        bound: the number that is claimed, and where the claim stands.
    """
    (chance_value, chance_is), (bound_value, bound_is) = chance or (None, ""), bound or (None, "")
    return AuditRow(
        adversary=adversary,
        about=about,
        measure=measure,
        estimate=estimate,
        chance=chance_value,
        chance_is=chance_is,
        bound=bound_value,
        bound_is=bound_is,
        undefended=undefended,
        knows_mechanism=knows_mechanism,
        note=note,
    )


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of an audit."""

    graph: str
    devices: int
    profile: str
    settings: dict[str, Any]
    seed: int
    rows: list[AuditRow]
    seconds: dict[str, float]
    """By attack."""
    lumos: str

    def __repr__(self) -> str:
        name, claimed = self.graph.strip() or "a graph in memory", len(self.claimed)
        return (
            f"AuditReport({name}, profile {self.profile}, seed {self.seed}: {len(self.rows)} rows, "
            f"{claimed} with a bound, {len(self.powered)} of them with power, "
            f"{len(self.exceeded)} exceed it)"
        )

    def _repr_html_(self) -> str:
        """For notebooks: all rows, those of one adversary together."""
        shown: str = DISPLAYS["audit"](self)
        return shown

    def frame(self) -> "pandas.DataFrame":
        """Rows as a pandas frame: `attack`, `adversary`, `about`, `measure`, `value`, `low`, `high`
        (interval), `chance`, `bound`, `undefended`, `advantage`, `verdict`, `note`."""
        names = ("attack", "adversary", "about", "measure", "value", "low", "high", "chance")
        more = ("bound", "undefended", "advantage", "verdict", "note")
        return frame_of_rows(self.lines(), (*names, *more))

    @property
    def claimed(self) -> list[AuditRow]:
        """Rows for which a bound is claimed."""
        return [row for row in self.rows if row.bound is not None]

    @property
    def confidence(self) -> float:
        """Confidence of one interval, so that all together have `CONFIDENCE` (Bonferroni)."""
        return 1 - (1 - CONFIDENCE) / max(1, len(self.rows))

    def interval(self, row: AuditRow) -> tuple[float, float]:
        """Return the interval of one row, corrected for the number of rows."""
        return row.estimate.interval(self.confidence)

    def verdict(self, row: AuditRow) -> str:
        """Return the verdict: exceeded only if the whole interval lies above the bound.

        A row has no power if even a perfect attack on a sample of this size would not exceed it, or
        if this attack does not exceed it without the defence.
        """
        if row.bound is None:
            return NO_BOUND
        if self._exceeds(row.estimate, row.bound):
            return EXCEEDED
        if row.undefended is not None and not row.undefended > row.bound:
            return NO_POWER
        return WITHIN if self._exceeds(row.estimate.best(), row.bound) else NO_POWER

    def _exceeds(self, estimate: Estimate, bound: float) -> bool:
        return estimate.interval(self.confidence)[0] > bound * (1 + 1e-9)

    def advantage(self, row: AuditRow) -> str:
        """Return what messages add to chance, in words that claim no more than the sample shows."""
        if row.chance is None:
            return ""
        low, high = self.interval(row)
        gained = row.value - row.chance
        if low > row.chance:
            return f"{gained:+.3f}"
        narrow = high - row.chance <= SMALL
        if narrow and row.knows_mechanism:
            return "at chance"
        return f"{gained:+.3f}, not shown"

    def figures(self, row: AuditRow) -> tuple[str, str, str, str]:
        """Return as text the number, its interval, the chance, and the bound."""
        low, high = self.interval(row)
        return (
            f"{row.measure} {shown(row.value)}",
            f"{shown(low)} … {shown(high)}" if low < high else "exact",
            "–" if row.chance is None else shown(row.chance),
            "–" if row.bound is None else f"≤ {shown(row.bound)}",
        )

    def by_adversary(self) -> dict[str, list[AuditRow]]:
        """Return all rows, those of one adversary together."""
        found: dict[str, list[AuditRow]] = {}
        for row in self.rows:
            found.setdefault(row.adversary, []).append(row)
        return found

    def notes(self) -> list[str]:
        """Return every note of an attack once, with the row or rows that it is about."""
        noted: dict[tuple[str, str], list[str]] = {}
        for row in self.rows:
            if row.note:
                noted.setdefault((row.attack, row.note), []).append(row.about)
        return [
            f"{attack}, {abouts[0] if len(abouts) == 1 else f'{len(abouts)} rows'}: {note}"
            for (attack, note), abouts in noted.items()
        ]

    @property
    def powered(self) -> list[AuditRow]:
        """Rows that could have exceeded their bound, and those that did."""
        return [row for row in self.claimed if self.verdict(row) != NO_POWER]

    @property
    def power(self) -> str:
        """Number of rows that had power, in one sentence."""
        perfect = "a perfect attack on a sample of this size"
        if any(row.undefended is not None for row in self.rows):
            perfect = "the same attack without the defence"
        return (
            f"{len(self.powered)} of {len(self.claimed)} rows with a bound had power: {perfect} "
            "would have exceeded the bound."
        )

    @property
    def exceeded(self) -> list[AuditRow]:
        """Rows that refute a guarantee."""
        return [row for row in self.rows if self.verdict(row) == EXCEEDED]

    def lines(self) -> list[dict[str, Any]]:
        """Return every row with its interval, advantage and verdict, as plain numbers for JSON."""
        return [
            {
                **msgspec.to_builtins(row),
                "value": _plain(row.value),
                "low": _plain(self.interval(row)[0]),
                "high": _plain(self.interval(row)[1]),
                "advantage": self.advantage(row),
                "verdict": self.verdict(row),
            }
            for row in self.rows
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the content of `--json`, run folder and report; `from_json` reads it back."""
        about = {
            name: msgspec.to_builtins(getattr(self, name))
            for name in ("graph", "devices", "profile", "settings", "seed", "seconds", "lumos")
        }
        return {
            **about,
            "confidence": CONFIDENCE,
            "exceeded": len(self.exceeded),
            "claimed": len(self.claimed),
            "powered": len(self.powered),
            "rows": self.lines(),
        }

    @staticmethod
    def from_json(content: Any) -> "AuditReport":
        """Read back what `to_json` made.

        Raises:
            msgspec.ValidationError: it is none.
        """
        return msgspec.convert(content, AuditReport)


def shown(number: float) -> str:
    """Format with three decimals; whole numbers without any."""
    if math.isinf(number):
        return "∞"
    return f"{number:,.0f}" if number == int(number) and number != 1 else f"{number:.3f}"


def _plain(number: float) -> float | None:
    """Return None for infinity, which JSON does not have."""
    return number if math.isfinite(number) else None


# The noise of opened sums against the account, for whoever knows what was added.


def noise_square(found: Doubles, noise: Noise) -> float:
    """Return Σ of squares of the noise in a sum, in units of the deviation of all shares."""
    left = (noise.sigma * noise.clip) ** 2
    return float(np.square(found).sum()) / (left * noise.devices / (noise.devices - noise.absent))


def noise_row(adversary: str, stage: str, found: NoiseRatio) -> AuditRow:
    """Return one row for all sums of a stage."""
    return finding(
        adversary,
        f"noise in {found.numbers:,} numbers of {stage}: what the account says, by what was found",
        "ratio",
        found,
        bound=(1.0, "the account of the sums"),
        knows_mechanism=True,
    )
