"""What a run promises about its devices, or what it exposed."""

import re

from lumos.report.page import Block, Section, Table, Text
from lumos.runs.run import Run


def section(run: Run) -> Section:
    """The table of promises, and the run's own words on what it gave away."""
    if not run.promises:
        return Section("What was exposed", [Text(run.model.exposed)])
    blocks: list[Block] = [
        _promises(run.promises),
        Text(
            "(ε, δ): whatever someone sees, it speaks for one version of a device's data over "
            "another by a factor of at most e^ε, up to a chance of δ. e² is 7 and e¹⁰ is 22,000: "
            "the smaller, the stronger the promise. Adversaries are curious but follow the "
            "protocol; up to 10 % of the devices may collude with the coordinator, whichever they "
            "are, if they do so before the masks of the run are drawn."
        ),
        Text(run.model.exposed),
    ]
    return Section("What is promised", blocks)


def _unbroken(cell: str) -> str:
    """A pair (ε, δ) stays on one line."""
    return re.sub(r"(\([^\s,()]+,) ([^\s,()]+\))", "\\1\N{NO-BREAK SPACE}\\2", cell)


def _promises(promises: list[dict[str, str]]) -> Table:
    who = [name for name in promises[0] if name != "about"]
    alike: dict[tuple[str, ...], list[str]] = {}
    for row in promises:  # equal promises share a row
        alike.setdefault(tuple(row[name] for name in who), []).append(row["about"])
    return Table(
        ["about", *who],
        [[", ".join(about), *map(_unbroken, cells)] for cells, about in alike.items()],
        "What is promised about a device, and against whom",
        stacked=True,
    )
