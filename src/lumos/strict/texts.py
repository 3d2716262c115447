"""Texts of the strict profile for reports, and its guarantees in plain English."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from lumos.strict.accounting import FOR_LIFE
from lumos.strict.classify.stages import CANDIDATES, ClassifySchedule
from lumos.strict.features import FeatureScaling
from lumos.strict.link.guarantees import ANSWERS, SUMS
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
from lumos.training.profile import LOSS, NO_GUARANTEE, ProfileTexts, RunSizes, SumStage, TreeTexts
from lumos.trees.balancers import TreeSettings

PRIOR = 0.25
"""Probability of a right guess without a device, in the example that is printed."""
_LABEL = "label: this one or another"
_NUMBER = r"[\d.e+-]+"
_FIGURE = re.compile(
    rf"ε = (?P<pure>{_NUMBER}), pure|\((?P<both>{_NUMBER}), (?P<delta>{_NUMBER})\)"
)
_ASKED = {
    _LABEL: "one label or another",
    "features: these or others": "one device's features or any others",
    "whole record: this or another": "a whole record or another",
    "one edge: there or not": "one edge there or not",
}
"""The two cases to be told apart, by row of the table of `classify`."""
_NOT_GUARANTEED = {
    "one edge": "edges",
    "degree": "degrees",
    "membership: there or not there at all": "membership",
}
"""Names of what is not protected, by row."""


class _Figure(NamedTuple):
    epsilon: float
    delta: str

    def __str__(self) -> str:
        return f"ε = {self.epsilon:g}" + f", δ = {self.delta}" * bool(self.delta)


def guess_bound(epsilon: float, prior: float) -> float:
    """Return the largest probability of guessing a label that has pure ε.

    Args:
        prior: the probability of guessing it without the device.
    """
    likelier = prior * math.exp(epsilon)
    return likelier / (1 - prior + likelier)


def classify_in_words(guarantees: Sequence[Mapping[str, str]]) -> str:
    """Return one sentence with the figures, one on the label, one on what is not protected."""
    figures: dict[str, _Figure] = {}
    nothing: list[str] = []
    for row in guarantees:
        about = row["about"]
        figure = _worst(row)
        if about in _ASKED and figure is not None:
            figures[about] = figure
        elif about in _ASKED:
            nothing.append(_ASKED[about])
        elif about in _NOT_GUARANTEED:
            nothing.append(_NOT_GUARANTEED[about])
    return _sentences(guarantees, "every message", figures, nothing)


def link_in_words(guarantees: Sequence[Mapping[str, str]]) -> str:
    """Return the same for links: features enter sums and score queries, which are counted."""
    features = next(row for row in guarantees if row["about"] == "features: these or others")
    figure = _worst({name: cell for name, cell in features.items() if name.startswith(SUMS)})
    figures, nothing = {}, []
    if figure is None:
        nothing.append(_ASKED[features["about"]])
    else:
        figures[features["about"]] = figure
    nothing += [words for row in guarantees if (words := _NOT_GUARANTEED.get(row["about"]))]
    counted = features[ANSWERS].removeprefix(f"{NO_GUARANTEE} beyond their number: ")
    counted = counted.removeprefix(f"{NO_GUARANTEE}: ")
    return f"{_sentences(guarantees, 'every sum', figures, nothing)} Score queries add: {counted}."


def _sentences(
    guarantees: Sequence[Mapping[str, str]],
    seen: str,
    figures: Mapping[str, _Figure],
    nothing: list[str],
) -> str:
    life = any(name.endswith(FOR_LIFE) for row in guarantees for name in row)
    where = " of all runs with this book" * life
    sentences = []
    if figures:
        told = "; ".join(f"{_ASKED[about]}: {figure}" for about, figure in figures.items())
        sentences.append(f"To whoever sees {seen} and the model{where}, {told}.")
    label = figures.get(_LABEL)
    if label is not None and not label.delta:
        bound = guess_bound(label.epsilon, PRIOR)
        sentences.append(
            "Whoever would guess a label with probability p without this device guesses it with at "
            f"most p·e^ε/(1 - p + p·e^ε), for example from {100 * PRIOR:g} to {100 * bound:.3g} %."
        )
    if nothing:
        sentences.append(f"Not protected: {', '.join(nothing)}.")
    return " ".join(sentences)


def _worst(row: Mapping[str, str]) -> _Figure | None:
    """Return the largest figure of any column; None if one of them guarantees nothing."""
    worst = _Figure(0.0, "")
    for name, cell in row.items():
        if name == "about":
            continue
        if NO_GUARANTEE in cell:
            return None
        if (found := _FIGURE.fullmatch(cell)) is not None:
            epsilon = float(found["pure"] or found["both"])
            worst = max(worst, _Figure(epsilon, found["delta"] or ""))
    return worst


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
    sums = f"sums ({strict.update_epsilon:g}, {strict.update_delta:g})"
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
    labels = ClassifySchedule(
        config=config, devices=sizes.devices, classes=max(2, sizes.classes), scaling=scaling
    )
    return labels.described(sizes)
