"""The quick form: which runs are expected to finish within the time, and which are left out.

Every run of it is one of the full form and finishes. None is shortened to fit: a run that was cut
must not stand beside one that finished. The choice depends on expected times only, so the same
command always makes the same one, however fast the machine is and whatever was computed before.
"""

from collections.abc import Iterable, Sequence

from lumos.experiments.cell import Cell
from lumos.experiments.dataset import Dataset
from lumos.experiments.figures import cells_of
from lumos.experiments.settings import EvaluationSettings

FIGURE_ORDER = ("workload", "cost", "classification", "link-prediction", "epsilon", "ablation")
"""Figures by how soon their runs are chosen: first those that take seconds."""


def by_priority(
    figures: Sequence[str],
    datasets: Sequence[Dataset],
    settings: EvaluationSettings,
    profiles: tuple[str, ...],
) -> list[tuple[Cell, Dataset]]:
    """Every cell with its graph, the most important first.

    Seed by seed; in a seed GCN before GAT, which takes several times as long; then by figure.
    """
    ranked: dict[Cell, tuple[tuple[int, bool, int], Dataset]] = {}
    for rank, figure in enumerate(FIGURE_ORDER):
        for dataset in datasets if figure in figures else ():
            for cell in cells_of([figure], dataset, settings, profiles):
                ranked.setdefault(cell, ((cell.seed, cell["backbone"] == "gat", rank), dataset))
    return [(cell, dataset) for cell, (_, dataset) in sorted(ranked.items(), key=_rank)]


def _rank(item: tuple[Cell, tuple[tuple[int, bool, int], Dataset]]) -> tuple[int, bool, int]:
    return item[1][0]


def left_out(
    cells: Iterable[tuple[Cell, float]], settings: EvaluationSettings
) -> dict[Cell, float]:
    """Cells that do not fit into the time, with their expected seconds.

    Args:
        cells: cells and their expected seconds, the most important first.
        settings: of the form; without a limit nothing is left out.
    """
    remaining, excess = settings.seconds_in_all, dict[Cell, float]()
    for cell, seconds in cells:
        if seconds > min(remaining, settings.seconds_of_a_run):
            excess[cell] = seconds
        else:
            remaining -= seconds
    return excess
