"""What the plots of the figures share: SVG with the paper's values marked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lumos.experiments.figures.evaluation import PaperEvaluation
from lumos.experiments.figures.row import Row
from lumos.report import bars


class Plot(NamedTuple):
    """A drawing and the sentence below it."""

    svg: str
    caption: str


Plots = dict[str, Plot]
"""By name of the file, without its suffix."""
SCORE_NAMES = {"classify": "test accuracy", "link": "test ROC-AUC"}
"""By task, in titles."""


@dataclass(frozen=True, kw_only=True)
class PaperFigure:
    """A figure of the paper's evaluation."""

    rows: Callable[[PaperEvaluation], list[Row]]
    """The rows of one graph."""
    plots: Callable[[PaperEvaluation, Sequence[Row]], Plots]
    """Its plots, from those rows that were not cut; none where there is nothing to draw."""


def title(evaluation: PaperEvaluation, what: str) -> str:
    """A title that names the graph."""
    return f"{evaluation.dataset.name}: {what}"


def values_of(
    grid: Sequence[Sequence[Row | None]], field: Callable[[Row], float | None]
) -> list[list[float | None]]:
    """One field of a grid of rows."""
    return [[None if row is None else field(row) for row in line] for line in grid]


def difference_plots(evaluation: PaperEvaluation, name: str, rows: Sequence[Row]) -> Plots:
    """Differences in points and relative ones, each on an axis of its own."""
    plots: Plots = {}
    for unit, words in (("points", "in points"), ("relative %", "relative, in %")):
        some = [row for row in rows if row.measure.endswith(unit) and row.ours is not None]
        if some:
            plot = difference_bars(some, title(evaluation, f"differences {words}"))
            plots[f"{name}-{unit.split()[0]}"] = plot
    return plots


def difference_bars(rows: Sequence[Row], title: str) -> Plot:
    """Bars of derived figures, the paper's marked."""
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
        values_of(grid, lambda row: row.ours),
        values_of(grid, lambda row: row.spread),
        marks=values_of(grid, lambda row: row.paper),
        title=title,
    )
    marked = any(row.paper is not None for row in rows)
    return Plot(
        svg, "Diamonds: what the paper reports." if marked else "The paper has no such figure."
    )
