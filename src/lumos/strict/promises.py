"""The table of promises: what is guaranteed about what, against whom. No cell claims more.

A device's symbol is in what its neighbours learn, and so, behind noise, in the weights. So whoever
sees the weights learns of a device's features and label what its own updates tell, (ε_u, δ), and
what its symbol tells, ε: together (ε + ε_u, δ).
"""

import math

from lumos.exchange.ledger import LedgerReport
from lumos.strict.plan import Plan

NONE = "no promise"
WHO = ("one neighbour", "colluding neighbours", "a stranger", "the coordinator", "the broker")


def promises(plan: Plan, ledger: LedgerReport) -> list[dict[str, str]]:
    """One row for each kind of private thing, one column for each kind of adversary."""
    alone = _with_updates(plan, ledger.epsilon_per_receiver)
    together = _with_updates(plan, ledger.epsilon_collusion)
    edge = _edge(plan)
    relayed = plan.strict.hops > 1
    hint = f"{NONE}: a hint in every relayed symbol, measured in docs/strict.md"
    weights = f"{NONE} by the weights: it is in the updates of all neighbours; each edge {edge}"
    sealed = f"{NONE}, unless the carrier seals bodies"
    rows = [
        ("features", alone, together, alone, alone, sealed),
        ("label", alone, together, alone, alone, sealed),
        (
            "degree and workload",
            hint if relayed else f"no message to it depends on it; {weights}",
            hint if relayed else f"how many of them are neighbours; {weights}",
            hint if relayed else weights,
            hint if relayed else weights,
            f"{NONE}: it sees how many symbols a device sends",
        ),
        (
            "edges",
            hint if relayed else f"its own; of others {edge}",
            hint if relayed else f"their own; of others {edge}",
            hint if relayed else edge,
            hint if relayed else edge,
            f"{NONE}: it sees who sends symbols to whom",
        ),
        ("losses", alone, together, alone, alone, sealed),
    ]
    return [{"about": about, **dict(zip(WHO, cells, strict=True))} for about, *cells in rows]


def reading(plan: Plan) -> str:
    """How to read the table, and what of it a simulation does not do."""
    config = plan.config
    said = [
        "(ε, δ): the symbol for any two inputs, updates for a device's data in the sums or nothing "
        "in their place; of this run, runs add up."
    ]
    if config.train.aggregate == "ideal" or config.trees.coins == "simulated":
        said.append(
            "This was a simulation: "
            + "sums were computed in the clear" * (config.train.aggregate == "ideal")
            + " and " * (config.train.aggregate == "ideal" and config.trees.coins == "simulated")
            + "coins come from the run seed" * (config.trees.coins == "simulated")
            + ". The table is what --aggregate secure --coins system keeps."
        )
    return " ".join(said)


CHOICES = ("own", "evidence", "backbone")


def caution(plan: Plan, width: int) -> str:
    """A warning where noise drowns the updates of the own encoder.

    A sum of updates has a norm of at most trainers · C, its noise one of about σ · C · √width.
    """
    noise = plan.noise("encoder")
    if noise is None or noise.sigma * math.sqrt(width) < plan.trainers:
        return ""
    return (
        f"{plan.trainers:,} training devices are too few for {width:,} weights under this noise; "
        "more devices, fewer features or a larger --update-epsilon would let them be heard"
    )


def up(number: float) -> str:
    """Three digits, rounded up: a promise is never printed smaller than it is."""
    if number == 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(number)) - 2)
    return f"{math.ceil(number / step - 1e-9) * step:g}"  # 1e-9 of the last digit: float dust


def _with_updates(plan: Plan, epsilon: float) -> str:
    spent = plan.spent()
    if spent is not None:
        return f"({up(epsilon + spent[0])}, {spent[1]})"
    exact = {
        "none": "exact sums show single holders",
        "holders": "exact sums, features of few holders left out",
        "projection": "exact sums of mixed features",
    }[plan.strict.protect]
    return f"ε = {up(epsilon)} by the symbol; {NONE} by the weights: {exact}"


def _edge(plan: Plan) -> str:
    spent = plan.spent_on_edge()
    return NONE if spent is None else f"({up(spent[0])}, {spent[1]})"
