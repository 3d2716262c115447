"""Texts of the strict profile for reports, and its guarantees in plain English."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from lumos.strict.classify.stages import CANDIDATES, ClassifySchedule
from lumos.strict.features import FeatureScaling
from lumos.strict.guarantees import ANSWERS, FOR_LIFE, NEWLY
from lumos.strict.link.levels import ALONE, BOTH, SKETCH, TOKENS
from lumos.strict.link.stages import COUNTS, LinkSchedule
from lumos.strict.settings import (
    CLASSIFY_ONLY,
    LINK_ONLY,
    NOT_USED,
    OF_TREES,
    settings_of,
)
from lumos.strict.stages import Schedule
from lumos.training.config import Config
from lumos.training.guarantees import (
    ABOUT,
    AGAINST,
    EDGE_ADDED_OR_REMOVED,
    EDGE_REPLACED,
    FEATURES_REPLACED,
    LABEL_REPLACED,
    MAX_TOLD_APART,
    NO_GUARANTEE,
    RECORD_REPLACED,
    TOLD_APART,
    TOLD_APART_FOR_LIFE,
    WEAK,
    cells_of,
    guess_bound,
    in_percent,
)
from lumos.training.profile import LOSS, ProfileTexts, RunSizes, SumStage, TreeTexts
from lumos.trees.balancers import TreeSettings

SURE = 0.9
"""Probability of a right guess without a device, in the second example that is printed."""
_NUMBER = r"[\d.e+-]+"
_FIGURE = re.compile(
    rf"ε = (?P<pure>{_NUMBER}), pure|\((?P<both>{_NUMBER}), (?P<delta>{_NUMBER})\)"
)
Rows = Mapping[str, Mapping[str, Any]]
Lines = list[tuple[str, str]]


class _Figure(NamedTuple):
    epsilon: float
    delta: str

    def __str__(self) -> str:
        return f"({self.epsilon:g}, {self.delta})" if self.delta else f"ε = {self.epsilon:g}"


def classify_in_words(guarantees: Sequence[Mapping[str, Any]], classes: int) -> Lines:
    """Return a line each on label, features, edges and what is not protected, and on who sees it.

    Args:
        classes: number of classes of the label.
    """
    rows = {row[ABOUT]: row for row in guarantees}
    label = rows[LABEL_REPLACED]
    lines = [
        ("Label", f"{_told(rows, 'labels', LABEL_REPLACED)} {_guesses(label, classes)}"),
        ("Features", _told(rows, "alternatives", FEATURES_REPLACED, RECORD_REPLACED)),
        ("Edge", _told(rows, "alternatives", EDGE_ADDED_OR_REMOVED, EDGE_REPLACED)),
        ("Not protected", _unprotected(rows)),
        ("", _adversary(label, guarantees)),
    ]
    return [(title, text) for title, text in lines if text]


def link_in_words(guarantees: Sequence[Mapping[str, Any]], classes: int = 0) -> Lines:
    """Return the same for links: features enter sums and score queries, which are counted."""
    rows = {row[ABOUT]: row for row in guarantees}
    features = rows[FEATURES_REPLACED]
    counted = features[ANSWERS].removeprefix(f"{NO_GUARANTEE} beyond their number: ")
    counted = counted.removeprefix(f"{NO_GUARANTEE}: ")
    by_sums = _told(rows, "alternatives", FEATURES_REPLACED)
    return [
        ("Label", f"not used{_in_life(rows[LABEL_REPLACED])}."),
        ("Features", f"{by_sums} Score queries add: {counted}.".strip()),
        ("Not protected", _unprotected(rows)),
        ("", _adversary(features, guarantees)),
    ]


def _told(rows: Rows, alternatives: str, *relations: str) -> str:
    """Return (ε, δ) of some relations, and in how many cases two alternatives are told apart.

    Relations about which nothing is guaranteed are left out; they are listed elsewhere.
    """
    known = [rows[about] for about in relations if rows[about][TOLD_APART] is not None]
    first = f"two equally likely {alternatives} are told apart in "
    parts = [
        f"{_figures(row)[0]} ({row[ABOUT]}): {first * (row is known[0])}"
        f"{in_percent(row[TOLD_APART])}{_in_life(row)}"
        for row in known
    ]
    return f"{'; '.join(parts)}." if parts else ""


def _in_life(row: Mapping[str, Any]) -> str:
    """Return the same figures for all runs with an account; nothing where there is none."""
    if TOLD_APART_FOR_LIFE not in row:
        return ""
    bound = row[TOLD_APART_FOR_LIFE]
    figure = "" if bound is None else f" {_figures(row)[1]}"
    return f", in all runs with this account{figure}: {in_percent(bound)}"


def _guesses(label: Mapping[str, Any], classes: int) -> str:
    """Return examples of how much better a label is guessed, for the whole guarantee."""
    in_run, for_life = _figures(label)
    epsilon = max(in_run, for_life).epsilon
    fair, sure = (guess_bound(epsilon, prior) for prior in (1 / classes, SURE))
    return (
        f"An attacker who would guess it in {100 / classes:.3g} % of cases without this device "
        f"({classes} equally likely classes) guesses it in at most {100 * fair:.3g} %; one who is "
        f"already {100 * SURE:g} % sure, in at most {100 * sure:.3g} %."
    )


def _unprotected(rows: Rows) -> str:
    """Return the relations about which nothing is guaranteed."""
    nothing = [about for about, row in rows.items() if about != NEWLY and row[TOLD_APART] is None]
    return f"{', '.join(nothing)}." if nothing else ""


def _adversary(row: Mapping[str, Any], guarantees: Sequence[Mapping[str, Any]]) -> str:
    """Return who sees it, and what weak means."""
    weak = f" (weak: above {100 * MAX_TOLD_APART:g} %)" * any(each[WEAK] for each in guarantees)
    return f"These bounds{weak} hold against {row[AGAINST]}."


def _figures(row: Mapping[str, Any]) -> tuple[_Figure, _Figure]:
    """Return the largest figures of any column, for this run and for life."""
    largest = {True: _Figure(0.0, ""), False: _Figure(0.0, "")}
    for name, cell in cells_of(row).items():
        if (found := _FIGURE.match(cell)) is not None:
            figure = _Figure(float(found["pure"] or found["both"]), found["delta"] or "")
            life = name.endswith(FOR_LIFE)
            largest[life] = max(largest[life], figure)
    return largest[False], largest[True]


_OWN, _NEIGHBOURS, _TREES_TOO = CANDIDATES
_CHOICES = {
    _OWN: "own features only, so neighbours did not count",
    _NEIGHBOURS: "own features together with the messages of neighbours",
    _TREES_TOO: "own features together with a tree network on the messages of neighbours",
    TOKENS: "the score bucket of two devices' tokens, and the asker's degree",
    SKETCH: "the score bucket of two devices' neighbourhood sketches, and the asker's degree",
    BOTH: "the score bucket of two devices' tokens and neighbourhood sketches, and the asker's "
    "degree",
    ALONE: "the asker's degree alone, so score queries did not count",
}
_TREES = TreeTexts(
    workload=(
        "A device's workload is the number of branches of its tree. In the strict profile every "
        "device builds one branch for each neighbour locally, so its workload is its degree, and "
        "devices do not compare workloads."
    ),
    own_leaf="the randomized label it released",
    other_leaf="the randomized label it received",
    builder="the device itself, locally",
)
_VALIDATION = {
    "classify": (
        "Validation devices fit the evidence weights and choose the model, with their randomized "
        "labels"
    ),
    "link": "Validation edges calibrate what a score bucket means",
}
_NOISY_LOSS = (
    "Training loss of each epoch, as all devices learn it from a sum: clipped together with the "
    "updates, and with the noise that protects them. So it differs from the true loss, and may be "
    "negative."
)


def texts(config: Config) -> ProfileTexts:
    """Return the texts of reports about a run."""
    # Nothing is balanced; links are scored in the group.
    of_trees = {field.name for field in dataclasses.fields(TreeSettings)} - {"group"}
    return ProfileTexts(
        trees=None if config.train.task == "link" else _TREES,
        guarantee=link_in_words if config.train.task == "link" else classify_in_words,
        loss=_NOISY_LOSS if settings_of(config).protect == "noise" else LOSS,
        stages=_stages(config),
        sums=partial(described_stages, config),
        choices=_CHOICES,
        validation=_VALIDATION["link" if config.train.task == "link" else "classify"],
        **(_links(config) if config.train.task == "link" else {}),
        unused_settings=NOT_USED | of_trees | _of_other_task(config.train.task),
    )


def _of_other_task(task: str) -> frozenset[str]:
    """Return the settings of the other task; links have no tree network."""
    return CLASSIFY_ONLY | OF_TREES if task == "link" else LINK_ONLY


def _links(config: Config) -> dict[str, Any]:
    strict = settings_of(config)
    sums = f"sums ({strict.feature_epsilon:g}, {strict.delta:g})"
    if strict.protect != "noise":
        sums = "exact sums"
    queries = f"{strict.score_queries or 'any number of'} score queries"
    return {
        "budget": f"{sums} · {queries} of {strict.query_bits} bits",
        "own": "the asker's own degree alone",
        "control": "random tokens and random marks",
        "chooser": "noisy histograms of score buckets",
        "first_stage": COUNTS,
    }


def _stages(config: Config) -> dict[str, int]:
    """Return the first epoch of each stage, by the title of the stage."""
    kind = LinkSchedule if config.train.task == "link" else ClassifySchedule
    schedule: Schedule = kind(config=config, devices=0)  # stages are the same for any number
    epochs = range(1, config.train.epochs)
    return {
        stage.title or stage.name: epoch + 1
        for epoch, (stage, step) in zip(epochs, map(schedule.place, epochs), strict=True)
        if step == 0
    }


def described_stages(config: Config, sizes: RunSizes) -> list[SumStage]:
    """Return the stages of a finished run, those after the last epoch included."""
    scaling: Any = "none"
    if "feature_scaling" in sizes.weights:
        scaling = FeatureScaling.of(sizes.weights, sizes.features).kind
    if config.train.task == "link":
        signed = sizes.weights["weights"].size > sizes.features
        links = LinkSchedule(config=config, devices=sizes.devices, scaling=scaling, signed=signed)
        return links.described(sizes)
    # The numbers that a default followed from are not known any more; what was learnt shows it.
    kinds = sum(name.startswith("matrix/") for name in sizes.weights)
    every = bool(sizes.weights["agreement"].size)
    derived = dataclasses.replace(
        settings_of(config),
        propagated_labels=kinds - 1 - every,
        participation="all" if every else "labelled",
    )
    labels = ClassifySchedule(
        config=dataclasses.replace(config, profile_settings=derived),
        devices=sizes.devices,
        classes=max(2, sizes.classes),
        scaling=scaling,
    )
    return labels.described(sizes)
