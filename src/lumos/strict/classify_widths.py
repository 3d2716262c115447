"""How many numbers each sum of `classify` has: devices and the coordinator must agree on it."""

from collections.abc import Callable

from lumos.device.coins import PublicCoins
from lumos.strict.classify_schedule import (
    COUNTS,
    ENCODER,
    OPINIONS,
    SCALE,
    SCALES,
    SYMBOLS,
    TEMPERATURE,
    TEMPERED,
    TREES,
    TRUST,
    VOTE,
    ClassifySchedule,
)
from lumos.strict.coordinator import Widths
from lumos.strict.residual_head import ResidualHead


def residual_head(schedule: ClassifySchedule, public: PublicCoins) -> ResidualHead:
    """The tree network on symbols and opinions."""
    values = schedule.symbol_form.alphabet
    values += schedule.strict.opinions * schedule.opinion_mechanism.alphabet
    generator = public.generator("weights")
    return ResidualHead(schedule.config.model, schedule.classes, values, generator)


def widths(schedule: ClassifySchedule, public: PublicCoins, used: int) -> Widths:
    """The widths of all sums, where `used` features are used."""
    classes, form = schedule.classes, schedule.label_form
    given: dict[str, Callable[[], int]] = {
        COUNTS: lambda: used,
        ENCODER: lambda: (used + 1) * classes + 1,
        SCALE: lambda: len(SCALES),
        SYMBOLS: lambda: form.alphabet * schedule.symbol_form.alphabet,
        OPINIONS: lambda: form.alphabet * schedule.opinion_mechanism.alphabet,
        TRUST: lambda: 2 + schedule.strict.opinions + classes + 1,
        TREES: lambda: residual_head(schedule, public).width,
        VOTE: lambda: 2 * len(schedule.candidates) - 1,
        TEMPERATURE: lambda: len(TEMPERED),
    }
    return lambda stage, step: given[stage]()
