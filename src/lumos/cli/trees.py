"""`lumos trees`: decide who carries which edge, and show what it cost."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter
from rich.table import Table

from lumos.cli.common import Common, console, print_json, progress_bar, say
from lumos.device.coins import CoinSource
from lumos.graph import Graph, ReadOptions, load
from lumos.graph.options import NOT_ASKED
from lumos.memory import peak_rss_mb
from lumos.trees.balance import Balanced, balance
from lumos.trees.estimate import expected_comparisons, expected_seconds
from lumos.trees.plot import check_plot, plot_workloads
from lumos.trees.settings import TreeSettings

COMMON, SETTINGS, REFUSE = Common(), TreeSettings(), ReadOptions()

_LONG = 20.0  # seconds after which a run is announced


def trees(
    graph: str,
    /,
    *,
    settings: Annotated[TreeSettings, Parameter(name="*")] = SETTINGS,
    reading: Annotated[ReadOptions, Parameter(name="*")] = REFUSE,
    coins: CoinSource = "simulated",
    plot: Path | None = None,
    common: Common = COMMON,
) -> None:
    """Balance the trees of a federation: decide who carries which edge.

    Parameters
    ----------
    graph
        demo, demo:60, facebook, lastfm, twitch-ENGB, …, or a path.
    coins
        Device secrets from the run seed (a run can be repeated) or from the operating system.
    plot
        File for a picture of the workloads (.png, .svg or .pdf).
    """
    if plot is not None:
        check_plot(plot)
    loaded = load(graph, data_dir=common.data_dir, features=False, **vars(reading))
    announce(loaded, settings)
    with progress_bar("balancing") as bar:
        balanced = balance(
            loaded,
            settings,
            seed=common.seed,
            shards=common.shards,
            coins=coins,
            progress=bar,
        )
    result = summary(balanced, common)
    if plot is not None:
        plot_workloads(
            plot,
            loaded.degrees,
            balanced.workload,
            result["lower_bound"],
            f"{result['graph']}: {loaded.devices:,} devices, {loaded.edges:,} edges",
            f"{settings.balancer}, comparisons {balanced.compare}",
        )
        result["plot"] = str(plot)
    if common.json:
        print_json(result)
    else:
        _show(result, balanced)


def summary(balanced: Balanced, common: Common) -> dict[str, Any]:
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
        "coins": balanced.coins,
        "seed": common.seed,
        "shards": common.shards,
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
    """Announce a long run of secret comparisons: its expected time, and the alternative."""
    seconds = expected_seconds(graph, settings)
    if seconds > _LONG:
        say(
            f"About {expected_comparisons(graph, settings):,} secret comparisons, roughly "
            f"{_duration(seconds)} here. --compare ideal computes them in the clear (simulation "
            "only), with the same counts."
        )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _show(result: dict[str, Any], balanced: Balanced) -> None:
    out = console()
    graph, ledger = balanced.graph, balanced.ledger
    out.print(
        f"{result['graph']}: {graph.devices:,} devices, {graph.edges:,} edges · balancer "
        f"{result['balancer']} · comparisons {result['compare']} · coins {result['coins']}"
    )
    for note in result["notes"]:
        out.print(f"note: {note}")
    doors = Table("topic", "door", "messages", "bytes", "who learns what", box=None)
    for name, line in ledger.topics.items():
        doors.add_row(name, line.door, f"{line.messages:,}", f"{line.bytes:,}", line.learns)
    out.print()
    out.print(doors)
    _show_workloads(result, balanced)
    _show_cost(result, balanced)
    if "plot" in result:
        out.print(f"picture: {result['plot']}")


def _show_workloads(result: dict[str, Any], balanced: Balanced) -> None:
    table = Table("workload (observer)", box=None)
    for name in ("largest", "99 %", "median", "mean"):
        table.add_column(name, justify="right")
    rows = (("without trimming", balanced.graph.degrees), (result["balancer"], balanced.workload))
    for name, workload in rows:
        largest, high, median = np.percentile(workload, [100, 99, 50])
        table.add_row(
            name, f"{largest:,.0f}", f"{high:,.0f}", f"{median:,.0f}", f"{workload.mean():.2f}"
        )
    table.add_row("least possible", f"{result['lower_bound']:,}", "", "", "")
    out = console()
    out.print()
    out.print(table)
    if result["optimal"]:
        out.print(
            f"optimal: the edges among {result['certificate_devices']:,} devices force a workload "
            f"of {result['lower_bound']:,} (certificate checked)"
        )
    else:
        out.print(f"not optimal: {result['max_workload']:,} against {result['lower_bound']:,}")
    out.print(
        f"trimming saves {100 * result['messages_saved_by_trimming']:.1f} % of the messages of an "
        "epoch"
    )
    out.print()


def _show_cost(result: dict[str, Any], balanced: Balanced) -> None:
    ledger = balanced.ledger
    lines = [
        ("comparisons", f"{ledger.comparisons:,} ({result['compare']})"),
        ("messages", f"{ledger.messages:,}"),
        ("bytes", f"{ledger.bytes:,}"),
        ("rounds", f"{ledger.rounds:,}"),
        ("seconds", f"{balanced.seconds:.2f}"),
    ]
    if ledger.comparisons:
        length = ledger.comparison_lengths[-1]
        lines[1:1] = [
            (
                "bits per pair",
                f"mean {ledger.bits_per_pair_mean:.1f}, largest "
                f"{ledger.bits_per_pair_largest:.1f}; log2 of the public bound is {length}",
            ),
            (
                "bits per device",
                f"mean {ledger.device_comparison_bits.mean():.1f}, largest "
                f"{ledger.device_comparison_bits.max():.1f}, over all its peers",
            ),
        ]
    if balanced.history:
        steps = balanced.history
        shown = steps if len(steps) <= 8 else [*steps[:: len(steps) // 7], steps[-1]]
        lines.append(("largest workload", " → ".join(f"{f} (step {t:,})" for t, f in shown)))
    table = Table(show_header=False, box=None)
    for name, value in lines:
        table.add_row(name, value)
    console().print(table)
