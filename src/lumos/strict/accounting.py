"""The cost of a run for a device: charges, and what is disclosed.

**Charges.** Sums are Gaussian mechanisms: over all runs their μ² add up, adaptively, whatever (ε,
δ) each run was asked for. So the book keeps μ² of every device for each question of the table of
guarantees. The limit is `lifetime_feature_epsilon`, at the δ of the run that asks. It holds for the
whole record of a device, and for one of its edges, in whose sums both ends are.

**Disclosed.** A table of guarantees has the same cells for both: those of a run follow from its
schedule, those of a life from the book. Everything counts what is *seen*: a randomized label that
is sent again for nothing is still seen, so a run has its ε, and only "newly spent" is less.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lumos.secagg.noise import mu_for
from lumos.strict.book_records import Charge
from lumos.strict.settings import StrictSettings
from lumos.typing import Doubles, Flags, Ints

PROPAGATED, SUMS, CALIBRATION = "opinions", "sums", "calibration"  # frozen
"""Names of the accounts in the file of a book."""
LABEL, FEATURES, RECORD, NORM, EDGE = "label", "features", "record", "norm", "edge"
QUESTIONS = (LABEL, FEATURES, RECORD, NORM, EDGE)
"""Changes for which μ² is counted: another label, if sums use it; other features; another record;
zeros in place of the vectors; one edge more or less, at one of its ends."""
ACCOUNTS = {PROPAGATED: 1, SUMS: len(QUESTIONS), CALIBRATION: 1}
"""Number of amounts in a charge of each account."""
ENDS = {EDGE: 2.0}
"""Ratio of the whole change to the change at one end."""
LIMITED = (RECORD, EDGE)


def propagated_label_charge(strict: StrictSettings) -> Charge:
    """Return the charge for all propagated labels that a device sends in a run."""
    epsilon = strict.propagated_labels * strict.propagated_epsilon
    limit = strict.lifetime_propagated_epsilon
    return Charge(
        name=PROPAGATED,
        amounts=(epsilon,),
        limits=(limit,),
        reason=f"propagated labels of ε = {epsilon:g} would exceed their lifetime limit "
        f"ε = {limit:g}",
        advice="lower their ε, or raise `lifetime_propagated_epsilon`",
    )


def sum_charge(strict: StrictSettings, mu: Mapping[str, float]) -> Charge:
    """Return the charge for all sums of a run.

    Args:
        mu: of one run, by question; at one end of an edge.
    """
    most, delta = strict.lifetime_feature_epsilon, strict.delta
    whole = mu_for(most, delta) ** 2 if math.isfinite(most) else math.inf
    limits = {name: whole / ENDS.get(name, 1.0) ** 2 for name in LIMITED}
    return Charge(
        name=SUMS,
        amounts=tuple(mu.get(name, 0.0) ** 2 for name in QUESTIONS),
        limits=tuple(limits.get(name, math.inf) for name in QUESTIONS),
        reason=f"sums of ε = {strict.feature_epsilon:g} would exceed their lifetime limit "
        f"ε = {most:g} at δ = {delta:g}",
        advice="lower `feature_epsilon`, or raise `lifetime_feature_epsilon`",
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Lives:
    """Totals of all runs with a book, [devices] each."""

    label: Doubles = field(repr=False)
    """ε of releases: the largest of each label, added up over labels."""
    propagated_labels: Doubles = field(repr=False)
    """ε of propagated labels."""
    squares: dict[str, Doubles] = field(repr=False)
    """μ² of sums, for each question."""
    answers: Ints = field(repr=False)
    """Score queries about links."""


class Disclosed(NamedTuple):
    """The largest amounts of any device of a group."""

    label: float
    """ε of releases."""
    propagated_labels: float
    """ε of propagated labels, of one device."""
    mu: Mapping[str, float]
    """μ of sums, by question; at one end of an edge."""
    answers: int = 0
    """Score queries about links."""

    @staticmethod
    def of_lives(lives: Lives, group: Flags) -> "Disclosed":
        """Return the largest totals of a group of devices."""
        squares = {name: float(lives.squares[name][group].max(initial=0)) for name in QUESTIONS}
        return Disclosed(
            label=float(lives.label[group].max(initial=0)),
            propagated_labels=float(lives.propagated_labels[group].max(initial=0)),
            mu={name: math.sqrt(square) for name, square in squares.items()},
            answers=int(np.max(lives.answers[group], initial=0)),
        )


class BookView(NamedTuple):
    """The amounts of a book in a table of guarantees, by group of devices."""

    life: Mapping[str, Disclosed]
    newly: Mapping[str, float]
    """ε that the group's labels cost in this run: the largest of any device."""
