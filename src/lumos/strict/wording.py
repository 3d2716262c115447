"""Words and figures that the tables of promises of both tasks share."""

import math

from lumos.strict.settings import StrictSettings
from lumos.strict.stages import Schedule
from lumos.training.texts import NO_PROMISE

NONE = NO_PROMISE
NOTHING = "nothing"


def up(number: float) -> str:
    """Three digits, rounded up: a promise is never printed smaller than it is."""
    if number == 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(number)) - 2)
    return f"{math.ceil(number / step - 1e-9) * step:g}"  # 1e-9 of the last digit: float dust


def round_up(number: float) -> int:
    """Two digits, rounded up: an estimate of how many would do."""
    step = 10.0 ** max(0, math.floor(math.log10(max(1.0, number))) - 1)
    return round(math.ceil(number / step) * step)


def parties(schedule: Schedule) -> str:
    """Against whom figures hold: how many may collude or be missing, as the noise assumes it."""
    everybody = "Figures hold against neighbours, strangers and the coordinator together"
    if not schedule.noisy:
        return everybody
    updates = schedule.config.updates
    missing = max(updates.dropped, 1 - (updates.minimum or schedule.devices) / schedule.devices)
    return (
        f"{everybody}, with whom up to {100 * updates.corrupt:g} % of the devices collude, while "
        f"{100 * missing:.3g} % add no noise"
    )


def public(schedule: Schedule, facts: str, learnt: str) -> str:
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


def arms(schedule: Schedule) -> list[str]:
    """A sentence on the control, where there is one."""
    if not schedule.config.train.control:
        return []
    return [
        "The control is an experiment of a simulation, with coins of its own: its sums are outside "
        "this table and outside any book, and publishing its result too would cost as much again."
    ]


def life_of_runs(strict: StrictSettings) -> str:
    """A sentence on columns for life."""
    return (
        "Columns for life count what is seen in all runs with this book, the largest of any device "
        "that now has the role; a symbol that is sent again is seen again, and costs nothing new. "
        f"Limits for life are ε = {strict.lifetime_epsilon:g} of labels, "
        f"{strict.lifetime_opinion_epsilon:g} of opinions, and {strict.lifetime_update_epsilon:g} "
        "of sums."
    )


def shortcuts(schedule: Schedule) -> list[str]:
    """A sentence on what a simulation did that real devices must not do; none if it did nothing."""
    train = schedule.config.train
    clear, simulated = train.aggregate == "ideal", train.coins == "simulated"
    if not clear and not simulated:
        return []
    return [
        "This was a simulation: "
        + "sums were computed in the clear" * clear
        + " and " * (clear and simulated)
        + "coins come from the run seed" * simulated
        + ". The table holds for `aggregate='secure'` with `coins='system'`."
    ]
