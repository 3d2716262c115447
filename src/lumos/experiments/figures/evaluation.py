"""The evaluation of one graph: looks up results, and makes scores and rows of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lumos.experiments import reported
from lumos.experiments.cell import Cell
from lumos.experiments.dataset import Dataset
from lumos.experiments.figures.cells import Cells
from lumos.experiments.figures.names import (
    EVALUATED_PROFILES,
    LETTER,
    MEASURES,
)
from lumos.experiments.figures.row import Row
from lumos.experiments.figures.scores import Scores
from lumos.experiments.settings import EvaluationSettings
from lumos.training.config import Config
from lumos.training.profile import PAPER

NOT_RUN = "not run"
CUT = "cut at {} epochs, before it finished: compare it with no other run, nor with the paper"
NO_INFORMATION = 1e-6
"""An ε at which a release carries no information."""
LETTER_NOTE = (
    "recovered features as the paper has them; the epoch is chosen on validation as in all runs"
)
OTHER_VERSION = "kept from another result version"
LPGNN_CONTROL = f"the control is LPGNN with ε = {NO_INFORMATION:g} for features"


@dataclass(frozen=True)
class CellOutcome:
    """What is known of a cell."""

    result: dict[str, Any] | None = None
    reason: str = NOT_RUN
    """Why there is no result."""
    other_version: bool = False

    @property
    def version_note(self) -> str:
        """A note where the result is of another version; empty otherwise."""
        return OTHER_VERSION if self.other_version else ""


Lookup = Callable[[Cell], CellOutcome]


@dataclass(frozen=True, kw_only=True)
class PaperEvaluation:
    """One graph, the settings, and access to results."""

    dataset: Dataset
    settings: EvaluationSettings
    lookup: Lookup = field(repr=False)
    profiles: tuple[str, ...] = EVALUATED_PROFILES

    @property
    def cells(self) -> Cells:
        """The cells of this graph."""
        return Cells(dataset=self.dataset, settings=self.settings)

    @property
    def variants(self) -> tuple[str, ...]:
        """The profiles, and the paper's to the letter beside it."""
        return (*self.profiles, LETTER) if PAPER in self.profiles else self.profiles

    def train(
        self, variant: str, task: str, backbone: str, epsilon: float, seeds: Sequence[int]
    ) -> Scores:
        """Scores of Lumos; `variant` is a profile, or one of `VARIANT_PROFILES`."""
        cells = self.cells
        return self.scores(
            [cells.train(variant, task, backbone, epsilon, seed) for seed in seeds], task
        )

    def only_score(self, profile: str, task: str, seeds: Sequence[int]) -> Scores:
        """Scores of one of `ONE_SCORE`, with a note on what they depend on."""
        scores = self.train(profile, task, "", 0.0, seeds)
        config = Config.of(profile=profile, task=task)
        note = f"no ε of a release, no backbone: {config.profile.texts(config).budget}"
        return replace(scores, notes=(*scores.notes, note))

    def baseline(self, system: str, task: str, backbone: str) -> Scores:
        """Scores of a system at ε = 2; LPGNN's with a control."""
        cells, seeds = self.cells, range(self.settings.seeds)
        scores = self.scores([cells.baseline(system, task, backbone, s) for s in seeds], task)
        controlled = seeds[: self.settings.control_seeds.get(system, {}).get(backbone, 0)]
        if system != "lpgnn" or not controlled:
            return scores
        controls = self.scores(
            [cells.baseline(system, task, backbone, s, NO_INFORMATION) for s in controlled], task
        )
        control = {
            seed: score for seed, score in controls.by_seed.items() if seed in scores.by_seed
        }
        notes = (LPGNN_CONTROL,) if control else tuple(f"control: {n}" for n in controls.notes)
        notes = tuple(dict.fromkeys((*scores.notes, *notes)))
        return Scores(scores.by_seed, control, notes, scores.cut or controls.cut)

    def scores(self, cells: Sequence[Cell], task: str) -> Scores:
        """The test scores of some seeds; notes say what is missing."""
        if lacking := self.dataset.lacks(task):
            return Scores.single(None, lacking)
        name, scale = MEASURES[task].field, MEASURES[task].scale
        by_seed: dict[int, float] = {}
        control: dict[int, float] = {}
        notes: list[str] = []
        for cell in cells:
            outcome = self.lookup(cell)
            if outcome.result is None:
                notes.append(outcome.reason)
                continue
            if outcome.result.get(name) is None:
                notes.append("a run ended without a score")
                continue
            by_seed[cell.seed] = scale * outcome.result[name]
            if outcome.result.get(f"control_{name}") is not None:
                control[cell.seed] = scale * outcome.result[f"control_{name}"]
            notes += self._notes(cell, outcome, outcome.result, first=len(by_seed) == 1)
        cut = max((self.settings.cut(cell) for cell in cells if cell.seed in by_seed), default=0)
        return Scores(by_seed, control, tuple(dict.fromkeys(notes)), cut)

    def _notes(
        self, cell: Cell, outcome: CellOutcome, result: dict[str, Any], *, first: bool
    ) -> list[str]:
        """What a reader should know of one run."""
        notes = []
        usual = self.settings.epochs_of("baseline", cell["backbone"] or "gcn")
        if cell.kind == "baseline" and cell["epochs"] < usual:
            notes.append(f"{cell['epochs']} epochs, where others have up to {usual}")
        if outcome.version_note:
            notes.append(outcome.version_note)
        if cell["recovery"] == "letter":
            notes.append(LETTER_NOTE)
        if first:  # the notes of another seed differ in a number at most
            notes += [note for note in result.get("notes", ()) if note not in self.dataset.notes]
        if result.get("caution"):
            notes.append(result["caution"])
        return notes

    def row(
        self,
        figure: str,
        system: str,
        measure: str,
        scores: Scores,
        *,
        task: str = "",
        backbone: str = "",
        epsilon: float | None = None,
        why: str = "",
        digits: int = 2,
    ) -> Row:
        """A row with mean and spread, the paper's number and, where they disagree, the reason.

        Args:
            why: profile, balancer or task under which `reported.WHY` has the reason.
        """
        claim = reported.claim(figure, measure, task, backbone, epsilon)
        theirs = None if claim is None else claim.of(self.dataset.paper_name)
        values, controls = list(scores.by_seed.values()), list(scores.control.values())
        mean = float(np.mean(values)) if values else None
        notes = scores.notes
        if 0 < len(controls) < len(values):
            notes = (*notes, f"the control is of {len(controls)} of the {len(values)} seeds")
        if scores.cut:
            notes = (CUT.format(scores.cut), *notes)
        over = None
        if controls and not scores.cut and measure in (score.name for score in MEASURES.values()):
            over = float(np.mean([scores.by_seed[s] - c for s, c in scores.control.items()]))
        reason = ""
        if claim is not None and mean is not None:
            disagrees = reported.disagrees(claim, self.dataset.paper_name, mean)
            reason = reported.WHY.get((measure, why), "") if disagrees else ""
        return Row(
            figure=figure,
            dataset=self.dataset.name,
            system=system,
            measure=measure,
            task=task,
            backbone=backbone,
            epsilon=epsilon,
            paper=theirs,
            paper_shown="" if claim is None or theirs is None else claim.shown.format(theirs),
            ours=mean,
            spread=float(np.std(values, ddof=1)) if len(values) > 1 else None,
            seeds=len(values),
            control=float(np.mean(controls)) if controls else None,
            over_control=over,
            notes=notes,
            why=reason,
            digits=digits,
            cut=scores.cut,
        )
