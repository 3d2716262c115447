"""Ablation: without virtual nodes, and without tree trimming."""

from collections.abc import Sequence
from typing import Any

from lumos.experiments import reported
from lumos.experiments.figures.evaluation import PaperEvaluation
from lumos.experiments.figures.names import BACKBONES, LETTER, MEASURES, SYSTEM_NAMES
from lumos.experiments.figures.plots import PaperFigure, Plots, difference_plots
from lumos.experiments.figures.row import Row
from lumos.experiments.figures.scores import Scores, points, relative
from lumos.training.profile import PAPER, STRICT

STRICT_ABLATION = (
    "strict: nobody carries an edge there, so there are no trees to trim, and stars are refused "
    "because they carry the number of neighbours in their normalisation"
)
SUFFIXES = {"": "", "stars": ", no virtual nodes", "untrimmed": ", no trimming"}
"""Of the name of a system, by what is taken away."""
GAINS = {"stars": reported.OVER_STARS, "untrimmed": reported.OVER_UNTRIMMED}
"""By what is taken away: the measure of what the whole gains."""


def ablation_rows(evaluation: PaperEvaluation) -> list[Row]:
    """Scores with and without each module, then the gains."""
    rows: list[Row] = []
    gains: list[Row] = []
    for task in MEASURES:
        for backbone in BACKBONES:
            about: dict[str, Any] = {"task": task, "backbone": backbone, "epsilon": 2.0}
            if PAPER in evaluation.profiles:
                _add(rows, gains, _ablated(evaluation, PAPER, ("stars", "untrimmed"), about))
            if LETTER in evaluation.variants and backbone == "gcn":
                _add(rows, gains, _ablated(evaluation, LETTER, ("stars",), about))
            if STRICT in evaluation.profiles:
                none = Scores.single(None, STRICT_ABLATION)
                name = SYSTEM_NAMES[STRICT]
                gains.append(evaluation.row("ablation", name, "ablation", none, **about))
    return rows + gains


def _add(rows: list[Row], gains: list[Row], more: tuple[list[Row], list[Row]]) -> None:
    rows += more[0]
    gains += more[1]


def _ablated(
    evaluation: PaperEvaluation, variant: str, ablations: Sequence[str], about: dict[str, Any]
) -> tuple[list[Row], list[Row]]:
    """Scores of the whole and without each of the modules, and what the whole gains over those."""
    task, backbone = about["task"], about["backbone"]
    measure, name = MEASURES[task], SYSTEM_NAMES[variant]
    seeds = range(evaluation.settings.other_seeds)
    whole = evaluation.train(variant, task, backbone, 2.0, seeds)
    scores = {"": whole}
    for ablation in ablations:
        cells = [evaluation.cells.ablated(ablation, variant, task, backbone, s) for s in seeds]
        scores[ablation] = evaluation.scores(cells, task)
    rows = [
        evaluation.row(
            "ablation", name + SUFFIXES[ablation], measure.name, of, digits=measure.digits, **about
        )
        for ablation, of in scores.items()
    ]
    gains = []
    for ablation in ablations:
        if ablation == "stars":
            gain, digits = points(whole, scores[ablation], 100.0 / measure.scale), 2
        else:
            gain, digits = relative(whole, scores[ablation]), 3
        gains.append(
            evaluation.row(
                "ablation", name, GAINS[ablation], gain, why=variant, digits=digits, **about
            )
        )
    return rows, gains


def ablation_plots(evaluation: PaperEvaluation, rows: Sequence[Row]) -> Plots:
    """The gains beside the paper's."""
    gains = [row for row in rows if row.measure in GAINS.values()]
    if not any(row.ours is not None for row in gains):
        return {}
    return difference_plots(evaluation, f"ablation-{evaluation.dataset.file}", gains)


ABLATION = PaperFigure(rows=ablation_rows, plots=ablation_plots)
