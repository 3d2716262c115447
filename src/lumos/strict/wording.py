"""Words and figures that the tables of promises of both tasks share."""

import math

from lumos.strict.schedule import Schedule

NONE = "no promise"


def up(number: float) -> str:
    """Three digits, rounded up: a promise is never printed smaller than it is."""
    if number == 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(number)) - 2)
    return f"{math.ceil(number / step - 1e-9) * step:g}"  # 1e-9 of the last digit: float dust


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
