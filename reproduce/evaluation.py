"""The evaluation of one graph: looks up results, and makes scores and rows of them."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from lumos.training.config import Config
from lumos.training.profile import PAPER, STRICT
from reproduce import reported
from reproduce.runs import LITERAL, Run, Runs
from reproduce.settings import CONTROL_SEEDS, EPOCHS, Dataset, Settings

PROFILES = (PAPER, STRICT)
SYSTEM_NAMES = {
    PAPER: "Lumos paper",
    LITERAL: "Lumos paper, recovery as printed",
    STRICT: "Lumos strict",
    "centralized": "centralized",
    "lpgnn": "LPGNN",
    "naive": "naive FedGNN",
    "own": "local model, unprotected",
}
NOT_RUN = "not run"
CUT = "cut at {} epochs: compare it with no finished run, nor with the paper"
NO_INFORMATION = 1e-6
"""An ε at which a release carries no information."""
LITERAL_NOTE = (
    "recovered features as the paper has them; the epoch is chosen on validation as in all runs"
)
LPGNN_CONTROL = f"the control is LPGNN with ε = {NO_INFORMATION:g} for features"


class Measure(NamedTuple):
    """The test score of a task."""

    name: str
    """Name in tables."""
    field: str
    """Name in a result."""
    scale: float
    """Factor from a result to a table."""
    digits: int
    """Decimal places."""


MEASURES = {
    "classify": Measure("accuracy, %", "test_accuracy", 100.0, 2),
    "link": Measure("ROC-AUC", "test_auc", 1.0, 4),
}
"""By task."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a figure's table: one figure of one system beside the paper's."""

    figure: str
    dataset: str
    system: str
    measure: str
    task: str = ""
    backbone: str = ""
    epsilon: float | None = None
    paper: float | None = None
    """The paper's number."""
    paper_shown: str = ""
    """The same as the paper writes it, where it is a bound."""
    ours: float | None = None
    """Mean over the seeds."""
    spread: float | None = None
    """Standard deviation over the seeds, from two on."""
    seeds: int = 0
    control: float | None = None
    """The same figure where releases carry no information."""
    over_control: float | None = None
    """Mean difference of a score to the control, on the seeds that have one."""
    notes: tuple[str, ...] = ()
    """Remarks for a reader, a sentence each."""
    why: str = ""
    """The reason, where it disagrees with the paper."""
    digits: int = 2

    def as_json(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        content = asdict(self)
        del content["digits"], content["notes"]
        return {**content, "note": "; ".join(self.notes)}


@dataclass(frozen=True)
class Scores:
    """A figure of one system, by seed."""

    by_seed: dict[int, float] = field(default_factory=dict)
    control: dict[int, float] = field(default_factory=dict)
    """By seed, where there is a control."""
    notes: tuple[str, ...] = ()

    @staticmethod
    def single(value: float | None, *notes: str) -> "Scores":
        """Return a single figure, or none."""
        return Scores({} if value is None else {0: value}, {}, tuple(filter(None, notes)))


def points(one: Scores, other: Scores, scale: float = 1.0) -> Scores:
    """Return scale · (one - other), seed by seed; the control against the same."""
    return _pairwise(one, other, lambda a, b: scale * (a - b))


def relative(one: Scores, other: Scores) -> Scores:
    """Return 100 · (one / other - 1), seed by seed; the control against the same."""
    nonzero = {seed: score for seed, score in other.by_seed.items() if score}
    notes = other.notes
    if len(nonzero) < len(other.by_seed):
        notes = ("nothing is relative to a score of 0", *notes)
    return _pairwise(one, Scores(nonzero, {}, notes), lambda a, b: 100 * (a / b - 1))


def _pairwise(one: Scores, other: Scores, difference: Callable[[float, float], float]) -> Scores:
    """Return differences on the seeds that both have."""
    differences, controls = (
        {seed: difference(a, other.by_seed[seed]) for seed, a in given.items()
         if seed in other.by_seed}
        for given in (one.by_seed, one.control)
    )  # fmt: skip
    notes = () if differences else tuple(dict.fromkeys(one.notes + other.notes))
    most = max(len(one.by_seed), len(other.by_seed))
    if 0 < len(differences) < most:
        notes = (f"of the {len(differences)} of {most} seeds that both have",)
    return Scores(differences, controls, notes)


class Outcome(NamedTuple):
    """The result of a run, or why there is none."""

    result: dict[str, Any] | None = None
    reason: str = NOT_RUN


@dataclass(frozen=True, kw_only=True)
class PaperEvaluation:
    """One graph, the settings, and access to results."""

    dataset: Dataset
    settings: Settings
    lookup: Callable[[Run], Outcome] = field(repr=False)
    profiles: tuple[str, ...] = PROFILES

    @property
    def runs(self) -> Runs:
        """The runs of this graph."""
        return Runs(dataset=self.dataset, settings=self.settings)

    @property
    def variants(self) -> tuple[str, ...]:
        """The profiles, and the paper's literal one beside it."""
        return (*self.profiles, LITERAL) if PAPER in self.profiles else self.profiles

    def train(
        self, variant: str, task: str, backbone: str, epsilon: float, seeds: Sequence[int]
    ) -> Scores:
        """Return scores of Lumos; `variant` is a profile, or one of `VARIANT_PROFILES`."""
        return self.scores(
            [self.runs.train(variant, task, backbone, epsilon, seed) for seed in seeds], task
        )

    def only_score(self, profile: str, task: str, seeds: Sequence[int]) -> Scores:
        """Return scores of one of `ONE_SCORE`, with a note on what they depend on."""
        scores = self.train(profile, task, "", 0.0, seeds)
        settings: dict[str, Any] = {"profile": profile, "task": task}
        config = Config.of(**settings)
        note = f"no ε of a release, no backbone: {config.profile.texts(config).budget}"
        return replace(scores, notes=(*scores.notes, note))

    def baseline(self, system: str, task: str, backbone: str) -> Scores:
        """Return scores of a system at ε = 2; LPGNN's with a control."""
        runs, seeds = self.runs, range(self.settings.seeds)
        scores = self.scores([runs.baseline(system, task, backbone, s) for s in seeds], task)
        if system != "lpgnn":
            return scores
        controls = self.scores(
            [
                runs.baseline(system, task, backbone, s, NO_INFORMATION)
                for s in seeds[: CONTROL_SEEDS[system]]
            ],
            task,
        )
        control = {
            seed: score for seed, score in controls.by_seed.items() if seed in scores.by_seed
        }
        notes = (LPGNN_CONTROL,) if control else tuple(f"control: {n}" for n in controls.notes)
        return Scores(scores.by_seed, control, tuple(dict.fromkeys((*scores.notes, *notes))))

    def scores(self, runs: Sequence[Run], task: str) -> Scores:
        """Return the test scores of some seeds; notes say what is missing."""
        if lacking := self.dataset.lacks(task):
            return Scores.single(None, lacking)
        name, scale = MEASURES[task].field, MEASURES[task].scale
        by_seed: dict[int, float] = {}
        control: dict[int, float] = {}
        notes: list[str] = []
        for run in runs:
            result, reason = self.lookup(run)
            if result is None:
                notes.append(reason)
                continue
            if result.get(name) is None:
                notes.append("a run ended without a score")
                continue
            by_seed[run.seed] = scale * result[name]
            if result.get(f"control_{name}") is not None:
                control[run.seed] = scale * result[f"control_{name}"]
            notes += self._notes(run, result, first=len(by_seed) == 1)
        return Scores(by_seed, control, tuple(dict.fromkeys(notes)))

    def _notes(self, run: Run, result: dict[str, Any], *, first: bool) -> list[str]:
        """Return what a reader should know of one run."""
        notes = []
        asked, epochs = self.settings.epochs, run["epochs"]
        if epochs is not None and asked is not None and asked < EPOCHS:
            notes.append(CUT.format(epochs))
        elif epochs is not None and epochs < EPOCHS:
            notes.append(f"{epochs} epochs, where others have up to {EPOCHS}")
        if run["recovery"] == LITERAL:
            notes.append(LITERAL_NOTE)
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
        """Return a row with mean and spread, the paper's number and the reason of a disagreement.

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
        over = None
        if controls and measure in (score.name for score in MEASURES.values()):
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
        )

    def score_row(
        self, figure: str, system: str, scores: Scores, *, task: str, **about: Any
    ) -> Row:
        """Return the row of a task's main score."""
        measure = MEASURES[task]
        name = SYSTEM_NAMES.get(system, system)
        digits = measure.digits
        return self.row(figure, name, measure.name, scores, digits=digits, task=task, **about)
