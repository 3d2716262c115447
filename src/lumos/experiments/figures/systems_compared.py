"""Classification and link prediction: every system at ε = 2, and the differences of the paper."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from lumos.experiments import reported
from lumos.experiments.figures.evaluation import PaperEvaluation
from lumos.experiments.figures.names import BACKBONES, MEASURES, ONE_SCORE, SYSTEM_NAMES
from lumos.experiments.figures.plots import (
    SCORE_NAMES,
    PaperFigure,
    Plot,
    Plots,
    difference_plots,
    title,
    values_of,
)
from lumos.experiments.figures.row import Row
from lumos.experiments.figures.scores import Scores, points, relative
from lumos.report import dots

FIGURE_NAMES = {"classify": "classification", "link": "link-prediction"}
COMPARED_SYSTEMS = {"classify": ("centralized", "lpgnn", "naive"), "link": ("centralized", "naive")}
"""By task; LPGNN has no link prediction."""


def comparison_rows(evaluation: PaperEvaluation, task: str) -> list[Row]:
    """Scores of every system, then the differences."""
    figure, measure = FIGURE_NAMES[task], MEASURES[task]
    seeds = range(evaluation.settings.seeds)
    rows, derived = [], []
    for backbone in BACKBONES:
        about: dict[str, Any] = {"task": task, "backbone": backbone}
        baselines = {
            system: evaluation.baseline(system, task, backbone) for system in COMPARED_SYSTEMS[task]
        }
        for profile in evaluation.profiles:
            name = SYSTEM_NAMES[profile]
            ours = evaluation.train(profile, task, backbone, 2.0, seeds)
            key: dict[str, Any] = {**about, "epsilon": 2.0, "why": profile}
            if (profile, task) in ONE_SCORE:
                key["why"] = f"{profile} {task}"
            else:
                rows.append(
                    evaluation.row(figure, name, measure.name, ours, digits=measure.digits, **key)
                )
            derived += [
                evaluation.row(figure, name, difference, scores, **key)
                for difference, scores in _differences(ours, baselines, 100.0 / measure.scale)
            ]
        for system, scores in baselines.items():
            about["epsilon"] = None if system == "centralized" else 2.0
            name = SYSTEM_NAMES[system]
            rows.append(
                evaluation.row(figure, name, measure.name, scores, digits=measure.digits, **about)
            )
    for profile in (profile for profile in evaluation.profiles if (profile, task) in ONE_SCORE):
        ours, name = evaluation.only_score(profile, task, seeds), SYSTEM_NAMES[profile]
        rows.append(
            evaluation.row(figure, name, measure.name, ours, digits=measure.digits, task=task)
        )
    own = evaluation.baseline("own", task, "gcn")
    rows.append(
        evaluation.row(
            figure, SYSTEM_NAMES["own"], measure.name, own, digits=measure.digits, task=task
        )
    )
    return rows + derived


def _differences(
    ours: Scores, baselines: dict[str, Scores], to_points: float
) -> list[tuple[str, Scores]]:
    """By what the paper calls them."""
    differences = [
        (reported.AGAINST_CENTRALIZED, points(ours, baselines["centralized"], to_points))
    ]
    if "lpgnn" in baselines:
        differences.append((reported.AGAINST_LPGNN, points(ours, baselines["lpgnn"], to_points)))
    differences.append((reported.AGAINST_NAIVE, relative(ours, baselines["naive"])))
    return differences


def comparison_plots(evaluation: PaperEvaluation, rows: Sequence[Row], task: str) -> Plots:
    """Scores with their controls, and the differences beside the paper's."""
    measure = MEASURES[task]
    scored = [
        row for row in rows if row.measure == measure.name and row.ours is not None and not row.cut
    ]
    if not scored:
        return {}
    systems = list(dict.fromkeys(row.system for row in scored))
    by_system = {(row.backbone, row.system): row for row in scored}
    shown = list(dict.fromkeys(row.backbone for row in scored if row.backbone)) or [""]
    grid = [
        [by_system.get((backbone, name)) or by_system.get(("", name)) for name in systems]
        for backbone in shown
    ]
    groups = [backbone.upper() for backbone in shown]
    what = SCORE_NAMES[task]
    for only in (systems, groups):  # which the chart does not write
        what += f", {only[0]}" * (len(only) == 1 and bool(only[0]))
    svg = dots(
        groups,
        systems,
        values_of(grid, lambda row: row.ours),
        values_of(grid, lambda row: row.spread),
        marks=values_of(grid, lambda row: row.control),
        title=title(evaluation, what),
        unit="%" if task == "classify" else "",
        digits=measure.digits,
        mark_name="control",
    )
    name = f"{FIGURE_NAMES[task]}-{evaluation.dataset.file}"
    caption = f"Scores at ε = 2, {_seeds(scored)}. Control: releases without information."
    if any((profile, task) in ONE_SCORE for profile in evaluation.profiles):
        caption += " The strict profile has one score: no ε of a release, and no backbone."
    derived = [row for row in rows if row.measure != measure.name]
    return {name: Plot(svg, caption), **difference_plots(evaluation, name, derived)}


def _seeds(rows: Sequence[Row]) -> str:
    known = sorted({row.seeds for row in rows if row.seeds})
    if known in ([], [1]):
        return "one seed"
    counts = f"{known[0]}" if len(known) == 1 else f"{known[0]} to {known[-1]}"
    return f"mean and standard deviation of {counts} seeds"


CLASSIFICATION, LINK_PREDICTION = (
    PaperFigure(
        rows=partial(comparison_rows, task=task), plots=partial(comparison_plots, task=task)
    )
    for task in ("classify", "link")
)
