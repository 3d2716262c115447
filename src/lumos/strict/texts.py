"""What the strict profile says about its runs."""

import dataclasses
from functools import partial
from typing import Any

from lumos.strict.classify.stages import CANDIDATES, ClassifySchedule
from lumos.strict.link.stages import COUNTS, LinkSchedule
from lumos.strict.link_levels import ALONE, BOTH, SURROUNDINGS, WORDS
from lumos.strict.plain_promise import classify_in_words, link_in_words
from lumos.strict.settings import (
    CLASSIFY_ONLY,
    LINK_ONLY,
    NOT_USED,
    OF_TREES,
    settings_of,
)
from lumos.strict.stages import Schedule
from lumos.training.config import Config
from lumos.training.texts import LOSS, ProfileTexts, RunSizes, SumStage, TreeTexts
from lumos.trees.settings import TreeSettings

_OWN, _NEIGHBOURS, _TREES_TOO = CANDIDATES
_CHOICES = {
    _OWN: "what own features say, so neighbours did not count",
    _NEIGHBOURS: "own features together with what neighbours sent",
    _TREES_TOO: "own features together with a tree network on what neighbours sent",
    WORDS: "the level of two devices' words, and the asker's degree",
    SURROUNDINGS: "the level of two devices' surroundings, and the asker's degree",
    BOTH: "the level of two devices' words and surroundings, and the asker's degree",
    ALONE: "the asker's degree alone, so answers did not count",
}
_TREES = TreeTexts(
    workload=(
        "A device's workload is the number of branches of its tree. In the strict profile nobody "
        "carries an edge for another: a device builds one branch for each neighbour at home, so "
        "its workload is its degree, and no device compares it with another."
    ),
    own_leaf="the symbol it released",
    other_leaf="the symbol it received",
    builder="the device itself, at home",
)
_VALIDATION = {
    "classify": (
        "Validation devices fit how far neighbours are trusted and vote on the result, with their "
        "randomized labels"
    ),
    "link": "Validation edges calibrate what a level of a score means",
}
_NOISY_LOSS = (
    "Training loss of each epoch, as all devices learn it from a sum: clipped together with the "
    "updates and with the noise that protects them. So its size is not that of the true loss, and "
    "it may fall below 0."
)


def texts(config: Config) -> ProfileTexts:
    """What reports say about a run."""
    # Nothing is balanced; links are scored in the group.
    of_trees = {field.name for field in dataclasses.fields(TreeSettings)} - {"group"}
    return ProfileTexts(
        trees=None if config.train.task == "link" else _TREES,
        promise=link_in_words if config.train.task == "link" else classify_in_words,
        loss=_NOISY_LOSS if settings_of(config).protect == "noise" else LOSS,
        stages=_stages(config),
        sums=partial(described_stages, config),
        choices=_CHOICES,
        validation=_VALIDATION["link" if config.train.task == "link" else "classify"],
        **(_links(config) if config.train.task == "link" else {}),
        unused_settings=NOT_USED | of_trees | _of_other_task(config.train.task),
    )


def _of_other_task(task: str) -> frozenset[str]:
    """Settings that only the other task has; links have no tree network."""
    return CLASSIFY_ONLY | OF_TREES if task == "link" else LINK_ONLY


def _links(config: Config) -> dict[str, Any]:
    strict = settings_of(config)
    sums = f"sums ({strict.update_epsilon:g}, {strict.update_delta:g})"
    if strict.protect != "noise":
        sums = "exact sums"
    answers = f"{strict.answers} answers" if strict.answers else "any number of answers"
    return {
        "budget": f"{sums} · {answers} of {strict.answer_bits} bits",
        "own": "the asker's own degree alone",
        "control": "random words and colours",
        "chooser": "noisy histograms of levels",
        "first_stage": COUNTS,
    }


def _stages(config: Config) -> dict[str, int]:
    """Return by name the epochs in which another part of the model begins to learn."""
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
    scaling: Any = str(sizes.weights.get("feature_scaling", "none"))
    if config.train.task == "link":
        signed = sizes.weights["weights"].size > sizes.features
        links = LinkSchedule(config=config, devices=sizes.devices, scaling=scaling, signed=signed)
        return links.described(sizes)
    labels = ClassifySchedule(
        config=config, devices=sizes.devices, classes=max(2, sizes.classes), scaling=scaling
    )
    return labels.described(sizes)
