"""The table of promises: what is guaranteed about what, against whom. No cell claims more.

A device's symbol is in its neighbours' updates, and so, behind noise, in the weights. So whoever
sees the weights learns about a device's features and label from its own updates, (ε_u, δ), and from
its symbol, ε: together (ε + ε_u, δ). The task `link` uses no label; it promises nothing about
degrees and edges, because predicting edges is its purpose.
"""

import math

from lumos.exchange.ledger_report import LedgerReport
from lumos.strict.schedule import Schedule

NONE = "no promise"
Cells = tuple[str, str, str, str]
WHO = ("one neighbour", "colluding neighbours", "a stranger", "the coordinator", "the broker")


def promises(schedule: Schedule, ledger: LedgerReport) -> list[dict[str, str]]:
    """One row for each kind of private data, one column for each kind of adversary."""
    alone = _with_updates(schedule, ledger.epsilon_per_receiver)
    together = _with_updates(schedule, ledger.epsilon_collusion)
    sealed = f"{NONE}, unless the carrier seals bodies"
    private = (alone, together, alone, alone, sealed)
    degree, edges = _structure_of_links() if schedule.task == "link" else _structure(schedule)
    label = private if schedule.task == "classify" else ("not used",) * len(WHO)
    rows = {
        "features": private,
        "label": label,
        "degree and workload": (*degree, f"{NONE}: it sees how many symbols a device sends"),
        "edges": (*edges, f"{NONE}: it sees who sends symbols to whom"),
        "losses": private,
    }
    return [{"about": about, **dict(zip(WHO, cells, strict=True))} for about, cells in rows.items()]


def _structure(schedule: Schedule) -> tuple[Cells, Cells]:
    """Degree and edges, for classify: against all but the broker."""
    edge = _edge(schedule)
    if schedule.hops > 1:
        hint = f"{NONE}: relayed symbols disclose some of it, measured for krr in docs/strict.md"
        return (hint,) * 4, (hint,) * 4
    weights = f"{NONE} by the weights: it is in the updates of all neighbours; each edge {edge}"
    return (
        (
            f"no message to it depends on it; {weights}",
            f"how many of them are neighbours; {weights}",
            weights,
            weights,
        ),
        (f"its own; of others {edge}", f"their own; of others {edge}", edge, edge),
    )


def _structure_of_links() -> tuple[Cells, Cells]:
    """The same for link: to predict edges is to infer them."""
    hint = f"{NONE}: answers disclose much of it, measured in docs/strict.md"
    sums = f"{NONE}: it is in the updates of all neighbours"
    guess = f"{NONE}: to predict an edge is to infer it, measured in docs/strict.md"
    updates = f"{NONE}: the updates of both ends depend on it"
    return (hint, hint, hint, sums), (guess, guess, guess, updates)


def reading(schedule: Schedule) -> str:
    """How to read the table, and where a simulation falls short of it."""
    config = schedule.config
    sentences = [
        "Nothing left a device through the door `open`.",
        "(ε, δ): the symbol is protected for any two inputs, the updates for a device's data in "
        "the sums against nothing in their place. This is per run: several runs add up.",
    ]
    if config.train.aggregate == "ideal" or config.train.coins == "simulated":
        sentences.append(
            "This was a simulation: "
            + "sums were computed in the clear" * (config.train.aggregate == "ideal")
            + " and " * (config.train.aggregate == "ideal" and config.train.coins == "simulated")
            + "coins come from the run seed" * (config.train.coins == "simulated")
            + ". The table holds for `aggregate='secure'` with `coins='system'`."
        )
    return " ".join(sentences)


def caution(schedule: Schedule, width: int) -> str:
    """A warning where noise drowns the sums before the release; empty where it does not.

    A sum of vectors has a norm of at most trainers · C, its noise one of about σ · C · √width.
    """
    noise = schedule.noise(schedule.stages[0])
    if noise is None or noise.sigma * math.sqrt(width) < schedule.training_devices:
        return ""
    return (
        f"{schedule.training_devices:,} training devices are too few for {width:,} weights under "
        "this noise; more devices, fewer features or a larger `update_epsilon` would help"
    )


def up(number: float) -> str:
    """Three digits, rounded up: a promise is never printed smaller than it is."""
    if number == 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(number)) - 2)
    return f"{math.ceil(number / step - 1e-9) * step:g}"  # 1e-9 of the last digit: float dust


def _with_updates(schedule: Schedule, epsilon: float) -> str:
    spent = schedule.spent()
    if spent is not None:
        return f"({up(epsilon + spent[0])}, {spent[1]})"
    exact = {
        "none": "exact sums show single holders",
        "holders": "exact sums, features of few holders left out",
        "projection": "exact sums of mixed features",
    }[schedule.strict.protect]
    return f"ε = {up(epsilon)} by the symbol; {NONE} by the weights: {exact}"


def _edge(schedule: Schedule) -> str:
    spent = schedule.spent_on_edge()
    return NONE if spent is None else f"({up(spent[0])}, {spent[1]})"
