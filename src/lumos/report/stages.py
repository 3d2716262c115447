"""The stages of a run, as its profile describes them."""

from collections.abc import Sequence

from lumos.runs.run import Run
from lumos.training.profile import RunSizes, SumStage


def stages_of(run: Run) -> Sequence[SumStage]:
    """The stages of a run in order; one of all epochs where the profile describes none."""
    epochs = len(run.history)
    sums = run.config.profile.texts(run.config).sums
    if sums is None:
        return [SumStage(name="training", learns="", first=1, last=epochs, numbers=0)]
    return sums(
        RunSizes(
            epochs=epochs,
            devices=run.about.devices,
            features=run.about.features,
            classes=len(run.classes),
            weights=run.model.weights,
        )
    )
