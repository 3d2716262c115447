"""The table of promises of `link`: what is guaranteed about what, against whom.

A device's symbol is in its neighbours' updates, and so, behind noise, in the weights. So whoever
sees the weights learns about a device's features and label from its own updates, (ε_u, δ), and from
its symbol, ε: together (ε + ε_u, δ). The task `link` uses no label; it promises nothing about
degrees and edges, because predicting edges is its purpose.
"""

import math

from lumos.exchange.ledger_report import LedgerReport
from lumos.strict.link_schedule import CODEBOOK, LinkSchedule
from lumos.strict.wording import NONE, shortcuts, up

Cells = tuple[str, str, str, str]
WHO = ("one neighbour", "colluding neighbours", "a stranger", "the coordinator", "the broker")


def promises(schedule: LinkSchedule, ledger: LedgerReport) -> list[dict[str, str]]:
    """One row for each kind of private data, one column for each kind of adversary."""
    alone = _with_updates(schedule, ledger.epsilon_per_receiver)
    together = _with_updates(schedule, ledger.epsilon_collusion)
    sealed = f"{NONE}, unless the carrier seals bodies"
    private = (alone, together, alone, alone, sealed)
    degree, edges = _structure()
    label = ("not used",) * len(WHO)
    rows = {
        "features": private,
        "label": label,
        "degree and workload": (*degree, f"{NONE}: it sees how many symbols a device sends"),
        "edges": (*edges, f"{NONE}: it sees who sends symbols to whom"),
        "losses": private,
    }
    return [{"about": about, **dict(zip(WHO, cells, strict=True))} for about, cells in rows.items()]


def _structure() -> tuple[Cells, Cells]:
    """Degree and edges, against all but the broker: to predict edges is to infer them."""
    hint = f"{NONE}: answers disclose much of it, measured in docs/strict.md"
    sums = f"{NONE}: it is in the updates of all neighbours"
    guess = f"{NONE}: to predict an edge is to infer it, measured in docs/strict.md"
    updates = f"{NONE}: the updates of both ends depend on it"
    return (hint, hint, hint, sums), (guess, guess, guess, updates)


def reading(schedule: LinkSchedule) -> str:
    """How to read the table, and where a simulation falls short of it."""
    return " ".join(
        [
            "Nothing left a device through the door `open`.",
            "(ε, δ): the symbol is protected for any two inputs, the updates for a device's data "
            "in the sums against nothing in their place. This is per run: several runs add up.",
            *shortcuts(schedule),
        ]
    )


def caution(schedule: LinkSchedule, width: int) -> str:
    """A warning where noise drowns the sums before the release; empty where it does not.

    A sum of vectors has a norm of at most trainers · C, its noise one of about σ · C · √width.
    """
    noise = schedule.noise(CODEBOOK)
    if noise is None or noise.sigma * math.sqrt(width) < schedule.devices:
        return ""
    return (
        f"{schedule.devices:,} devices are too few for {width:,} weights under "
        "this noise; more devices, fewer features or a larger `update_epsilon` would help"
    )


def _with_updates(schedule: LinkSchedule, epsilon: float) -> str:
    spent = schedule.spent()
    if spent is not None:
        return f"({up(epsilon + spent[0])}, {spent[1]})"
    exact = {
        "none": "exact sums show single holders",
        "holders": "exact sums, features of few holders left out",
        "projection": "exact sums of mixed features",
    }[schedule.strict.protect]
    return f"ε = {up(epsilon)} by the symbol; {NONE} by the weights: {exact}"
