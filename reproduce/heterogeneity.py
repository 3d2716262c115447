"""What balanced trees save of the time of an epoch: `docs/results/heterogeneity.json` as tables.

`benchmarks/heterogeneity.py` measures it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reproduce import reported
from reproduce.claims import Line

KINDS = ("greedy", "mcmc", "optimal")
"""Balancers beside `none`, in the order of columns."""
TASKS = ("classify", "link")
COMMAND = "python benchmarks/heterogeneity.py"
SCENARIOS = {
    "one machine": "one machine computes all trees",
    "branches, equal": "work proportional to branches",
    "branches, slow": "work proportional to branches, 10 % of devices 5 times slower",
    "tree network, equal": "tree network as timed",
    "tree network, slow": "tree network as timed, 10 % slower",
    "protocol, equal": "whole protocol",
    "protocol, slow": "whole protocol, 10 % slower",
    "protocol, slow, links": "whole protocol, 10 % slower, links",
    "protocol, slow, ticks": "whole protocol, 10 % slower, ticks",
    "protocol, slow, links, ticks": "whole protocol, 10 % slower, links and ticks",
}
"""By name in the file, as tables call them."""
PARTS = (("federations", "demo:60"), ("federations", "facebook:100"), ("whole", "facebook"),
         ("one machine", "facebook"), ("whole", "lastfm"), ("one machine", "lastfm"))  # fmt: skip
GRAPHS = {
    "demo:60": "demo:60",
    "facebook:100": "100 devices of Facebook",
    "facebook": "Facebook",
    "lastfm": "LastFM",
}
CLAIMS = (
    ("one machine", "{graph}", "one machine"),
    ("whole", "{graph}", "branches, slow"),
    ("whole", "{graph}", "tree network, slow"),
    ("federations", "{graph}:100", "protocol, slow"),
    ("federations", "{graph}:100", "protocol, slow, links, ticks"),
)
"""Part, graph and scenario of each line in the table of claims."""

Found = Mapping[str, Any]


def scenarios(records: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the scenarios that were measured."""
    one = records["none"][0]
    return [*one.get("branches", ()), *one["seconds"]]


def times(records: Mapping[str, Sequence[Any]], kind: str, scenario: str) -> list[float]:
    """Return the time of an epoch in each repetition, in seconds or in branches."""
    unit = "branches" if scenario.startswith("branches") else "seconds"
    return [one[unit][scenario] for one in records[kind]]


def saved(records: Mapping[str, Sequence[Any]], kind: str, scenario: str) -> list[float]:
    """Return how much less than without balancing that is in each repetition, in %."""
    pairs = zip(times(records, kind, scenario), times(records, "none", scenario), strict=True)
    return [100 * (1 - time / before) for time, before in pairs]


def rows(found: Found, task: str) -> list[list[str]]:
    """Return the table of a task: graph, scenario, time without balancing, savings ± error."""
    made = []
    for part, graph in PARTS:
        records = found.get(part, {}).get(graph, {}).get(task)
        for scenario, name in SCENARIOS.items():
            if records is None or scenario not in scenarios(records):
                continue
            cells = [GRAPHS[graph], name, shown_time(times(records, "none", scenario), scenario)]
            made.append([*cells, *(shown_saving(saved(records, kind, scenario)) for kind in KINDS)])
    return made


def shown_time(values: Sequence[float], scenario: str) -> str:
    """Return the mean as tables show it."""
    if scenario.startswith("branches"):
        return f"{float(np.mean(values)):,.0f} branches"
    mean = 1e3 * float(np.mean(values))
    return f"{mean:,.0f} ms" if mean >= 100 else f"{mean:.3g} ms"


def shown_saving(values: Sequence[float]) -> str:
    """Return mean and standard error as tables show them."""
    shown = f"{np.mean(values) + 0.0:.1f}".replace("-0.0", "0.0")
    if len(values) < 2:
        return f"{shown} %"
    return f"{shown} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.1f} %"


def lines(found: Found, graph: str, paper_name: str) -> list[Line]:
    """Return the claims about the time of an epoch, with what was measured."""
    theirs = tuple(
        number
        for task in TASKS
        for claim in reported.CLAIMS
        if (claim.figure, claim.measure, claim.task) == ("cost", reported.TIME_SAVED, task)
        and (number := claim.of(paper_name)) is not None
    )
    made = []
    for part, where, scenario in CLAIMS:
        by_task = found.get(part, {}).get(where.format(graph=graph), {})
        if not by_task:
            continue
        columns = {
            column: tuple(
                float(np.mean(saved(by_task[task], kind, scenario))) if task in by_task else None
                for task in TASKS
            )
            for column, kind in (("literal", "mcmc"), ("corrected", "optimal"))
        }
        place = GRAPHS[where.format(graph=graph)]
        made.append(
            Line(
                figure="cost",
                graph=graph,
                claim=f"epoch time saved, %, classify / link: {SCENARIOS[scenario]}, {place} "
                "(corrected: `optimal`)",
                paper=theirs,
                literal=columns["literal"],
                corrected=columns["corrected"],
                shown="{:.2f}",
                signed=False,
                counted=("literal",),
                run=COMMAND,
            )
        )
    return made
