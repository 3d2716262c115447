"""Cost: messages and simulated time of an epoch, with and without trimming."""

from collections.abc import Sequence
from typing import Any

from lumos.experiments import reported
from lumos.experiments.device_model import DeviceModel
from lumos.experiments.figures.evaluation import CellOutcome, PaperEvaluation
from lumos.experiments.figures.names import EVALUATED_BALANCERS, MEASURES, SYSTEM_NAMES
from lumos.experiments.figures.plots import PaperFigure, Plot, Plots, difference_bars
from lumos.experiments.figures.row import Row
from lumos.experiments.figures.scores import Scores
from lumos.experiments.figures.workload import balancer_name
from lumos.report import bars
from lumos.training.profile import PAPER, STRICT

MESSAGES = "messages per device and epoch"
MESSAGES_ALL = "messages per device and epoch, masked sum included"
MESSAGES_ALL_SAVED = "messages saved, masked sum included, %"
SECONDS = "simulated seconds per epoch"
SECONDS_ALONE = "simulated seconds per epoch, masked sum left out"
TIME_SAVED_ALONE = "epoch time saved, masked sum left out, %"
SECONDS_AT_ONCE = "simulated seconds per epoch, latency left out"
TIME_SAVED_AT_ONCE = "epoch time saved, latency left out, %"
FIGURES_OF_A_BALANCER = (
    (MESSAGES, "tree_messages", reported.MESSAGES_SAVED, 1),
    (MESSAGES_ALL, "messages", MESSAGES_ALL_SAVED, 1),
    (SECONDS, "seconds", reported.TIME_SAVED, 3),
    (SECONDS_ALONE, "seconds_without_sum", TIME_SAVED_ALONE, 3),
    (SECONDS_AT_ONCE, "seconds_without_latency", TIME_SAVED_AT_ONCE, 3),
)
"""Measure, its field in a result, the measure of what trimming saves, decimal places."""


def cost_rows(evaluation: PaperEvaluation) -> list[Row]:
    """Every balancer of the paper's profile; of the strict profile what a training run counted."""
    rows = []
    for task in MEASURES:
        if PAPER in evaluation.profiles:
            rows += _paper_rows(evaluation, task)
        if STRICT in evaluation.profiles:
            rows += _strict_rows(evaluation, task)
    return rows


def _paper_rows(evaluation: PaperEvaluation, task: str) -> list[Row]:
    outcome = CellOutcome(reason=f"{evaluation.dataset.name}: there are no labels to train on")
    if task == "link" or evaluation.dataset.classes:
        outcome = evaluation.lookup(evaluation.cells.cost(task))
    note, by_balancer = outcome.reason, dict[str, dict[str, float]]()
    if outcome.result is not None:
        note = ""
        latency = DeviceModel().latency
        for balancer, one in outcome.result["by"].items():
            without = one["seconds"] - latency * one["rounds"]
            by_balancer[balancer] = {**one, "seconds_without_latency": without}
        if outcome.result["stand_in_features"]:
            note = "features stand in: 128 of them as in the paper, only their number matters"
    rows, saved = [], []
    for measure, name, saving, digits in FIGURES_OF_A_BALANCER:
        whole = by_balancer.get("none", {}).get(name)
        for balancer in EVALUATED_BALANCERS:
            value = by_balancer.get(balancer, {}).get(name)
            system = f"{SYSTEM_NAMES[PAPER]}, {balancer_name(evaluation, balancer)}"
            scores = Scores.single(value, note, outcome.version_note)
            rows.append(evaluation.row("cost", system, measure, scores, task=task, digits=digits))
            if balancer != "none":
                less = 100 * (1 - value / whole) if value is not None and whole else None
                scores = Scores.single(less, note)
                saved.append(evaluation.row("cost", system, saving, scores, task=task, why=task))
    return rows + saved


def _strict_rows(evaluation: PaperEvaluation, task: str) -> list[Row]:
    """From the ledger of a training run: nobody carries an edge, so there is nothing to trim."""
    outcome = CellOutcome(reason=evaluation.dataset.lacks(task))
    if not outcome.reason:
        outcome = evaluation.lookup(evaluation.cells.train(STRICT, task, "gcn", 2.0, 0))
    messages = seconds = None
    note = outcome.reason
    if outcome.result is not None:
        epoch = outcome.result["per_epoch"]
        messages, seconds = epoch["messages_sent_mean"], _traffic_seconds(epoch)
        note = (
            "no trees, so nothing to trim; mean over the stages of training; largest traffic of "
            "any device, its computation left out"
        )
    name = SYSTEM_NAMES[STRICT]
    return [
        evaluation.row("cost", name, measure, Scores.single(value, note), task=task, digits=digits)
        for measure, value, digits in ((MESSAGES_ALL, messages, 1), (SECONDS, seconds, 3))
    ]


def _traffic_seconds(epoch: dict[str, Any]) -> float:
    """Seconds of an epoch for a device that has the largest traffic in every respect."""
    device = DeviceModel()
    up = epoch["bytes_sent_largest"] + device.header * epoch["messages_sent_largest"]
    down = epoch["bytes_received_largest"] + device.header * epoch["messages_received_largest"]
    seconds: float = epoch["rounds"] * device.latency + up / device.upload + down / device.download
    return seconds


def cost_plots(evaluation: PaperEvaluation, rows: Sequence[Row]) -> Plots:
    """What trimming saves beside the paper's, and seconds."""
    name, plots = evaluation.dataset.name, Plots()
    measures = (reported.MESSAGES_SAVED, reported.TIME_SAVED)
    saved = [row for row in rows if row.measure in measures and row.ours is not None]
    if saved:
        plot = difference_bars(saved, f"{name}: saved by trimming, %")
        plots[f"cost-{evaluation.dataset.file}-saved"] = plot
    seconds = [row for row in rows if row.measure == SECONDS and row.ours is not None]
    if seconds:
        systems = list(dict.fromkeys(row.system for row in seconds))
        by_task = {(row.task, row.system): row.ours for row in seconds}
        tasks = list(dict.fromkeys(row.task for row in seconds))
        svg = bars(
            tasks,
            systems,
            [[by_task.get((task, system)) for system in systems] for task in tasks],
            unit="s",
            title=f"{name}: simulated time of one epoch",
        )
        plot = Plot(svg, "Slowest device of every round.")
        plots[f"cost-{evaluation.dataset.file}-seconds"] = plot
    return plots


COST = PaperFigure(rows=cost_rows, plots=cost_plots)
