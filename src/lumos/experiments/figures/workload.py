"""Workloads with and without tree trimming."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumos.experiments import reported
from lumos.experiments.figures.evaluation import PaperEvaluation
from lumos.experiments.figures.names import EVALUATED_BALANCERS
from lumos.experiments.figures.plots import PaperFigure, Plot, Plots
from lumos.experiments.figures.row import Row
from lumos.experiments.figures.scores import Scores
from lumos.report import cdf
from lumos.report.tree_drawing import moderate, tree
from lumos.training.profile import PAPER
from lumos.typing import Ints

MEASURE = {"none": reported.UNTRIMMED_LARGEST, "greedy": "largest workload of Algorithm 1"}
"""By balancer; `reported.LARGEST` for the others."""


def balancer_name(evaluation: PaperEvaluation, balancer: str) -> str:
    """What tables call it."""
    steps = f"mcmc {evaluation.cells.iterations:,} steps"
    return {"none": "no trimming", "mcmc": steps}.get(balancer, balancer)


def workload_rows(evaluation: PaperEvaluation) -> list[Row]:
    """Largest workloads; the plot has their distribution."""
    rows = []
    for balancer in EVALUATED_BALANCERS:
        outcome = evaluation.lookup(evaluation.cells.trees(balancer))
        scores = Scores.single(None, outcome.reason)
        if outcome.result is not None:
            bound = outcome.result["lower_bound"]
            note = f"least possible {bound}" + (", reached" if outcome.result["optimal"] else "")
            largest = float(outcome.result["max_workload"])
            scores = Scores.single(largest, note, outcome.version_note)
        rows.append(
            evaluation.row(
                "workload",
                balancer_name(evaluation, balancer),
                MEASURE.get(balancer, reported.LARGEST),
                scores,
                why=PAPER if balancer == "mcmc" else balancer,
                digits=0,
            )
        )
    return rows


def distributions(evaluation: PaperEvaluation) -> dict[str, Any]:
    """By balancer: [workload, devices with at most so much], the points of the plot."""
    results = {
        balancer: evaluation.lookup(evaluation.cells.trees(balancer)).result
        for balancer in EVALUATED_BALANCERS
    }
    return {balancer: result["cdf"] for balancer, result in results.items() if result}


def workload_plots(evaluation: PaperEvaluation, rows: Sequence[Row]) -> Plots:
    """The distribution for every balancer, and a tree."""
    series = {}
    for balancer, points in distributions(evaluation).items():
        workloads = _workloads(points)
        name = balancer_name(evaluation, balancer)
        series[f"{name}: largest {workloads[-1]:,}"] = workloads
    if not series:
        return {}
    theirs = next((row.paper for row in rows if row.measure == reported.LARGEST), None)
    svg = cdf(
        series,
        title=f"{evaluation.dataset.name}: workloads",
        x_title="workload: neighbours kept in a device's tree",
        marks=None if theirs is None else {f"paper: largest {theirs:g}": theirs},
    )
    caption = "Share of devices that carry at most so many edges."
    return {f"workload-{evaluation.dataset.file}": Plot(svg, caption), **_tree(evaluation)}


def _tree(evaluation: PaperEvaluation) -> Plots:
    """A device's tree of moderate size, after the paper's balancer."""
    result = evaluation.lookup(evaluation.cells.trees("mcmc")).result
    if result is None:
        return {}
    branches, alike = moderate(_workloads(result["cdf"]))
    caption = (
        f"A tree of moderate size: {alike:,} of {evaluation.dataset.devices:,} devices have one of "
        f"{branches:,} branches after {balancer_name(evaluation, 'mcmc')}. Drawn from workloads "
        "alone."
    )
    svg = tree(branches, "its own features", "its features, with noise")
    return {f"tree-{evaluation.dataset.file}": Plot(svg, caption)}


def _workloads(points: list[list[int]]) -> Ints:
    """[devices] workloads again, from the points of their distribution."""
    values, up_to = np.array(points, np.int64).T
    return np.repeat(values, np.diff(up_to, prepend=0))


WORKLOAD = PaperFigure(rows=workload_rows, plots=workload_plots)
