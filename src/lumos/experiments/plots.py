"""The plots of every figure, as SVG, with the paper's values marked."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.experiments import reported
from lumos.experiments.figures import (
    BACKBONES,
    BALANCERS,
    MEASURES,
    NAMES,
    SECONDS,
    Bench,
    Row,
    balancer_cell,
    balancer_name,
)
from lumos.report import bars, cdf, dots, lines
from lumos.report.tree_drawing import moderate, tree

Drawn = dict[str, tuple[str, str]]
"""By name, the drawing and the sentence below it."""
TASKS = {"classify": "test accuracy", "link": "test ROC-AUC"}


def drawings(figure: str, bench: Bench, rows: Sequence[Row]) -> Drawn:
    """Every plot of a figure for one graph; none where there is nothing to draw."""
    return _BY_NAME[figure](bench, [row for row in rows if row.dataset == bench.subject.name])


def _comparison(task: str) -> Callable[[Bench, Sequence[Row]], Drawn]:
    def draw(bench: Bench, rows: Sequence[Row]) -> Drawn:
        measure, *_ = MEASURES[task]
        scored = [row for row in rows if row.measure == measure]
        if not any(row.ours is not None for row in scored):
            return {}
        systems = list(dict.fromkeys(row.system for row in scored))
        found = {(row.backbone, row.system): row for row in scored}

        def of(backbone: str, system: str) -> Row | None:
            return found.get((backbone, system)) or found.get(("", system))

        digits = scored[0].digits
        picked = [[of(backbone, system) for system in systems] for backbone in BACKBONES]
        scores = dots(
            [backbone.upper() for backbone in BACKBONES],
            systems,
            _field(picked, "ours"),
            _field(picked, "spread"),
            marks=_field(picked, "control"),
            title=_titled(bench, TASKS[task]),
            unit="%" if task == "classify" else "",
            digits=digits,
            mark_name="control",
        )
        figure = scored[0].figure
        return {
            f"{figure}-{bench.subject.file}": (
                scores,
                f"Scores at ε = 2, {_seeds(scored)}. Control: releases that say nothing.",
            ),
            **_by_unit(
                bench,
                f"{figure}-{bench.subject.file}",
                [row for row in rows if row.measure != measure],
            ),
        }

    return draw


def _by_unit(bench: Bench, name: str, rows: Sequence[Row]) -> Drawn:
    """Differences in points and relative ones: each on an axis of its own."""
    found: Drawn = {}
    for unit, words in (("points", "in points"), ("relative %", "relative, in %")):
        some = [row for row in rows if row.measure.endswith(unit) and row.ours is not None]
        if some:
            drawn = _differences(some, _titled(bench, f"differences {words}"))
            found[f"{name}-{unit.split()[0]}"] = drawn
    return found


def _differences(rows: Sequence[Row], title: str) -> tuple[str, str]:
    """Bars of derived figures, the paper's marked."""
    groups = list(dict.fromkeys((row.measure, row.task, row.backbone) for row in rows))
    systems = list(dict.fromkeys(row.system for row in rows))
    found = {(row.measure, row.task, row.backbone, row.system): row for row in rows}
    picked = [[found.get((*group, system)) for system in systems] for group in groups]
    many = len({task for _, task, _ in groups}) > 1
    drawn = bars(
        [
            f"{backbone.upper()} {measure}" + (f" ({task})" if many else "")
            for measure, task, backbone in groups
        ],
        systems,
        _field(picked, "ours"),
        _field(picked, "spread"),
        marks=_field(picked, "paper"),
        title=title,
    )
    marked = any(row.paper is not None for row in rows)
    return drawn, "Diamonds: what the paper reports." if marked else "The paper has no such figure."


def _epsilon(bench: Bench, rows: Sequence[Row]) -> Drawn:
    found: Drawn = {}
    places = bench.frozen.epsilons
    for task, called in TASKS.items():
        measure, *_ = MEASURES[task]
        scored = [row for row in rows if row.measure == measure and row.task == task]
        series: dict[str, Any] = {}
        marks: dict[str, list[float | None]] = {}
        beyond = False
        for system in dict.fromkeys(row.system for row in scored):
            by = {row.epsilon: row for row in scored if row.system == system}
            if not any(row.ours is not None for row in by.values()):
                continue
            series[system] = ([by[e].ours for e in places], [by[e].spread for e in places])
            control = [by[e].control for e in places]
            if any(value is not None for value in control):
                series[f"{system}: control"] = (control, None)
            if system == NAMES["paper"] and (start := by[min(places)].ours) is not None:
                gained = reported.RELATIVE_TO_HALF
                paid = {r.epsilon: r.paper for r in rows if (r.measure, r.task) == (gained, task)}
                gains = [paid.get(e) for e in places]
                theirs = [None if gain is None else start * (1 + gain / 100) for gain in gains]
                most = 100.0 if task == "classify" else 1.0
                marks[system] = [mark if mark and mark <= most else None for mark in theirs]
                beyond = marks[system] != theirs
        if series:
            marks = {
                name: at for name, at in marks.items() if any(value is not None for value in at)
            }
            drawn = lines(
                places,
                series,
                marks or None,
                unit="%" if task == "classify" else "",
                title=_titled(bench, f"{called} over ε"),
                x_title="ε",
                y_title=called,
                mark_name="the paper's gain over ε = 0.5",
                at_points=True,
            )
            said = []
            if marks:
                said.append(
                    "Diamonds: the paper's relative gains, applied to our score at ε = 0.5."
                )
            if beyond:
                said.append("Some of its gains would carry ours beyond what is possible.")
            words = " ".join(said) or "The paper has no figure of this."
            found[f"epsilon-{bench.subject.file}-{task}"] = (drawn, words)
    return found


def _ablation(bench: Bench, rows: Sequence[Row]) -> Drawn:
    derived = [row for row in rows if row.measure in (reported.OVER_STARS, reported.OVER_UNTRIMMED)]
    if not any(row.ours is not None for row in derived):
        return {}
    return _by_unit(bench, f"ablation-{bench.subject.file}", derived)


def _workload(bench: Bench, rows: Sequence[Row]) -> Drawn:
    series = {}
    for balancer in BALANCERS:
        result = bench.ask(balancer_cell(bench, balancer)).result
        if result is not None:
            loads = _workloads(result)
            series[f"{balancer_name(bench, balancer)}: largest {loads[-1]:,}"] = loads
    if not series:
        return {}
    theirs = next((row.paper for row in rows if row.measure == reported.LARGEST), None)
    name = bench.subject.name
    drawn = cdf(
        series,
        title=f"{name}: workloads",
        x_title="workload: neighbours kept in a device's tree",
        marks=None if theirs is None else {f"paper: largest {theirs:g}": theirs},
    )
    return {
        f"workload-{bench.subject.file}": (
            drawn,
            "Share of devices that carry at most so many edges.",
        ),
        **_tree(bench),
    }


def _tree(bench: Bench) -> Drawn:
    """A device's tree of moderate size, after the paper's balancer."""
    result = bench.ask(balancer_cell(bench, "mcmc")).result
    if result is None:
        return {}
    branches, alike = moderate(_workloads(result))
    words = (
        f"A tree of moderate size: {alike:,} of {bench.subject.devices:,} devices have one of "
        f"{branches:,} branches after {balancer_name(bench, 'mcmc')}. Drawn from workloads alone."
    )
    drawn = tree(branches, "its own features", "its features, with noise")
    return {f"tree-{bench.subject.file}": (drawn, words)}


def _workloads(result: dict[str, Any]) -> npt.NDArray[np.int64]:
    """[devices] workloads again, from the points of their distribution."""
    values, up_to = np.array(result["cdf"], np.int64).T
    return np.repeat(values, np.diff(up_to, prepend=0))


def _cost(bench: Bench, rows: Sequence[Row]) -> Drawn:
    name, found = bench.subject.name, {}
    shown = (reported.MESSAGES_SAVED, reported.TIME_SAVED)
    saved = [row for row in rows if row.measure in shown and row.ours is not None]
    if saved:
        found[f"cost-{bench.subject.file}-saved"] = _differences(
            saved, f"{name}: saved by trimming, %"
        )
    seconds = [row for row in rows if row.measure == SECONDS and row.ours is not None]
    if seconds:
        systems = list(dict.fromkeys(row.system for row in seconds))
        at = {(row.task, row.system): row.ours for row in seconds}
        tasks = list(dict.fromkeys(row.task for row in seconds))
        drawn = bars(
            tasks,
            systems,
            [[at.get((task, system)) for system in systems] for task in tasks],
            unit="s",
            title=f"{name}: simulated time of one epoch",
        )
        found[f"cost-{bench.subject.file}-seconds"] = (
            drawn,
            "Slowest device of every round.",
        )
    return found


def _titled(bench: Bench, what: str) -> str:
    """A title that says whose scores these are, and that a shorter form is one."""
    return f"{bench.subject.name}: {what}{bench.frozen.mark}"


def _field(picked: Sequence[Sequence[Row | None]], name: str) -> list[list[float | None]]:
    return [[None if row is None else getattr(row, name) for row in group] for group in picked]


def _seeds(rows: Sequence[Row]) -> str:
    known = sorted({row.seeds for row in rows if row.seeds})
    if known in ([], [1]):
        return "one seed"
    of = f"{known[0]}" if len(known) == 1 else f"{known[0]} to {known[-1]}"
    return f"mean and standard deviation of {of} seeds"


_BY_NAME: dict[str, Callable[[Bench, Sequence[Row]], Drawn]] = {
    "classification": _comparison("classify"),
    "link-prediction": _comparison("link"),
    "epsilon": _epsilon,
    "ablation": _ablation,
    "workload": _workload,
    "cost": _cost,
}
