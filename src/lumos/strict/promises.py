"""The table of promises: what is guaranteed about what, against whom. No cell claims more."""

from lumos.exchange.ledger import LedgerReport
from lumos.strict.plan import Plan

NONE = "no promise"
WHO = ("one neighbour", "colluding neighbours", "a stranger", "the coordinator", "the broker")


def promises(plan: Plan, ledger: LedgerReport) -> list[dict[str, str]]:
    """One row for each kind of private thing, one column for each kind of adversary."""
    epsilon = f"ε = {ledger.epsilon_per_receiver:g}, given the weights"
    together = f"ε = {ledger.epsilon_collusion:g}, given the weights"
    spent = plan.spent()
    if spent is not None:
        sums = f"({spent[0]:.3g}, {spent[1]:g}) from the weights"
    elif plan.strict.protect == "none":
        sums = "sums only; a sum over one holder shows it: no promise"
    else:
        sums = "sums only; no promise about what exact sums tell"
    rows = [
        (
            "features",
            f"{epsilon}; {sums}",
            f"{together}; {sums}",
            sums,
            sums,
            "who talks to whom, when, how much; bodies are the carrier's to seal",
        ),
        ("label", f"{epsilon}; {sums}", f"{together}; {sums}", sums, sums, "as for features"),
        (
            "degree and workload",
            "nothing is sent that depends on it",
            "how many of them are neighbours",
            sums,
            sums,
            "sees how many symbols a device sends: its degree",
        ),
        (
            "edges",
            "its own",
            "their own; none between others",
            sums,
            sums,
            "sees who sends symbols to whom: all edges",
        ),
        ("losses", sums, sums, sums, sums, "nothing, if bodies are sealed"),
    ]
    return [{"about": about, **dict(zip(WHO, cells, strict=True))} for about, *cells in rows]
