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
    "work by workload, equal": "work proportional to branches",
    "work by workload, slow": "work proportional to branches, 10 % of devices 5 times slower",
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
    ("whole", "{graph}", "work by workload, slow"),
    ("whole", "{graph}", "tree network, slow"),
    ("federations", "{graph}:100", "protocol, slow"),
    ("federations", "{graph}:100", "protocol, slow, links, ticks"),
)
"""Part, graph and scenario of each line in the table of claims."""

Found = Mapping[str, Any]


def seconds(records: Mapping[str, Sequence[Any]], kind: str, scenario: str) -> list[float]:
    """Return the time of an epoch in each repetition."""
    return [one["seconds"][scenario] for one in records[kind]]


def saved(records: Mapping[str, Sequence[Any]], kind: str, scenario: str) -> list[float]:
    """Return how much less than without balancing that is in each repetition, in %."""
    pairs = zip(seconds(records, kind, scenario), seconds(records, "none", scenario), strict=True)
    return [100 * (1 - time / before) for time, before in pairs]


def rows(found: Found, task: str) -> list[list[str]]:
    """Return the table of a task: graph, scenario, time without balancing, savings ± error."""
    made = []
    for part, graph in PARTS:
        records = found.get(part, {}).get(graph, {}).get(task)
        for scenario, name in SCENARIOS.items():
            if records is None or scenario not in records["none"][0]["seconds"]:
                continue
            cells = [GRAPHS[graph], name, _time(seconds(records, "none", scenario))]
            made.append([*cells, *(_saving(saved(records, kind, scenario)) for kind in KINDS)])
    return made


def _time(values: Sequence[float]) -> str:
    mean = 1e3 * float(np.mean(values))
    return f"{mean:,.0f} ms" if mean >= 100 else f"{mean:.3g} ms"


def _saving(values: Sequence[float]) -> str:
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
