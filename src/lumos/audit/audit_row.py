"""Rows of an audit, and the verdict on each."""

import math
from typing import TYPE_CHECKING, Any

import msgspec

from lumos.audit.estimates import Estimate
from lumos.display import DISPLAYS, frame_of_rows

if TYPE_CHECKING:
    import pandas

FILE = "audit.json"
"""In a run folder: the report page has a chapter of it."""
CONFIDENCE = 0.999
"""That no row of an audit is called exceeded by chance."""
SMALL = 0.02
"""An advantage that "at chance" has to exclude."""
EXCEEDED, WITHIN, NO_BOUND = "EXCEEDED", "within", "no bound claimed"


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one adversary infers about one thing."""

    attack: str
    """Name in `ATTACKS`."""
    adversary: str
    """Who it is: one neighbour, all neighbours, a stranger, the coordinator, a broker …"""
    about: str
    """What it infers, and from what."""
    measure: str
    """What the number is: accuracy, AUC, μ, ε, bytes …"""
    estimate: Estimate
    chance: float | None = None
    """The same number of an attacker without these messages; None where there is none."""
    chance_is: str = ""
    """Who that is: the most frequent label, the attacker's own degree …"""
    bound: float | None = None
    """What is claimed: the number is not larger. None: no bound is claimed."""
    bound_is: str = ""
    """Where the claim stands: a cell of the table of promises, a sentence."""
    knows_mechanism: bool = False
    """Whether the attacker computes with the true probabilities of the mechanism: only then can a
    figure at chance mean anything."""
    note: str = ""

    @property
    def value(self) -> float:
        """What was measured."""
        return self.estimate.value


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
            f"{claimed} with a bound, {len(self.exceeded)} exceed it)"
        )

    def _repr_html_(self) -> str:
        """For notebooks: all rows, those of one adversary together."""
        shown: str = DISPLAYS["audit"](self)
        return shown

    def frame(self) -> "pandas.DataFrame":
        """Rows as a pandas frame: `attack`, `adversary`, `about`, `measure`, `value`, `low`, `high`
        (interval), `chance`, `bound`, `advantage`, `verdict`, `note`."""
        names = ("attack", "adversary", "about", "measure", "value", "low", "high", "chance")
        return frame_of_rows(self.lines(), (*names, "bound", "advantage", "verdict", "note"))

    @property
    def claimed(self) -> list[AuditRow]:
        """Rows for which a bound is claimed."""
        return [row for row in self.rows if row.bound is not None]

    @property
    def confidence(self) -> float:
        """Of a single interval, so that all of them together have `CONFIDENCE` (Bonferroni)."""
        return 1 - (1 - CONFIDENCE) / max(1, len(self.rows))

    def interval(self, row: AuditRow) -> tuple[float, float]:
        """Of one row, corrected for the number of rows."""
        return row.estimate.interval(self.confidence)

    def verdict(self, row: AuditRow) -> str:
        """Exceeded only where the lower end of the interval lies above the bound."""
        if row.bound is None:
            return NO_BOUND
        return EXCEEDED if self.interval(row)[0] > row.bound * (1 + 1e-9) else WITHIN

    def advantage(self, row: AuditRow) -> str:
        """What the messages add to chance, in words that claim no more than the sample shows."""
        if row.chance is None:
            return ""
        low, high = self.interval(row)
        gained = row.value - row.chance
        if low > row.chance:
            return f"{gained:+.3f}"
        narrow = high - row.chance <= SMALL
        if narrow and row.knows_mechanism:
            return "at chance"
        needed = row.estimate.trials_to_show(SMALL, self.confidence)
        if not narrow and needed > row.estimate.trials:
            return f"{gained:+.3f}, not shown ({needed:,} cases would show {SMALL})"
        return f"{gained:+.3f}, not shown"

    def figures(self, row: AuditRow) -> tuple[str, str, str]:
        """What was found with its interval, what is known without, what is claimed: as text."""
        low, high = self.interval(row)
        between = f" ({_shown(low)} … {_shown(high)})" if low < high else ""
        return (
            f"{row.measure} {_shown(row.value)}{between}",
            "–" if row.chance is None else _shown(row.chance),
            "–" if row.bound is None else f"≤ {_shown(row.bound)}",
        )

    def by_adversary(self) -> dict[str, list[AuditRow]]:
        """All rows, those of one adversary together."""
        found: dict[str, list[AuditRow]] = {}
        for row in self.rows:
            found.setdefault(row.adversary, []).append(row)
        return found

    def notes(self) -> list[str]:
        """Every note of an attack once, with the row or rows that it is about."""
        noted: dict[tuple[str, str], list[str]] = {}
        for row in self.rows:
            if row.note:
                noted.setdefault((row.attack, row.note), []).append(row.about)
        return [
            f"{attack}, {abouts[0] if len(abouts) == 1 else f'{len(abouts)} rows'}: {note}"
            for (attack, note), abouts in noted.items()
        ]

    @property
    def exceeded(self) -> list[AuditRow]:
        """Rows that refute a promise."""
        return [row for row in self.rows if self.verdict(row) == EXCEEDED]

    def lines(self) -> list[dict[str, Any]]:
        """Every row with its interval, advantage and verdict, as plain numbers for JSON."""
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
        """For `--json`, the run folder and the report page; `from_json` reads it back."""
        about = {
            name: msgspec.to_builtins(getattr(self, name))
            for name in ("graph", "devices", "profile", "settings", "seed", "seconds", "lumos")
        }
        return {
            **about,
            "confidence": CONFIDENCE,
            "exceeded": len(self.exceeded),
            "rows": self.lines(),
        }

    @staticmethod
    def from_json(content: Any) -> "AuditReport":
        """What `to_json` made.

        Raises:
            msgspec.ValidationError: it is none.
        """
        return msgspec.convert(content, AuditReport)


def _shown(number: float) -> str:
    """Three decimals; whole numbers without any."""
    if math.isinf(number):
        return "∞"
    return f"{number:,.0f}" if number == int(number) and number != 1 else f"{number:.3f}"


def _plain(number: float) -> float | None:
    """JSON has no infinity."""
    return number if math.isfinite(number) else None
