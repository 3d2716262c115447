"""The plots of the figures, with the paper's values marked."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lumos.report import bars, cdf, dots, lines
from lumos.report.charts import COLOURS, SYSTEM_STYLES, moderate, tree
from lumos.training.profile import PAPER
from lumos.typing import Ints
from reproduce import reported
from reproduce.dense import DENSE_EPSILONS, DIMENSIONS
from reproduce.evaluation import MEASURES, SYSTEM_NAMES, PaperEvaluation, Row
from reproduce.figures import DENSE_NAMES, GAINS, SECONDS, balancer_name, distributions
from reproduce.runs import LITERAL, ONE_SCORE
from reproduce.settings import EPSILONS

STYLES = {name: SYSTEM_STYLES[system] for system, name in SYSTEM_NAMES.items()}
STYLES[DENSE_NAMES[LITERAL]] = SYSTEM_STYLES[LITERAL]
"""By name of a system, the number of its colour and shape. A control has the colour of its run."""
STYLES |= {f"{name}: control": number + 2 * len(COLOURS) for name, number in STYLES.items()}
SCORE_NAMES = {"classify": "test accuracy", "link": "test ROC-AUC"}
"""By task, in titles."""


class Plot(NamedTuple):
    """A drawing and the sentence below it."""

    svg: str
    caption: str


Plots = dict[str, Plot]
"""By name of the file, without its suffix."""
Marks = list[float | None]


def draw(figure: str, evaluation: PaperEvaluation, rows: Sequence[Row]) -> Plots:
    """Return the plots of a figure for one graph; none where there is nothing to draw."""
    drawn = _DRAWING[figure](evaluation, [row for row in rows if row.ours is not None])
    file = f"{figure}-{evaluation.dataset.file}"
    return {f"{file}{suffix}": plot for suffix, plot in drawn.items()}


def _values(
    grid: Sequence[Sequence[Row | None]], field: Callable[[Row], float | None]
) -> list[list[float | None]]:
    return [[None if row is None else field(row) for row in line] for line in grid]


def _differences(evaluation: PaperEvaluation, rows: Sequence[Row]) -> Plots:
    """Return differences in points and relative ones, each on an axis of its own."""
    plots: Plots = {}
    for unit, words in (("points", "in points"), ("relative %", "relative, in %")):
        some = [row for row in rows if row.measure.endswith(unit)]
        if some:
            title = f"{evaluation.dataset.name}: differences {words}"
            plots[f"-{unit.split()[0]}"] = _bars(some, title)
    return plots


def _bars(rows: Sequence[Row], title: str) -> Plot:
    """Return bars of derived figures, the paper's marked."""
    groups = list(dict.fromkeys((row.measure, row.task, row.backbone) for row in rows))
    systems = list(dict.fromkeys(row.system for row in rows))
    by_group = {(row.measure, row.task, row.backbone, row.system): row for row in rows}
    grid = [[by_group.get((*group, system)) for system in systems] for group in groups]
    several_tasks = len({task for _, task, _ in groups}) > 1
    names = [
        f"{backbone.upper()} {measure}" + (f" ({task})" if several_tasks else "")
        for measure, task, backbone in groups
    ]
    if len(names) == 1:  # which the chart does not write
        title = f"{title}: {names[0]}"
    svg = bars(
        names,
        systems,
        _values(grid, lambda row: row.ours),
        _values(grid, lambda row: row.spread),
        marks=_values(grid, lambda row: row.paper),
        title=title,
        styles=STYLES,
    )
    marked = any(row.paper is not None for row in rows)
    caption = "Diamonds: what the paper reports." if marked else "The paper has no such figure."
    return Plot(svg, caption)


def _comparison(evaluation: PaperEvaluation, rows: Sequence[Row]) -> Plots:
    """Return scores with their controls, and the differences beside the paper's."""
    if not rows:
        return {}
    task = rows[0].task
    measure = MEASURES[task]
    scored = [row for row in rows if row.measure == measure.name]
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
        _values(grid, lambda row: row.ours),
        _values(grid, lambda row: row.spread),
        marks=_values(grid, lambda row: row.control),
        title=f"{evaluation.dataset.name}: {what}",
        unit="%" if task == "classify" else "",
        digits=measure.digits,
        mark_name="control",
        styles=STYLES,
    )
    most = max(row.seeds for row in scored)
    seeds = "one seed" if most == 1 else f"mean and standard deviation of up to {most} seeds"
    caption = f"Scores at ε = 2, {seeds}. Control: releases without information."
    if any((profile, task) in ONE_SCORE for profile in evaluation.profiles):
        caption += " The strict profile has one score: no ε of a release, and no backbone."
    derived = [row for row in rows if row.measure != measure.name]
    return {"": Plot(svg, caption), **_differences(evaluation, derived)}


def _epsilon(evaluation: PaperEvaluation, rows: Sequence[Row]) -> Plots:
    """Return a line for each system and each control, by task."""
    plots = {
        f"-{task}": _over_epsilon(evaluation, [row for row in rows if row.task == task], task)
        for task in SCORE_NAMES
    }
    return {name: plot for name, plot in plots.items() if plot is not None}


def _over_epsilon(evaluation: PaperEvaluation, rows: Sequence[Row], task: str) -> Plot | None:
    scored = [row for row in rows if row.measure == MEASURES[task].name]
    series: dict[str, Any] = {}
    theirs: Marks = []
    levels = {
        f"{row.system} {row.ours:.3f}": row.ours
        for row in scored
        if row.epsilon is None and row.ours is not None
    }
    for system in dict.fromkeys(row.system for row in scored if row.epsilon is not None):
        by = {row.epsilon: row for row in scored if row.system == system}
        shown = [by.get(epsilon) for epsilon in EPSILONS]
        [ours], [spread], [control] = (
            _values([shown], lambda row: row.ours),
            _values([shown], lambda row: row.spread),
            _values([shown], lambda row: row.control),
        )
        series[system] = (ours, spread)
        if any(value is not None for value in control):
            series[f"{system}: control"] = (control, None)
        if system == SYSTEM_NAMES[PAPER] and ours[0] is not None:
            gains = {
                row.epsilon: row.paper for row in rows if row.measure == reported.RELATIVE_TO_HALF
            }
            by_epsilon = [gains.get(e) for e in EPSILONS]
            theirs = [None if gain is None else ours[0] * (1 + gain / 100) for gain in by_epsilon]
    if not series:
        return None
    most = 100.0 if task == "classify" else 1.0
    possible = [mark if mark and mark <= most else None for mark in theirs]
    marked = any(value is not None for value in possible)
    svg = lines(
        EPSILONS,
        series,
        {SYSTEM_NAMES[PAPER]: possible} if marked else None,
        unit="%" if task == "classify" else "",
        title=f"{evaluation.dataset.name}: {SCORE_NAMES[task]} over ε",
        x_title="ε",
        y_title=SCORE_NAMES[task],
        mark_name="the paper's gain over ε = 0.5",
        at_points=True,
        styles=STYLES,
        levels=levels,
    )
    sentences = []
    if levels:
        sentences.append("Level line: the strict profile, which releases nothing, so has no ε.")
    if marked:
        sentences.append("Diamonds: the paper's relative gains, applied to our score at ε = 0.5.")
    if possible != theirs:
        sentences.append("Some of its gains would carry ours beyond what is possible.")
    return Plot(svg, " ".join(sentences) or "The paper has no figure of this.")


def _ablation(evaluation: PaperEvaluation, rows: Sequence[Row]) -> Plots:
    """Return the gains beside the paper's."""
    return _differences(evaluation, [row for row in rows if row.measure in GAINS.values()])


def _workload(evaluation: PaperEvaluation, rows: Sequence[Row]) -> Plots:
    """Return the distribution for every balancer, and a tree after the paper's balancer."""
    by_balancer = {
        balancer: _workloads(points) for balancer, points in distributions(evaluation).items()
    }
    if not by_balancer:
        return {}
    theirs = next((row.paper for row in rows if row.measure == reported.LARGEST), None)
    svg = cdf(
        {
            f"{balancer_name(evaluation, balancer)}: largest {workloads[-1]:,}": workloads
            for balancer, workloads in by_balancer.items()
        },
        title=f"{evaluation.dataset.name}: workloads",
        x_title="workload: neighbours kept in a device's tree",
        marks=None if theirs is None else {f"paper: largest {theirs:g}": theirs},
    )
    plots = {"": Plot(svg, "Share of devices that carry at most so many edges.")}
    if "mcmc" in by_balancer:
        branches, alike = moderate(by_balancer["mcmc"])
        caption = (
            f"A tree of moderate size: {alike:,} of {evaluation.dataset.devices:,} devices have "
            f"one of {branches:,} branches after {balancer_name(evaluation, 'mcmc')}. Drawn from "
            "workloads alone."
        )
        svg = tree(branches, "its own features", "its features, with noise")
        plots["-tree"] = Plot(svg, caption)
    return plots


def _workloads(points: list[list[int]]) -> Ints:
    """Return [devices] workloads again, from the points of their distribution."""
    values, up_to = np.array(points, np.int64).T
    return np.repeat(values, np.diff(up_to, prepend=0))


def _cost(evaluation: PaperEvaluation, rows: Sequence[Row]) -> Plots:
    """Return what trimming saves beside the paper's, and seconds."""
    name, plots = evaluation.dataset.name, Plots()
    saved = [row for row in rows if row.measure in (reported.MESSAGES_SAVED, reported.TIME_SAVED)]
    if saved:
        plots["-saved"] = _bars(saved, f"{name}: saved by trimming, %")
    seconds = [row for row in rows if row.measure == SECONDS]
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
        plots["-seconds"] = Plot(svg, "Slowest device of every round.")
    return plots


def _dense(evaluation: PaperEvaluation, rows: Sequence[Row]) -> Plots:
    """Return a plot for each number of features: both recoveries, controls, the local model."""
    plots: Plots = {}
    for dimension in DIMENSIONS:
        some = [row for row in rows if row.system.endswith(f", {dimension} features")]
        series: dict[str, Any] = {}
        for system in dict.fromkeys(row.system for row in some if row.epsilon is not None):
            by = {row.epsilon: row for row in some if row.system == system}
            shown = [by.get(epsilon) for epsilon in DENSE_EPSILONS]
            name = system.removesuffix(f", {dimension} features")
            series[name] = (_values([shown], lambda row: row.ours)[0], None)
            series[f"{name}: control"] = (_values([shown], lambda row: row.control)[0], None)
        levels = {
            f"local model {row.ours:.1f}": row.ours
            for row in some
            if row.epsilon is None and row.ours is not None
        }
        if series:
            svg = lines(
                DENSE_EPSILONS,
                series,
                None,
                unit="%",
                title=f"{evaluation.dataset.name}: {dimension} dense features over ε",
                x_title="ε",
                y_title=SCORE_NAMES["classify"],
                at_points=True,
                styles=STYLES,
                levels=levels,
            )
            plots[f"-{dimension}"] = Plot(svg, "GCN, one seed. Level line: the local model.")
    return plots


_DRAWING: dict[str, Callable[[PaperEvaluation, Sequence[Row]], Plots]] = {
    "classification": _comparison,
    "link-prediction": _comparison,
    "epsilon": _epsilon,
    "ablation": _ablation,
    "workload": _workload,
    "cost": _cost,
    "dense": _dense,
}
