"""The rows of the paper's figures, and with them the runs that each figure needs.

A figure is a function of a `PaperEvaluation`, whose `lookup` returns the outcome of a run. To plan,
it is called with a `lookup` that only records runs: what is run is exactly what is shown.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lumos.training.profile import PAPER, STRICT
from reproduce import reported
from reproduce.dense import DENSE_EPSILONS, DIMENSIONS
from reproduce.device_model import DeviceModel
from reproduce.evaluation import (
    MEASURES,
    NOT_RUN,
    SYSTEM_NAMES,
    Outcome,
    PaperEvaluation,
    Row,
    Scores,
    points,
    relative,
)
from reproduce.runs import BALANCERS, LITERAL, ONE_SCORE, Run
from reproduce.settings import EPSILONS, Dataset, Settings

DENSE_NAMES = {LITERAL: "Lumos paper, literal", PAPER: SYSTEM_NAMES[PAPER]}
"""Names of systems in the figure of dense features, by variant."""
COMPARED_SYSTEMS = {"classify": ("centralized", "lpgnn", "naive"), "link": ("centralized", "naive")}
"""By task; LPGNN has no link prediction."""
LABEL_NOTE = "ε is the whole guarantee about a label, in the randomized label and in sums"
STRICT_ABLATION = (
    "strict: nobody carries an edge there, so there are no trees to trim, and stars are refused "
    "because they carry the number of neighbours in their normalisation"
)
SUFFIXES = {"": "", "stars": ", no virtual nodes", "untrimmed": ", no trimming"}
"""Suffix of a system's name, by what is taken away."""
GAINS = {"stars": reported.OVER_STARS, "untrimmed": reported.OVER_UNTRIMMED}
"""By what is taken away: the measure of what the whole gains."""
WORKLOAD_MEASURES = {
    "none": reported.UNTRIMMED_LARGEST,
    "greedy": "largest workload of Algorithm 1",
}
"""By balancer; `reported.LARGEST` for the others."""
MESSAGES_ALL = "messages per device and epoch, masked sum included"
SECONDS = "simulated seconds per epoch"
COST_MEASURES = (
    ("messages per device and epoch", "tree_messages", reported.MESSAGES_SAVED, 1),
    (MESSAGES_ALL, "messages", "messages saved, masked sum included, %", 1),
    (SECONDS, "seconds", reported.TIME_SAVED, 3),
    (
        "simulated seconds per epoch, masked sum left out",
        "seconds_without_sum",
        "epoch time saved, masked sum left out, %",
        3,
    ),
    (
        "simulated seconds per epoch, latency left out",
        "seconds_without_latency",
        "epoch time saved, latency left out, %",
        3,
    ),
)
"""Measure, its field in a result, the measure of what trimming saves, decimal places."""
SAVINGS = {
    saving: field
    for _, field, saving, _ in COST_MEASURES
    if saving in (reported.MESSAGES_SAVED, reported.TIME_SAVED)
}
"""By measure of the paper: the field of a result in which trimming saves."""


def comparison_rows(evaluation: PaperEvaluation, figure: str, task: str) -> list[Row]:
    """Return scores of every system at ε = 2, then the differences of the paper."""
    seeds = range(evaluation.settings.seeds)
    to_points = 100.0 / MEASURES[task].scale
    rows, derived = [], []
    for backbone in evaluation.settings.backbones:
        about: dict[str, Any] = {"task": task, "backbone": backbone}
        baselines = {
            system: evaluation.baseline(system, task, backbone) for system in COMPARED_SYSTEMS[task]
        }
        for profile in evaluation.profiles:
            ours = evaluation.train(profile, task, backbone, 2.0, seeds)
            key: dict[str, Any] = {**about, "epsilon": 2.0, "why": profile}
            if (profile, task) in ONE_SCORE:
                key["why"] = f"{profile} {task}"
            else:
                rows.append(evaluation.score_row(figure, profile, ours, **key))
            differences = {
                reported.AGAINST_CENTRALIZED: points(ours, baselines["centralized"], to_points)
            }
            if "lpgnn" in baselines:
                differences[reported.AGAINST_LPGNN] = points(ours, baselines["lpgnn"], to_points)
            differences[reported.AGAINST_NAIVE] = relative(ours, baselines["naive"])
            derived += [
                evaluation.row(figure, SYSTEM_NAMES[profile], measure, scores, **key)
                for measure, scores in differences.items()
            ]
        for system, scores in baselines.items():
            about["epsilon"] = None if system == "centralized" else 2.0
            rows.append(evaluation.score_row(figure, system, scores, **about))
    for profile in (profile for profile in evaluation.profiles if (profile, task) in ONE_SCORE):
        ours = evaluation.only_score(profile, task, seeds)
        rows.append(evaluation.score_row(figure, profile, ours, task=task))
    own = evaluation.baseline("own", task, "gcn")
    return [*rows, evaluation.score_row(figure, "own", own, task=task), *derived]


def epsilon_rows(evaluation: PaperEvaluation) -> list[Row]:
    """Return scores of both tasks with GCN over ε, then the gains over ε = 0.5.

    The paper's ε covers no label; that of the strict profile covers it in the randomized label and
    in sums. Strict links release nothing, so they have one row: the ε of their sums is another
    quantity.
    """
    rows, derived = [], []
    seeds = range(evaluation.settings.other_seeds)
    for task in MEASURES:
        for variant in evaluation.variants:
            if (variant, task) in ONE_SCORE:
                scores = evaluation.only_score(variant, task, seeds)
                rows.append(evaluation.score_row("epsilon", variant, scores, task=task))
                continue
            by_epsilon = {e: _epsilon_scores(evaluation, variant, task, e, seeds) for e in EPSILONS}
            least = by_epsilon[min(by_epsilon)]
            for e, scores in by_epsilon.items():
                about: dict[str, Any] = {"task": task, "backbone": "gcn", "epsilon": e}
                rows.append(evaluation.score_row("epsilon", variant, scores, **about))
                if e > min(by_epsilon):
                    gain = relative(scores, least)
                    controls = relative(Scores(scores.control), Scores(least.control))
                    gain = Scores(gain.by_seed, controls.by_seed, gain.notes)
                    name, measure = SYSTEM_NAMES[variant], reported.RELATIVE_TO_HALF
                    derived.append(
                        evaluation.row("epsilon", name, measure, gain, why=variant, **about)
                    )
    return rows + derived


def _epsilon_scores(
    evaluation: PaperEvaluation, variant: str, task: str, epsilon: float, seeds: Sequence[int]
) -> Scores:
    """Return scores, with a note on what ε guarantees a label."""
    scores = evaluation.train(variant, task, "gcn", epsilon, seeds)
    if task != "classify" or variant != STRICT or not scores.by_seed:
        return scores
    return replace(scores, notes=(*scores.notes, LABEL_NOTE))


def ablation_rows(evaluation: PaperEvaluation) -> list[Row]:
    """Return scores with and without virtual nodes and tree trimming, then the gains."""
    rows: list[Row] = []
    gains: list[Row] = []
    for task in MEASURES:
        for backbone in evaluation.settings.backbones:
            about: dict[str, Any] = {"task": task, "backbone": backbone, "epsilon": 2.0}
            if PAPER in evaluation.profiles:
                _ablate(evaluation, PAPER, ("stars", "untrimmed"), about, rows, gains)
            if LITERAL in evaluation.variants and backbone == "gcn":
                _ablate(evaluation, LITERAL, ("stars",), about, rows, gains)
            if STRICT in evaluation.profiles:
                none = Scores.single(None, STRICT_ABLATION)
                name = SYSTEM_NAMES[STRICT]
                gains.append(evaluation.row("ablation", name, "ablation", none, **about))
    return rows + gains


def _ablate(
    evaluation: PaperEvaluation,
    variant: str,
    ablations: Sequence[str],
    about: dict[str, Any],
    rows: list[Row],
    gains: list[Row],
) -> None:
    """Add scores of the whole and without each of the modules, and the gains over those."""
    task, backbone, name = about["task"], about["backbone"], SYSTEM_NAMES[variant]
    seeds = range(evaluation.settings.other_seeds)
    whole = evaluation.train(variant, task, backbone, 2.0, seeds)
    rows.append(evaluation.score_row("ablation", name, whole, **about))
    for ablation in ablations:
        runs = [evaluation.runs.ablated(ablation, variant, task, backbone, s) for s in seeds]
        scores = evaluation.scores(runs, task)
        rows.append(evaluation.score_row("ablation", name + SUFFIXES[ablation], scores, **about))
        if ablation == "stars":
            gain, digits = points(whole, scores, 100.0 / MEASURES[task].scale), 2
        else:
            gain, digits = relative(whole, scores), 3
        gains.append(
            evaluation.row(
                "ablation", name, GAINS[ablation], gain, why=variant, digits=digits, **about
            )
        )


def balancer_name(evaluation: PaperEvaluation, balancer: str) -> str:
    """Return the name of a balancer in tables."""
    steps = f"mcmc {evaluation.dataset.iterations:,} steps"
    return {"none": "no trimming", "mcmc": steps}.get(balancer, balancer)


def workload_rows(evaluation: PaperEvaluation) -> list[Row]:
    """Return largest workloads with and without tree trimming."""
    rows = []
    for balancer in BALANCERS:
        result, reason = evaluation.lookup(evaluation.runs.trees(balancer))
        scores = Scores.single(None, reason)
        if result is not None:
            note = f"least possible {result['lower_bound']}"
            note += ", reached" if result["optimal"] else ""
            scores = Scores.single(float(result["max_workload"]), note)
        rows.append(
            evaluation.row(
                "workload",
                balancer_name(evaluation, balancer),
                WORKLOAD_MEASURES.get(balancer, reported.LARGEST),
                scores,
                why=PAPER if balancer == "mcmc" else balancer,
                digits=0,
            )
        )
    return rows


def distributions(evaluation: PaperEvaluation) -> dict[str, Any]:
    """Return by balancer [workload, devices with at most so much], the points of the plot."""
    results = {
        balancer: evaluation.lookup(evaluation.runs.trees(balancer)).result
        for balancer in BALANCERS
    }
    return {balancer: result["cdf"] for balancer, result in results.items() if result}


def cost_rows(evaluation: PaperEvaluation) -> list[Row]:
    """Return messages and simulated time of an epoch, for every balancer and the strict profile."""
    rows = []
    for task in MEASURES:
        if PAPER in evaluation.profiles:
            rows += _paper_cost(evaluation, task)
        if STRICT in evaluation.profiles:
            rows += _strict_cost(evaluation, task)
    return rows


def cost_by_balancer(
    evaluation: PaperEvaluation, task: str
) -> tuple[str, dict[str, dict[str, float]]]:
    """Return a note, and by balancer the messages and simulated seconds of an epoch."""
    outcome = Outcome(reason=f"{evaluation.dataset.name}: there are no labels to train on")
    if task == "link" or evaluation.dataset.classes:
        outcome = evaluation.lookup(evaluation.runs.cost(task))
    note, by_balancer = outcome.reason, dict[str, dict[str, float]]()
    if outcome.result is not None:
        note = ""
        for balancer, one in outcome.result["by"].items():
            without = one["seconds"] - DeviceModel().latency * one["rounds"]
            by_balancer[balancer] = {**one, "seconds_without_latency": without}
        if outcome.result["stand_in_features"]:
            note = "features stand in: 128 of them as in the paper, only their number matters"
    return note, by_balancer


def _paper_cost(evaluation: PaperEvaluation, task: str) -> list[Row]:
    note, by_balancer = cost_by_balancer(evaluation, task)
    rows, saved = [], []
    for measure, name, saving, digits in COST_MEASURES:
        whole = by_balancer.get("none", {}).get(name)
        for balancer in BALANCERS:
            value = by_balancer.get(balancer, {}).get(name)
            system = f"{SYSTEM_NAMES[PAPER]}, {balancer_name(evaluation, balancer)}"
            scores = Scores.single(value, note)
            rows.append(evaluation.row("cost", system, measure, scores, task=task, digits=digits))
            if balancer != "none":
                less = 100 * (1 - value / whole) if value is not None and whole else None
                scores = Scores.single(less, note)
                saved.append(evaluation.row("cost", system, saving, scores, task=task, why=task))
    return rows + saved


def _strict_cost(evaluation: PaperEvaluation, task: str) -> list[Row]:
    """Return rows from the ledger of a training run: there are no trees to trim."""
    outcome = Outcome(reason=evaluation.dataset.lacks(task))
    if not outcome.reason:
        outcome = evaluation.lookup(evaluation.runs.train(STRICT, task, "gcn", 2.0, 0))
    messages = seconds = None
    note = outcome.reason
    if outcome.result is not None:
        epoch, device = outcome.result["per_epoch"], DeviceModel()
        up = epoch["bytes_sent_largest"] + device.header * epoch["messages_sent_largest"]
        down = epoch["bytes_received_largest"] + device.header * epoch["messages_received_largest"]
        messages = epoch["messages_sent_mean"]
        seconds = epoch["rounds"] * device.latency + up / device.upload + down / device.download
        note = (
            "no trees, so nothing to trim; mean over the stages of training; largest traffic of "
            "any device, its computation left out"
        )
    return [
        evaluation.row(
            "cost",
            SYSTEM_NAMES[STRICT],
            measure,
            Scores.single(value, note),
            task=task,
            digits=digits,
        )
        for measure, value, digits in ((MESSAGES_ALL, messages, 1), (SECONDS, seconds, 3))
    ]


def dense_rows(evaluation: PaperEvaluation) -> list[Row]:
    """Return accuracies on few dense features over ε, with controls and the local model."""
    dataset, rows = evaluation.dataset, []
    if PAPER not in evaluation.profiles:
        return []
    measure = MEASURES["classify"].name
    for dimension in (one for one in DIMENSIONS if one < dataset.features):
        local = Scores.single(None, dataset.lacks("classify") or NOT_RUN)
        for variant in (LITERAL, PAPER):
            about: dict[str, Any] = {"task": "classify", "backbone": "gcn"}
            name = f"{DENSE_NAMES[variant]}, {dimension} features"
            for epsilon in DENSE_EPSILONS:
                run = evaluation.runs.dense(dimension, variant, epsilon)
                scores = evaluation.scores([run], "classify")
                rows.append(
                    evaluation.row("dense", name, measure, scores, epsilon=epsilon, **about)
                )
                result = evaluation.lookup(run).result or {}
                if "own_test_accuracy" in result:
                    local = Scores.single(100 * result["own_test_accuracy"])
        name = f"{SYSTEM_NAMES['own']}, {dimension} features"
        rows.append(evaluation.row("dense", name, measure, local, task="classify"))
    return rows


FIGURES: dict[str, Callable[[PaperEvaluation], list[Row]]] = {
    "classification": partial(comparison_rows, figure="classification", task="classify"),
    "link-prediction": partial(comparison_rows, figure="link-prediction", task="link"),
    "epsilon": epsilon_rows,
    "ablation": ablation_rows,
    "workload": workload_rows,
    "cost": cost_rows,
    "dense": dense_rows,
}
"""The rows of each figure, in the paper's order, then one that the paper does not have."""
SHORT_FIGURES = ("classification", "link-prediction", "workload", "cost")
"""Figures of the quick form."""


def runs_of(
    figures: Sequence[str], dataset: Dataset, settings: Settings, profiles: tuple[str, ...]
) -> list[Run]:
    """Return every run that the figures need, once, seed by seed."""
    found: dict[Run, None] = {}

    def record(run: Run) -> Outcome:
        found[run] = None
        return Outcome()

    evaluation = PaperEvaluation(
        dataset=dataset, settings=settings, lookup=record, profiles=profiles
    )
    for name in figures:
        FIGURES[name](evaluation)
    return sorted(found, key=lambda run: run.seed)
