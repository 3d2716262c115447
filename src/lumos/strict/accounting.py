"""The cost of a run for a device: charges, what is disclosed, and figures of the tables.

**Charges.** Sums are Gaussian mechanisms: over all runs their μ² add up, adaptively, whatever (ε,
δ) each run was asked for. So the book keeps μ² of every device for each question of the table of
guarantees. The limit is `lifetime_update_epsilon`, at the δ of the run that asks. It holds for the
whole record of a device, and for one of its edges, in whose sums both ends are.

**Disclosed.** A table of guarantees has the same cells for both: those of a run follow from its
schedule, those of a life from the book. Everything counts what is *seen*: a randomized label that
is sent again for nothing is still seen, so a run has its ε, and only "newly spent" is less.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lumos.secagg.noise import mu_for
from lumos.strict.book_records import Charge
from lumos.strict.settings import StrictSettings
from lumos.training.profile import NO_GUARANTEE
from lumos.typing import Doubles, Flags, Ints

if TYPE_CHECKING:
    from lumos.strict.stages import Schedule

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
    most, delta = strict.lifetime_update_epsilon, strict.update_delta
    whole = mu_for(most, delta) ** 2 if math.isfinite(most) else math.inf
    limits = {name: whole / ENDS.get(name, 1.0) ** 2 for name in LIMITED}
    return Charge(
        name=SUMS,
        amounts=tuple(mu.get(name, 0.0) ** 2 for name in QUESTIONS),
        limits=tuple(limits.get(name, math.inf) for name in QUESTIONS),
        reason=f"sums of ε = {strict.update_epsilon:g} would exceed their lifetime limit "
        f"ε = {most:g} at δ = {delta:g}",
        advice="lower `update_epsilon`, or raise `lifetime_update_epsilon`",
    )


FOR_LIFE = ", for life"
"""Suffix of the columns that count all runs with a book."""

NEWLY = "newly spent in this run"
"""Row with the amounts that a run adds to a book; in columns for life, with the totals."""


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


def with_life(
    rows: Mapping[str, tuple[str, ...]], life: Mapping[str, tuple[str, ...]], columns: list[str]
) -> list[dict[str, str]]:
    """Return the rows of a table: question, columns of the run, and columns for life, if any."""
    table = []
    for about, cells in rows.items():
        row = {"about": about, **dict(zip(columns, cells, strict=True))}
        if life:
            names = [name + FOR_LIFE for name in columns]
            row |= dict(zip(names, life[about], strict=True))
        table.append(row)
    return table


NONE = NO_GUARANTEE
NOTHING = "nothing"


def up(number: float) -> str:
    """Format a number with three digits, rounded up: no guarantee is printed too small."""
    if number == 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(number)) - 2)
    return f"{math.ceil(number / step - 1e-9) * step:g}"  # 1e-9 of the last digit: float dust


def round_up(number: float) -> int:
    """Round an estimate up to two digits."""
    step = 10.0 ** max(0, math.floor(math.log10(max(1.0, number))) - 1)
    return round(math.ceil(number / step) * step)


def adversaries(schedule: "Schedule") -> str:
    """Return a sentence on who may collude, and how many devices may be missing."""
    everybody = "Figures hold against neighbours, non-neighbours and the coordinator together"
    if not schedule.noisy:
        return everybody
    updates = schedule.config.updates
    missing = max(updates.dropped, 1 - (updates.minimum or schedule.devices) / schedule.devices)
    return (
        f"{everybody}, with whom up to {100 * updates.corrupt:g} % of the devices collude, while "
        f"{100 * missing:.3g} % add no noise"
    )


def public(schedule: "Schedule", facts: str, learnt: str) -> str:
    """Return two sentences on what is public."""
    strict = schedule.strict
    known = ["whether any of them is negative"] * (strict.signs == "auto")
    known += ["whether all of them lie between -1 and 1"] * (strict.scaling == "auto")
    form = "".join(f", and {fact}" for fact in known)
    if schedule.first_stages:
        learnt = f"sizes and centres of the features, {learnt}"
    sums = "noisy sums" if schedule.noisy else "exact sums"
    return (
        f"Public, and covered by no figure, are {facts}{form}. Public too are {learnt}: they "
        f"follow from {sums}."
    )


def control_note(schedule: "Schedule") -> list[str]:
    """Return a sentence on the control run, if there is one."""
    if not schedule.config.train.control:
        return []
    return [
        "The control run is an experiment of a simulation, with randomness of its own: neither "
        "this table nor any book covers its sums, and publishing its result too would cost as much "
        "again."
    ]


def life_of_runs(strict: StrictSettings) -> str:
    """Return two sentences on the columns for life."""
    return (
        "Columns for life count what is seen in all runs with this book, the largest of any device "
        "that has the role now; a randomized label that is sent again is seen again, and costs "
        f"nothing new. Limits for life are ε = {strict.lifetime_epsilon:g} for labels, "
        f"{strict.lifetime_propagated_epsilon:g} for propagated labels, and "
        f"{strict.lifetime_update_epsilon:g} for sums."
    )


def shortcuts(schedule: "Schedule") -> list[str]:
    """Return a sentence on the shortcuts of a simulation that real devices must not take."""
    train = schedule.config.train
    clear, simulated = train.aggregate == "ideal", train.randomness == "seeded"
    if not clear and not simulated:
        return []
    return [
        "This was a simulation: "
        + "sums were computed in the clear" * clear
        + " and " * (clear and simulated)
        + "randomness comes from the run seed" * simulated
        + ". The table holds for `aggregate='secure'` with `randomness='system'`."
    ]
