"""What a run measured of itself, without any true label: figures of its own estimates."""

import math

from lumos.report.bar_chart import dots
from lumos.report.metric import arm_name, score_of
from lumos.report.page import Figure, Text
from lumos.runs.run import Run
from lumos.training.trainer import MAIN, OWN

_MOST_ERROR = 0.2
"""Standard error of an accuracy that still tells something."""


def estimates(run: Run) -> list[Figure | Text]:
    """What the run measured of itself, without any true label, where it did."""
    return [*_vote(run), *_levels(run)]


def _vote(run: Run) -> list[Figure | Text]:
    """The accuracy that the noisy vote of validation devices tells, beside the true one."""
    found = run.model.estimates
    names = {MAIN: "voted_accuracy", OWN: "own_voted_accuracy"}
    known = {
        arm: name
        for arm, name in names.items()
        if arm in run.scores and math.isfinite(found.get(name, math.nan))
    }
    if not known:
        return []
    error = max(found[f"{name}_error"] for name in known.values())
    if not error <= _MOST_ERROR:
        return [
            Text(
                f"The vote of {run.split_sizes.validation:,} validation devices has a standard "
                f"error of {100 * error:.0f} points, so devices themselves do not know how "
                "accurate they are."
            )
        ]
    values = [[100 * found[name], 100 * score_of(run, arm, "val")] for arm, name in known.items()]
    errors = [[100 * found[f"{name}_error"], None] for name in known.values()]
    drawing = dots(
        [arm_name(run, arm) for arm in known],
        ["by the vote", "by the observer"],
        values,
        errors,
        unit="%",
        title="Accuracy of validation devices",
        digits=1,
    )
    about = (
        "The vote is all that devices know of their accuracy: a noisy sum over randomized labels, "
        "± its standard error. The observer has the true labels."
    )
    return [Figure(drawing, about)]


def _levels(run: Run) -> list[Figure | Text]:
    """What the run itself measured of each way to compare two devices, where it did."""
    prefix, found = "levels_auc_", run.model.estimates
    ways = [name for name in found if name.startswith(prefix) and f"{name}_error" in found]
    if not ways:
        return []
    drawing = dots(
        ["ROC-AUC"],
        [name.removeprefix(prefix) for name in ways],
        [[found[name] for name in ways]],
        [[found[f"{name}_error"] for name in ways]],
        [[0.5 for _ in ways]],
        title="What two devices can compare",
        digits=3,
        mark_name="guessing",
    )
    about = (
        "ROC-AUC of the levels of held-back edges against those of strangers, ± its standard "
        "error: what devices know themselves, from noisy histograms. A way within its error of "
        "guessing tells nothing."
    )
    return [Figure(drawing, about)]
