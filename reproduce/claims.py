"""The claims of the paper's evaluation, one line each, with our numbers and a verdict.

Every number is looked up in results by a `PaperEvaluation`; nothing is computed here. A line has
one number for each backbone or ε of the claim.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from lumos.training.profile import PAPER, STRICT
from reproduce import reported
from reproduce.evaluation import MEASURES, PaperEvaluation, Scores, points, relative
from reproduce.figures import SAVINGS, cost_by_balancer
from reproduce.runs import LITERAL, ONE_SCORE

Verdict = Literal["reproduced", "partly", "not reproduced", "not run"]
NUMBERS = {
    "classification": "Fig. 3",
    "link-prediction": "Fig. 4",
    "epsilon": "Fig. 5",
    "ablation": "Fig. 6",
    "workload": "Fig. 7",
    "cost": "Fig. 8",
}
"""The paper's figure, by the name of ours."""
HEADINGS = (
    "figure",
    "claim",
    "paper's number",
    "ours, literal",
    "ours, corrected",
    "strict",
    "verdict",
    "command",
)
NONE = "–"
BACKBONES = ("gcn", "gat")
RULE = (
    f"A number *agrees* if it is within {reported.TOLERANCE:g} (points, percent or edges) of the "
    "paper's, or keeps the paper's bound. It is *near* if it has the same sign and between half "
    "and twice the size. *Reproduced*: all numbers of the claim agree. *Partly*: at least one "
    "agrees or is near. *Not reproduced*: none. The verdict is the better one of literal and "
    "corrected; strict is another design and does not count."
)
BRACKETS = (
    "The paper prints differences and no scores. Scores in brackets are filled in: its "
    "centralized model is taken to score as ours, and the others follow by its differences. In "
    "Fig. 6 they are those of Lumos without the module."
)
LITERAL_COLUMN = (
    "*Literal*: features are recovered as printed, seed 0, GCN only; the epoch is chosen on "
    "validation as in all runs. *Corrected*: our recovery. Fig. 7 and 8: the paper's Algorithms 1 "
    "to 3, and our balancer `optimal`."
)
Column = Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One claim on one graph."""

    figure: str
    """Name of the figure, as in `FIGURES`."""
    graph: str
    claim: str
    paper: tuple[float, ...]
    """The paper's numbers: by backbone, by ε, or one."""
    paper_scores: tuple[float | None, ...] = ()
    """Scores that follow from them and from our centralized model; see `filled_in`. Those of an
    ablation are without the module."""
    literal: tuple[float | None, ...] = ()
    literal_scores: tuple[float | None, ...] = ()
    corrected: tuple[float | None, ...] = ()
    corrected_scores: tuple[float | None, ...] = ()
    strict: tuple[float | None, ...] = ()
    strict_scores: tuple[float | None, ...] = ()
    shown: str = "{:+.2f}"
    """Format of the paper's number, as in `reported.Claim`."""
    digits: int = 2
    signed: bool = True
    score_digits: int = 2
    counted: tuple[str, ...] = ("literal", "corrected")
    """Columns that count for the verdict."""
    run: str = ""
    """The command, if it is not that of the figure."""

    @property
    def verdict(self) -> Verdict:
        """The verdict by `RULE`."""
        return min((self._verdict(getattr(self, name)) for name in self.counted), key=ORDER.index)

    def _verdict(self, ours: Column) -> Verdict:
        if not any(value is not None for value in ours):
            return "not run"
        agree = [
            value is not None and self._agrees(paper, value)
            for paper, value in zip(self.paper, ours, strict=False)
        ]
        if all(agree) and len(agree) == len(self.paper):
            return "reproduced"
        near = [
            value is not None and self.shown[0] == "{" and 0.5 <= value / paper <= 2
            for paper, value in zip(self.paper, ours, strict=False)
        ]
        return "partly" if any(agree) or any(near) else "not reproduced"

    def _agrees(self, paper: float, ours: float) -> bool:
        if self.shown.startswith("above"):
            return ours > paper
        if self.shown.startswith("below"):
            return abs(ours) <= paper
        return abs(ours - paper) <= reported.TOLERANCE

    @property
    def command(self) -> str:
        """The command that prints the numbers."""
        return f"`{self.run or f'python -m reproduce {self.figure} --graph {self.graph}'}`"

    def cells(self) -> tuple[str, ...]:
        """Return the texts of `HEADINGS`."""
        paper = [self.shown.format(number) for number in self.paper]
        return (
            NUMBERS[self.figure],
            self.claim,
            _joined(self._with_scores(paper, self.paper_scores)),
            *(self._cell(name) for name in ("literal", "corrected", "strict")),
            self.verdict,
            self.command,
        )

    def _cell(self, column: str) -> str:
        numbers: Column = getattr(self, column)
        sign = "+" if self.signed else ""
        texts = [NONE if n is None else f"{n:{sign},.{self.digits}f}" for n in numbers]
        return _joined(self._with_scores(texts, getattr(self, f"{column}_scores")))

    def _with_scores(self, texts: Sequence[str], scores: Column) -> list[str]:
        shown = [*scores, *[None] * len(texts)]
        return [
            text if score is None or text == NONE else f"{text} ({score:.{self.score_digits}f})"
            for text, score in zip(texts, shown, strict=False)
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the line as a JSON object."""
        return {**asdict(self), "verdict": self.verdict, "command": self.command.strip("`")}


ORDER: tuple[Verdict, ...] = ("reproduced", "partly", "not reproduced", "not run")


def _joined(texts: Sequence[str]) -> str:
    return NONE if all(text == NONE for text in texts) else " / ".join(texts)


def _mean(scores: Scores) -> float | None:
    values = list(scores.by_seed.values())
    return float(np.mean(values)) if values else None


def _means(scores: Sequence[Scores]) -> tuple[float | None, ...]:
    return tuple(map(_mean, scores))


def lines_of(evaluation: PaperEvaluation) -> list[Line]:
    """Return the claims about one graph in the order of the paper; none for other graphs."""
    if not evaluation.dataset.paper_name:
        return []
    return [line for make in _LINES for line in make(evaluation)]


def variant_scores(
    evaluation: PaperEvaluation, variant: str, task: str, backbone: str, epsilon: float = 2.0
) -> Scores:
    """Return the scores at hand: one seed of GCN for literal, one run for strict links."""
    seeds = range(evaluation.settings.seeds)
    if variant == LITERAL:
        seeds = range(evaluation.settings.other_seeds)
        if backbone != "gcn":
            return Scores()
    if (variant, task) in ONE_SCORE:
        return evaluation.only_score(variant, task, seeds)
    if epsilon != 2.0:
        seeds = range(evaluation.settings.other_seeds)
    return evaluation.train(variant, task, backbone, epsilon, seeds)


SYSTEMS = (
    ("lumos", LITERAL, "Lumos, literal recovery"),
    ("lumos", PAPER, "Lumos, corrected"),
    ("", STRICT, "strict"),
    ("centralized", "centralized", "centralized"),
    ("lpgnn", "lpgnn", "LPGNN"),
    ("naive", "naive", "naive FedGNN"),
    ("", "own", "local model, unprotected"),
)
"""Key of `filled_in`, variant or baseline, name."""


def has_backbone(system: str, task: str) -> bool:
    """Return whether a system has a score for each backbone."""
    return system != "own" and (system, task) not in ONE_SCORE


def system_scores(evaluation: PaperEvaluation, system: str, task: str, backbone: str) -> Scores:
    """Return the scores of a variant of Lumos or of a baseline at ε = 2."""
    if system in VARIANTS.values():
        return variant_scores(evaluation, system, task, backbone)
    return (
        Scores()
        if (system, task) == ("lpgnn", "link")
        else evaluation.baseline(system, task, backbone)
    )


def _paper_numbers(figure: str, measure: str, task: str, graph: str) -> tuple[float, ...]:
    found = [
        claim.of(graph)
        for claim in reported.CLAIMS
        if (claim.figure, claim.measure, claim.task) == (figure, measure, task)
    ]
    return tuple(number for number in found if number is not None)


VARIANTS = {"literal": LITERAL, "corrected": PAPER, "strict": STRICT}


def filled_in(evaluation: PaperEvaluation, task: str) -> dict[str, tuple[float | None, ...]]:
    """Return the scores of the paper's systems, by backbone, from its differences.

    The paper prints differences only. Its centralized model is taken to score as ours, and
    everything else follows: Lumos by its loss, LPGNN and naive FedGNN by Lumos' gains over them.
    """
    name, graph = MEASURES[task], evaluation.dataset.paper_name
    figure = "classification" if task == "classify" else "link-prediction"
    unit = name.scale / 100.0
    own = _means([evaluation.baseline("centralized", task, b) for b in BACKBONES])
    lost = _paper_numbers(figure, reported.AGAINST_CENTRALIZED, task, graph)
    lumos = tuple(None if a is None else a + unit * b for a, b in zip(own, lost, strict=True))
    found = {"centralized": own, "lumos": lumos}
    if task == "classify":
        gain = _paper_numbers(figure, reported.AGAINST_LPGNN, task, graph)
        found["lpgnn"] = _each(lumos, gain, lambda score, number: score - unit * number)
    gain = _paper_numbers(figure, reported.AGAINST_NAIVE, task, graph)
    found["naive"] = _each(lumos, gain, lambda score, number: score / (1 + number / 100))
    gain = _paper_numbers("ablation", reported.OVER_STARS, task, graph)
    found["stars"] = _each(lumos, gain, lambda score, number: score - unit * number)
    half = _paper_numbers("epsilon", reported.RELATIVE_TO_HALF, task, graph)
    at_half = None if lumos[0] is None else lumos[0] / (1 + half[1] / 100)
    found["epsilon"] = (
        at_half,
        *(None if at_half is None else at_half * (1 + number / 100) for number in half),
    )
    return found


def _each(
    scores: Column, numbers: Sequence[float], derive: Callable[[float, float], float]
) -> tuple[float | None, ...]:
    return tuple(
        None if score is None else derive(score, number)
        for score, number in zip(scores, numbers, strict=True)
    )


def _comparison(evaluation: PaperEvaluation, figure: str, task: str) -> list[Line]:
    measure = MEASURES[task]
    what = "accuracy" if task == "classify" else "ROC-AUC"
    paper_scores = filled_in(evaluation, task)["lumos"]
    ours = {
        column: [variant_scores(evaluation, variant, task, backbone) for backbone in BACKBONES]
        for column, variant in VARIANTS.items()
    }
    claims = [("centralized", reported.AGAINST_CENTRALIZED, f"{what} lost to a centralized model")]
    if task == "classify":
        claims.append(("lpgnn", reported.AGAINST_LPGNN, f"{what} gained over LPGNN"))
    claims.append(("naive", reported.AGAINST_NAIVE, f"{what} gained over naive FedGNN"))
    found = []
    for system, name, claim in claims:
        others = [evaluation.baseline(system, task, backbone) for backbone in BACKBONES]
        to_points = 100.0 / measure.scale
        columns: dict[str, Any] = {}
        for column, scores in ours.items():
            differences = [
                relative(one, other) if system == "naive" else points(one, other, to_points)
                for one, other in zip(scores, others, strict=True)
            ]
            columns[column] = _means(differences)
            columns[f"{column}_scores"] = _means(scores)
        unit = "relative %" if system == "naive" else "points"
        found.append(
            Line(
                figure=figure,
                graph=evaluation.dataset.name,
                claim=f"{claim}, {unit}, GCN / GAT",
                paper=_paper_numbers(figure, name, task, evaluation.dataset.paper_name),
                paper_scores=paper_scores,
                score_digits=1 if task == "classify" else 3,
                **columns,
            )
        )
    return found


def _epsilon(evaluation: PaperEvaluation) -> list[Line]:
    found = []
    for task in MEASURES:
        what = "accuracy" if task == "classify" else "ROC-AUC"
        columns: dict[str, Any] = {}
        for column, variant in VARIANTS.items():
            if (variant, task) in ONE_SCORE:
                continue
            one_seed = range(evaluation.settings.other_seeds)
            by = [
                evaluation.train(variant, task, "gcn", epsilon, one_seed)
                for epsilon in (0.5, 1.0, 2.0, 4.0)
            ]
            columns[column] = _means([relative(scores, by[0]) for scores in by[1:]])
            columns[f"{column}_scores"] = _means(by[1:])
        found.append(
            Line(
                figure="epsilon",
                graph=evaluation.dataset.name,
                claim=f"{what} gained from ε = 0.5 to 1 / 2 / 4, relative %, GCN",
                paper=_paper_numbers(
                    "epsilon", reported.RELATIVE_TO_HALF, task, evaluation.dataset.paper_name
                ),
                paper_scores=filled_in(evaluation, task)["epsilon"][1:],
                score_digits=1 if task == "classify" else 3,
                **columns,
            )
        )
    return found


def _ablation(evaluation: PaperEvaluation) -> list[Line]:
    found = []
    seeds = range(evaluation.settings.other_seeds)
    modules = (
        ("stars", reported.OVER_STARS, "gained by virtual nodes, points", "{:+.2f}", 2),
        ("untrimmed", reported.OVER_UNTRIMMED, "changed by trimming, relative %", "below {:g}", 2),
    )
    for ablation, name, claim, shown, digits in modules:
        for task in MEASURES:
            what = "accuracy" if task == "classify" else "ROC-AUC"
            columns: dict[str, Any] = {}
            for column, variant in (("literal", LITERAL), ("corrected", PAPER)):
                differences, ablated = [], []
                for backbone in BACKBONES:
                    if variant == LITERAL and (backbone != "gcn" or ablation != "stars"):
                        differences.append(Scores())
                        ablated.append(Scores())
                        continue
                    whole = evaluation.train(variant, task, backbone, 2.0, seeds)
                    runs = [
                        evaluation.runs.ablated(ablation, variant, task, backbone, seed)
                        for seed in seeds
                    ]
                    without = evaluation.scores(runs, task)
                    ablated.append(without)
                    differences.append(
                        points(whole, without, 100.0 / MEASURES[task].scale)
                        if ablation == "stars"
                        else relative(whole, without)
                    )
                columns[column] = _means(differences)
                columns[f"{column}_scores"] = _means(ablated)
            theirs = filled_in(evaluation, task)["stars" if ablation == "stars" else "lumos"]
            found.append(
                Line(
                    figure="ablation",
                    graph=evaluation.dataset.name,
                    claim=f"{what} {claim}, GCN / GAT",
                    paper=_paper_numbers("ablation", name, task, evaluation.dataset.paper_name),
                    paper_scores=theirs,
                    score_digits=1 if task == "classify" else 3,
                    shown=shown,
                    digits=digits,
                    **columns,
                )
            )
    return found


def _workload(evaluation: PaperEvaluation) -> list[Line]:
    largest = {}
    for balancer in ("none", "mcmc", "optimal"):
        result = evaluation.lookup(evaluation.runs.trees(balancer)).result
        largest[balancer] = None if result is None else float(result["max_workload"])
    graph, steps = evaluation.dataset, evaluation.dataset.iterations
    common: dict[str, Any] = {"figure": "workload", "graph": graph.name, "digits": 0}
    common |= {"signed": False, "counted": ("literal",)}
    theirs = [
        _paper_numbers("workload", measure, "", graph.paper_name)
        for measure in (reported.UNTRIMMED_LARGEST, reported.LARGEST)
    ]
    return [
        Line(
            claim="largest workload without trimming",
            paper=theirs[0],
            literal=(largest["none"],),
            shown="above {:g}",
            **common,
        ),
        Line(
            claim=f"largest workload after {steps:,} MCMC steps (corrected: `optimal`)",
            paper=theirs[1],
            literal=(largest["mcmc"],),
            corrected=(largest["optimal"],),
            shown="{:g}",
            **common,
        ),
    ]


def _cost(evaluation: PaperEvaluation) -> list[Line]:
    found = []
    for measure, field in SAVINGS.items():
        for task in MEASURES:
            by = cost_by_balancer(evaluation, task)[1]
            whole = by.get("none", {}).get(field)
            saved = [
                100 * (1 - by[balancer][field] / whole) if whole and balancer in by else None
                for balancer in ("mcmc", "optimal")
            ]
            what = "messages per device and epoch" if "messages" in measure else "epoch time"
            found.append(
                Line(
                    figure="cost",
                    graph=evaluation.dataset.name,
                    claim=f"{what} saved, %, {task} (corrected: `optimal`)",
                    paper=_paper_numbers("cost", measure, task, evaluation.dataset.paper_name),
                    literal=(saved[0],),
                    corrected=(saved[1],),
                    shown="{:.2f}",
                    signed=False,
                    counted=("literal",),
                )
            )
    return found


_LINES: tuple[Callable[[PaperEvaluation], list[Line]], ...] = (
    lambda evaluation: _comparison(evaluation, "classification", "classify"),
    lambda evaluation: _comparison(evaluation, "link-prediction", "link"),
    _epsilon,
    _ablation,
    _workload,
    _cost,
)
