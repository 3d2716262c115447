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

PROPAGATED, SUMS, CALIBRATION = "propagated_labels", "sums", "calibration"
"""Names of the accounts."""
LABEL, FEATURES, RECORD, NORM, EDGE = "label", "features", "record", "norm", "edge"
QUESTIONS = (LABEL, FEATURES, RECORD, NORM, EDGE)
"""Of which μ² is kept: another label, where sums see it; other features; another record; zeros in
place of the vectors; one edge more or less, at one of its ends."""
ACCOUNTS = {PROPAGATED: 1, SUMS: len(QUESTIONS), CALIBRATION: 1}
"""How many amounts a charge of each account has."""
ENDS = {EDGE: 2.0}
"""By which factor a change at one end is less than the whole change."""
LIMITED = (RECORD, EDGE)


def propagated_label_charge(strict: StrictSettings) -> Charge:
    """What a device that sends propagated labels is charged for all of them, in every run."""
    epsilon, limit = (
        strict.propagated_labels * strict.propagated_epsilon,
        strict.lifetime_propagated_epsilon,
    )
    return Charge(
        name=PROPAGATED,
        amounts=(epsilon,),
        limits=(limit,),
        words=f"propagated labels of ε = {epsilon:g} would exceed their lifetime limit ε = {limit:g}",
        advice="lower their ε, or raise `lifetime_propagated_epsilon`",
    )


def sum_charge(strict: StrictSettings, mu: Mapping[str, float]) -> Charge:
    """What a device is charged for all sums of a run.

    Args:
        mu: by question, of one run; at one end of an edge.
    """
    most, delta = strict.lifetime_update_epsilon, strict.update_delta
    whole = mu_for(most, delta) ** 2 if math.isfinite(most) else math.inf
    limits = {name: whole / ENDS.get(name, 1.0) ** 2 for name in LIMITED}
    return Charge(
        name=SUMS,
        amounts=tuple(mu.get(name, 0.0) ** 2 for name in QUESTIONS),
        limits=tuple(limits.get(name, math.inf) for name in QUESTIONS),
        words=f"sums of ε = {strict.update_epsilon:g} would exceed their lifetime limit "
        f"ε = {most:g} at δ = {delta:g}",
        advice="lower `update_epsilon`, or raise `lifetime_update_epsilon`",
    )


FOR_LIFE = ", for life"
"""Ends the name of a column that counts all runs with a book."""

NEWLY = "newly spent in this run"
"""The row of what a run adds to a book's accounts; for life, of what they have."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Lives:
    """What devices have spent in all runs with their book, [devices] each."""

    label: Doubles = field(repr=False)
    """ε of releases: the largest of each label, added up over labels."""
    propagated_labels: Doubles = field(repr=False)
    """ε of propagated labels."""
    squares: dict[str, Doubles] = field(repr=False)
    """μ² of sums, for each question."""
    answers: Ints = field(repr=False)
    """Answers about links."""


class Disclosed(NamedTuple):
    """The largest of any device of a group."""

    label: float
    """ε of releases."""
    propagated_labels: float
    """ε of propagated labels, of one device."""
    mu: Mapping[str, float]
    """Of sums, for each question; at one end of an edge."""
    answers: int = 0
    """About links."""

    @staticmethod
    def of_lives(lives: Lives, group: Flags) -> "Disclosed":
        """Of some devices, in all runs with their book."""
        squares = {name: float(lives.squares[name][group].max(initial=0)) for name in QUESTIONS}
        return Disclosed(
            label=float(lives.label[group].max(initial=0)),
            propagated_labels=float(lives.propagated_labels[group].max(initial=0)),
            mu={name: math.sqrt(square) for name, square in squares.items()},
            answers=int(np.max(lives.answers[group], initial=0)),
        )


class BookView(NamedTuple):
    """What a table of guarantees says of a book, for each group of devices."""

    life: Mapping[str, Disclosed]
    newly: Mapping[str, float]
    """ε that the group's labels cost in this run: the largest of any device."""


def with_life(
    rows: Mapping[str, tuple[str, ...]], life: Mapping[str, tuple[str, ...]], columns: list[str]
) -> list[dict[str, str]]:
    """The rows of a table: what is about, the columns of the run, and those for life, if any."""
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
    """Three digits, rounded up: a guarantee is never printed smaller than it is."""
    if number == 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(number)) - 2)
    return f"{math.ceil(number / step - 1e-9) * step:g}"  # 1e-9 of the last digit: float dust


def round_up(number: float) -> int:
    """Two digits, rounded up: an estimate of how many would do."""
    step = 10.0 ** max(0, math.floor(math.log10(max(1.0, number))) - 1)
    return round(math.ceil(number / step) * step)


def parties(schedule: "Schedule") -> str:
    """Against whom figures hold: how many may collude or be missing, as the noise assumes it."""
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
    """A sentence on what no figure covers."""
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


def variants(schedule: "Schedule") -> list[str]:
    """A sentence on the control, where there is one."""
    if not schedule.config.train.control:
        return []
    return [
        "The control is an experiment of a simulation, with randomness of its own: its sums are "
        "outside "
        "this table and outside any book, and publishing its result too would cost as much again."
    ]


def life_of_runs(strict: StrictSettings) -> str:
    """A sentence on columns for life."""
    return (
        "Columns for life count what is seen in all runs with this book, the largest of any device "
        "that now has the role; a randomized label that is sent again is seen again, and costs "
        "nothing new. "
        f"Limits for life are ε = {strict.lifetime_epsilon:g} of labels, "
        f"{strict.lifetime_propagated_epsilon:g} of propagated labels, and "
        f"{strict.lifetime_update_epsilon:g} "
        "of sums."
    )


def shortcuts(schedule: "Schedule") -> list[str]:
    """A sentence on what a simulation did that real devices must not do; none if it did nothing."""
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
