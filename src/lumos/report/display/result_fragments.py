"""Other results in a notebook. The types are those of `lumos.display`, by their name."""

from typing import TYPE_CHECKING, Any

import numpy as np

from lumos.audit.audit_row import AuditReport
from lumos.exchange.ledger_report import LedgerReport
from lumos.graph import Graph
from lumos.report.display.fragment import Cell, drawing, fragment, listed, paragraph, table, title
from lumos.report.distribution import cdf
from lumos.trees.balance import Balanced
from lumos.typing import Ints

if TYPE_CHECKING:
    from lumos.runs.predict import LinkPredictions

_MOST = 20
"""Rows that are shown of a long table."""


def show_graph(graph: Graph) -> str:
    """HTML of a graph."""
    labelled = 0 if graph.labels is None else int((graph.labels >= 0).sum())
    names = ", ".join(graph.classes[:_MOST]) + ", …" * (len(graph.classes) > _MOST)
    rows: list[tuple[str, str | int]] = [
        ("devices", graph.devices),
        ("edges", graph.edges),
        ("features", graph.feature_count or "none"),
        ("classes", graph.class_count or "no labels"),
        ("labelled devices", labelled),
    ]
    about = [f"Classes: {names}"] if names else []
    name = graph.name.strip() or "a graph in memory"
    facts = table(["", "number"], rows)
    return fragment(title("Graph", name), facts, listed([*about, *graph.notes]))


def show_balanced(trees: Balanced) -> str:
    """HTML of balanced trees."""
    degrees = trees.graph.degrees
    rows: list[list[Cell]] = [
        [name, int(load.max(initial=0)), float(load.mean()), _percentile(load, 99)]
        for name, load in (("every neighbour kept", degrees), ("balanced", trees.workload))
    ]
    columns = ["workload", "largest", "mean", "99 % have at most"]
    figure = cdf(
        {"every neighbour kept": degrees, f"after {trees.settings.balancer}": trees.workload},
        title="Workload of the devices",
        x_title="workload: branches of a tree",
    )
    cost = (
        f"{trees.ledger.comparisons:,} comparisons ({trees.compare}), {trees.ledger.messages:,} "
        f"messages, {trees.seconds:.2f} s. The observer of the simulation counted."
    )
    name = trees.graph.name.strip() or "a graph in memory"
    head = title("Balanced", f"{name}, by {trees.settings.balancer}")
    return fragment(head, table(columns, rows), drawing(figure, cost))


def _percentile(load: Ints, percent: int) -> int:
    return int(np.percentile(load, percent, method="inverted_cdf")) if len(load) else 0


def show_measured(measured: Any) -> str:
    """HTML of a baseline (`lumos.baselines.measure.Measured`, which no report may import)."""
    name = measured.graph.name.strip() or "a graph in memory"
    rows = [
        [score.replace("_", " "), f"{value:.4f}"]
        for score, value in measured.metrics.items()
        if isinstance(value, int | float)
    ]
    settings = measured.settings
    head = f"{settings.system} on {name}, {settings.task}, seed {measured.seed}"
    return fragment(
        title("Baseline", head), table(["score", "value"], rows), listed(measured.notes)
    )


def show_audit(report: AuditReport) -> str:
    """HTML of an audit."""
    rows = [
        [row.adversary, row.about, *report.figures(row), report.verdict(row)] for row in report.rows
    ]
    columns = ["adversary", "what is inferred", "found", "without these messages", "claimed", ""]
    name = report.graph.strip() or "a graph in memory"
    words = (
        f"{len(report.claimed)} of {len(report.rows)} rows have a bound that is claimed; "
        f"{len(report.exceeded)} exceed it. Attacks refute a claim or fail to; they prove none."
    )
    head = title("Audit", f"of {name}, profile {report.profile}, seed {report.seed}")
    return fragment(head, paragraph(words), table(columns, rows))


def show_ledger(ledger: LedgerReport) -> str:
    """HTML of a ledger."""
    rows: list[list[Cell]] = [
        [name, line.door, line.messages, line.bytes, line.learns]
        for name, line in ledger.topics.items()
    ]
    columns = ["topic", "door", "messages", "bytes", "who learns what"]
    words = f"{ledger.messages:,} messages, {ledger.bytes:,} bytes, {ledger.rounds:,} rounds"
    return fragment(title("Ledger", words), table(columns, rows))


def show_links(links: "LinkPredictions") -> str:
    """HTML of predictions about pairs: how many, never which."""
    rows: list[tuple[str, str | int]] = [
        ("pairs", len(links.probability)),
        ("answered by the second device", int(links.answered.sum())),
    ]
    if len(links.probability):
        rows.append(("mean probability of an edge", f"{links.probability.mean():.3f}"))
    return fragment(title("Predictions", "about pairs"), table(["", "number"], rows))
