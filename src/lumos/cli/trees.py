"""`lumos trees`: assign every edge to one of its two devices, and show the cost."""

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter
from rich.table import Table

from lumos.cli.common import Common, console, placed, print_json, say
from lumos.cli.options import AS_IT_IS, Reading, given, options_of
from lumos.cli.screen import paragraph
from lumos.crypto.groups import NO_GROUP
from lumos.device.randomness import RandomnessSource
from lumos.errors import UsageError
from lumos.graph import Graph, load
from lumos.graph.io import NOT_ASKED
from lumos.machine import peak_rss_mb
from lumos.trees.balance import Balanced, balance, expected_comparisons
from lumos.trees.balancers import TreeSettings

if TYPE_CHECKING:
    Options = Any
else:
    Options = options_of("TreeOptions", TreeSettings)

COMMON, NOTHING = Common(), Options()

_MANY = 20_000  # secret comparisons from which on a run is announced: some 20 s on one core


def trees(
    graph: Annotated[str, placed("graph")],
    /,
    *,
    options: Annotated[Options, Parameter(name="*")] = NOTHING,
    reading: Annotated[Reading, Parameter(name="*")] = AS_IT_IS,
    randomness: Annotated[RandomnessSource, placed("randomness")] = "seeded",
    shards: Annotated[int, placed("shards")] = 1,
    common: Common = COMMON,
) -> None:
    """Balance the trees of a federation: assign every edge to one of its two devices.

    Parameters
    ----------
    graph
        demo, demo:60, facebook, lastfm, twitch-ENGB, …, or a path.
    randomness
        Device secrets from the run seed (a run can be repeated) or from the operating system.
    shards
        Number of parts in which devices are simulated; the result is the same.
    """
    settings = _asked(given(options))
    loaded = load(graph, data_dir=common.data_dir, features=False, **given(reading))
    announce(loaded, settings)
    balanced = balance(
        loaded,
        settings,
        seed=common.seed,
        shards=shards,
        randomness=randomness,
        progress=True,
    )
    result = summary(balanced, common.seed, shards)
    if common.json:
        print_json(result)
    else:
        _show(result, balanced)


def _asked(settings: dict[str, Any]) -> TreeSettings:
    """The settings that were given.

    Raises:
        UsageError: one of them cannot have an effect.
    """
    made = TreeSettings(**settings)
    for name in settings:
        if reason := made.ignored(name):
            raise UsageError(f"`{name}` has no effect with {reason}; leave it out")
    return made


def summary(balanced: Balanced, seed: int, shards: int) -> dict[str, Any]:
    """Everything that `--json` prints. Workload figures are the observer's."""
    graph, ledger = balanced.graph, balanced.ledger
    bound, proof = balanced.lower_bound(), balanced.certificate()
    optimal = balanced.max_workload == bound
    return {
        "graph": graph.name,
        "devices": graph.devices,
        "edges": graph.edges,
        "balancer": balanced.settings.balancer,
        "compare": balanced.compare,
        "group": ledger.group,
        "randomness": balanced.randomness,
        "seed": seed,
        "shards": shards,
        "max_workload": balanced.max_workload,
        "mean_workload": round(float(balanced.workload.mean()), 4),
        "max_degree": int(graph.degrees.max(initial=0)),
        "lower_bound": bound,
        "optimal": optimal,
        "certificate_devices": len(proof) if optimal else None,
        "messages_saved_by_trimming": _saved(balanced),
        "comparisons": ledger.comparisons,
        "messages": ledger.messages,
        "bytes": ledger.bytes,
        "rounds": ledger.rounds,
        "seconds": round(balanced.seconds, 3),
        "peak_rss_mb": peak_rss_mb(),
        "history": balanced.history,
        "ledger": ledger.totals(),
        "notes": [note for note in graph.notes if note != NOT_ASKED],
    }


def _saved(balanced: Balanced) -> float:
    """1 - Σ workload / 2|E|: what trimming saves of the messages per epoch (errata 8b)."""
    both = 2 * balanced.graph.edges
    return round(1 - float(balanced.workload.sum()) / both, 4) if both else 0.0


def announce(graph: Graph, settings: TreeSettings) -> None:
    """Announce a long run of secret comparisons, and the alternative."""
    expected = expected_comparisons(graph, settings) if settings.compare == "secure" else 0
    if expected > _MANY:
        say(
            f"About {expected:,} secret comparisons. --compare ideal computes them in the clear "
            "(simulation only), with the same counts."
        )


def _show(result: dict[str, Any], balanced: Balanced) -> None:
    """Print the answer, the workloads, and what it cost."""
    screen = console()
    paragraph(screen, _answer(result))
    screen.print()
    screen.print(_workloads(result, balanced))
    screen.print()
    ledger = balanced.ledger
    paragraph(
        screen,
        f"{result['balancer']} took {ledger.comparisons:,} comparisons ({_how(result)}), "
        f"{ledger.messages:,} messages and {balanced.seconds:.1f} s; "
        f"randomness {result['randomness']}.",
    )


def _how(result: dict[str, Any]) -> str:
    """Return the comparison backend and its group; an ideal one is counted as that group's."""
    if result["group"] == NO_GROUP:
        return str(result["compare"])
    booked = "booked as " if result["compare"] == "ideal" else ""
    return f"{result['compare']}, {booked}{result['group']}"


def _answer(result: dict[str, Any]) -> str:
    """One sentence: the largest workload, what it would be otherwise, and what is possible."""
    bound = result["lower_bound"]
    least = (
        f"no assignment does better: the edges among {result['certificate_devices']:,} devices "
        f"force {bound:,} (certificate checked)"
        if result["optimal"]
        else f"{bound:,} is possible"
    )
    return (
        f"On {result['graph']}, the busiest device carries {result['max_workload']:,} edges "
        f"instead of {result['max_degree']:,}; {least}. Trimming saves "
        f"{100 * result['messages_saved_by_trimming']:.1f} % of the messages of an epoch."
    )


def _workloads(result: dict[str, Any], balanced: Balanced) -> Table:
    table = Table("workload (observer)", box=None, header_style="")
    for name in ("largest", "99 %", "median", "mean"):
        table.add_column(name, justify="right")
    rows = (("without trimming", balanced.graph.degrees), (result["balancer"], balanced.workload))
    for name, workload in rows:
        largest, high, median = np.percentile(workload, [100, 99, 50])
        table.add_row(
            name, f"{largest:,.0f}", f"{high:,.0f}", f"{median:,.0f}", f"{workload.mean():.2f}"
        )
    table.add_row("least possible", f"{result['lower_bound']:,}", "", "", "")
    return table
