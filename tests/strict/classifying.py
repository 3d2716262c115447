"""Parts of strict classification without a run: schedules, labels, encoders, exact norms."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from lumos.secagg.parameters import FixedPoint
from lumos.strict.classify.encoder import Encoder, Rounding
from lumos.strict.classify.labels import NO_LABEL, NoisyLabels
from lumos.strict.classify.stages import ClassifySchedule
from lumos.strict.features import FeatureRows
from lumos.training.config import Config

DIGITS: dict[str, Any] = {"classes": 30, "mechanism": "digits"}
"""Labels of two digits, for `schedule_of`."""


def schedule_of(
    *,
    devices: int = 1000,
    training: int = 500,
    validation: int = 200,
    classes: int = 4,
    signed: bool = False,
    scaling: Any = "none",
    fraction_bits: int | None = None,
    **settings: Any,
) -> ClassifySchedule:
    """A schedule; keywords that are not its own are settings."""
    config = Config.of(profile="strict", **settings)
    if fraction_bits is not None:
        config = replace(config, updates=replace(config.updates, fraction_bits=fraction_bits))
    return ClassifySchedule(
        config=config,
        devices=devices,
        training=training,
        validation=validation,
        classes=classes,
        signed=signed,
        scaling=scaling,
    )


def labels_of(schedule: ClassifySchedule, values: Any) -> NoisyLabels:
    """Labels whose values in the sums are given."""
    form, drawn = schedule.label_form, np.asarray(values, np.int64)
    likelihood = form.table(schedule.strict.label_epsilon) * form.places
    return NoisyLabels(form, drawn, likelihood)


def rounding(schedule: ClassifySchedule) -> Rounding:
    """How a sum of this schedule rounds."""
    return FixedPoint.of(schedule.config.updates, schedule.devices).rounded


def encoder_of(
    features: Any, values: Any, schedule: ClassifySchedule, train: Any = None
) -> Encoder:
    """An encoder; who trains is given, or has a label."""
    labels = labels_of(schedule, values)
    trains = labels.values != NO_LABEL if train is None else np.asarray(train, np.bool_)
    rows = FeatureRows(features, trains, nonnegative=not schedule.signed)
    return Encoder(rows, labels, schedule, rounding(schedule))


def grid(schedule: ClassifySchedule, vectors: np.ndarray) -> list[list[int]]:
    """Vectors as the whole numbers that a sum adds up."""
    scaled = np.rint(np.atleast_2d(vectors) * 2.0**schedule.config.updates.fraction_bits)
    return [[int(number) for number in row if number] for row in scaled]


def squares(schedule: ClassifySchedule, vectors: np.ndarray) -> list[Fraction]:
    """Squared norms of vectors after rounding, exactly."""
    steps = Fraction(4) ** schedule.config.updates.fraction_bits
    return [sum(number**2 for number in row) / steps for row in grid(schedule, vectors)]


def square(number: float) -> Fraction:
    """The exact square of a float."""
    return Fraction(number) ** 2
