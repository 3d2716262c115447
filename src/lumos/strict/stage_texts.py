"""The stages of a strict run in words, with the widths of their sums."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lumos.device.coins import PublicCoins
from lumos.strict import classify_schedule as classify
from lumos.strict import link_schedule as link
from lumos.strict.feature_scaling import CENTRES, SIZES, FeatureScaling, width_of
from lumos.strict.schedule import Schedule
from lumos.training.config import Config
from lumos.training.texts import RunSizes, SumStage

if TYPE_CHECKING:
    from lumos.strict.coordinator import Widths

NAMES = {classify.TREES: "tree network"}
"""What stages are called, where the schedule has another word."""

SCALING = {
    SIZES: "the size of each feature, in histograms over powers of two",
    CENTRES: "the centre of each feature",
}
CLASSIFY = {
    classify.COUNTS: "how often each feature occurs among training devices",
    classify.ENCODER: "the own encoder: from a device's features to its class, without neighbours",
    classify.SCALE: "how sure the own encoder may be, from losses of validation devices",
    classify.SYMBOLS: "which symbols devices of a class receive",
    classify.OPINIONS: "which opinions devices of a class receive",
    classify.TRUST: "how much own features, symbols and opinions count, from validation devices",
    classify.TREES: "a tree network on symbols and opinions, from validation devices",
    classify.VOTE: "which candidate is right how often: validation devices choose by it",
    classify.TEMPERATURE: "how sure the chosen candidate may be",
}
LINK = {
    link.COUNTS: "how often each word occurs",
    link.PRODUCTS: "which words of two linked devices belong together",
    link.WHITENING: "how embeddings are spread",
    link.COLOURS: "how often each colour, and each opinion on colours, was sent",
    link.LEVELS: "how edges and strangers differ: the way to compare is chosen by it",
}
"""By stage, what is learnt from its sums."""

LOSSES = {
    classify.ENCODER: (
        "Training devices' loss by their own features. No neighbour has a part in it, so a control "
        "differs by its coins only."
    ),
    classify.TRUST: (
        "Validation devices' loss with what neighbours sent. A control's messages say nothing: it "
        "can only learn to ignore them."
    ),
    classify.TREES: "Validation devices' loss with the tree network.",
}
"""By stage, what its loss is of, and what to see in it."""


def stages_of(config: Config, sizes: RunSizes) -> list[SumStage]:
    """The stages of a finished run, those after the last epoch included."""
    if config.train.task == "link":
        schedule: Schedule = link.LinkSchedule(config=config, devices=sizes.devices)
    else:
        schedule = classify.ClassifySchedule(
            config=config, devices=sizes.devices, classes=max(2, sizes.classes)
        )
    learns: Mapping[str, str] = LINK if config.train.task == "link" else CLASSIFY
    widths, stages, first = _widths(schedule, sizes), _before(schedule, sizes), 1
    many = {**schedule.sums, **dict.fromkeys(schedule.last_stages, 1)}
    for stage, sums in many.items():
        if sums:
            stages.append(
                SumStage(
                    name=NAMES.get(stage, stage),
                    learns=learns.get(stage, ""),
                    first=first,
                    last=first + sums - 1,
                    numbers=widths(stage, 0),
                    loss=LOSSES.get(stage, ""),
                )
            )
            first += sums
    return stages


def _before(schedule: Schedule, sizes: RunSizes) -> list[SumStage]:
    """Sums before the first epoch: those that scale features, or count their holders."""
    if "feature_scaling" in sizes.weights:
        stages = FeatureScaling.of(sizes.weights, sizes.features).stages
        return [
            SumStage(
                name=name,
                learns=SCALING[name],
                first=0,
                last=0,
                numbers=width_of(name, sizes.features),
            )
            for name in stages
        ]
    return []


def _widths(schedule: Schedule, sizes: RunSizes) -> "Widths":
    """By stage, the numbers in one of its sums; as many features as the weights are for."""
    from lumos.strict import classify_widths, link_trainer  # torch, which settings do without

    if isinstance(schedule, link.LinkSchedule):
        return link_trainer.widths(schedule, sizes.weights["weights"].size)
    if not isinstance(schedule, classify.ClassifySchedule):
        raise TypeError("there is no other schedule")
    # A tree network's number of weights does not depend on coins.
    return classify_widths.widths(schedule, PublicCoins(0), sizes.weights["feature_weights"].size)
