"""The paper's figures: the rows and plots of each, and with them the cells that it needs.

A figure is a function of a `PaperEvaluation`, whose `lookup` returns the outcome of a cell. To
plan, the figure is called with a `lookup` that only records cells: what is run is exactly what is
shown.
"""

from collections.abc import Sequence

from lumos.experiments.cell import Cell
from lumos.experiments.dataset import Dataset
from lumos.experiments.figures import ablation, cost, epsilon, systems_compared, workload
from lumos.experiments.figures.evaluation import CellOutcome, PaperEvaluation
from lumos.experiments.figures.plots import PaperFigure
from lumos.experiments.settings import EvaluationSettings

FIGURES: dict[str, PaperFigure] = {
    "classification": systems_compared.CLASSIFICATION,
    "link-prediction": systems_compared.LINK_PREDICTION,
    "epsilon": epsilon.EPSILON,
    "ablation": ablation.ABLATION,
    "workload": workload.WORKLOAD,
    "cost": cost.COST,
}
"""In the paper's order."""


def cells_of(
    figures: Sequence[str],
    dataset: Dataset,
    settings: EvaluationSettings,
    profiles: tuple[str, ...],
) -> list[Cell]:
    """Every cell that the figures need, once, in the order in which they look it up."""
    cells: dict[Cell, None] = {}

    def record(cell: Cell) -> CellOutcome:
        cells[cell] = None
        return CellOutcome()

    evaluation = PaperEvaluation(
        dataset=dataset, settings=settings, lookup=record, profiles=profiles
    )
    for name in figures:
        FIGURES[name].rows(evaluation)
    return list(cells)
