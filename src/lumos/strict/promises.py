"""The table of promises: what is guaranteed about what, against whom. No cell claims more."""

from lumos.exchange.ledger import LedgerReport
from lumos.strict.plan import Plan

NONE = "no promise"
WHO = ("one neighbour", "colluding neighbours", "a stranger", "the coordinator", "the broker")


def promises(plan: Plan, ledger: LedgerReport) -> list[dict[str, str]]:
    """One row for each kind of private thing, one column for each kind of adversary."""
    epsilon = f"ε = {ledger.epsilon_per_receiver:g} of this run, given the weights"
    together = f"ε = {ledger.epsilon_collusion:g} of this run, given the weights"
    sums, edge = _sums(plan, plan.spent()), _sums(plan, plan.spent_on_edge())
    degree = "nothing is sent that depends on it"
    colluding_degree, others = "how many of them are neighbours", "their own; none between others"
    if plan.strict.hops > 1:
        hint = f"{NONE}: a hint in every relayed symbol, measured in docs/strict.md"
        degree, colluding_degree, others = hint, hint, hint
    rows = [
        (
            "features",
            f"{epsilon}; {sums}",
            f"{together}; {sums}",
            sums,
            sums,
            f"{NONE}, unless the carrier seals bodies",
        ),
        (
            "label",
            f"{epsilon}; {sums}",
            f"{together}; {sums}",
            sums,
            sums,
            f"{NONE}, unless the carrier seals bodies",
        ),
        (
            "degree and workload",
            f"{degree}; {sums}",
            f"{colluding_degree}; {sums}",
            sums,
            sums,
            f"{NONE}: it sees how many symbols a device sends",
        ),
        (
            "edges",
            f"its own; of others {edge}",
            f"{others}; {edge}",
            edge,
            edge,
            f"{NONE}: it sees who sends symbols to whom",
        ),
        ("losses", sums, sums, sums, sums, f"{NONE}, unless the carrier seals bodies"),
    ]
    return [{"about": about, **dict(zip(WHO, cells, strict=True))} for about, *cells in rows]


def _sums(plan: Plan, spent: tuple[float, float] | None) -> str:
    """What the published weights tell."""
    if spent is not None:
        return f"({spent[0]:.3g}, {spent[1]:g}) by the weights"
    if plan.strict.protect == "none":
        return f"{NONE} by the weights: exact sums show single holders"
    return f"{NONE} by the weights: exact sums, features of few holders hidden"
