"""The metric of a run: what it is called, how a score is written, how sure it is."""

import math
from collections.abc import Mapping
from typing import Any, Literal

from lumos.runs.run import Run
from lumos.training.metrics import standard_error
from lumos.training.trainer import CONTROL, MAIN, OWN

ARMS = (MAIN, OWN, CONTROL)
"""The run itself and what was trained beside it, in the order of the page."""


def predicts_links(run: Run) -> bool:
    """Whether the run predicts links; otherwise it classifies."""
    return run.config.train.task == "link"


def metric_name(run: Run) -> str:
    """What a score is called."""
    return "ROC-AUC" if predicts_links(run) else "accuracy"


def arm_name(run: Run, arm: str) -> str:
    """What an arm is called."""
    texts = run.config.profile.texts(run.config)
    return {MAIN: "this run", OWN: texts.own, CONTROL: f"control: {texts.control}"}[arm]


def arms(run: Run) -> list[str]:
    """The arms of a run that have scores, itself first."""
    return [arm for arm in ARMS if arm in run.scores]


def score_of(run: Run, arm: str = MAIN, part: Literal["test", "val"] = "test") -> float:
    """Score of an arm on the test or the validation devices (classify) or edges (link)."""
    score: float = run.scores[arm][f"{part}_{'auc' if predicts_links(run) else 'accuracy'}"]
    return score


def measured(run: Run, arm: str, name: str) -> Any:
    """A score of an arm by its name, a number or a list; None where it was not measured."""
    scores: Mapping[str, Any] = run.scores[arm]
    return scores.get(name)


def format_score(run: Run, score: float) -> str:
    """A score as people write it."""
    return f"{score:.4f}" if predicts_links(run) else f"{100 * score:.2f}\N{NO-BREAK SPACE}%"


def deviation(run: Run, score: float) -> float:
    """Standard deviation of a score over the choice of the test set; NaN where that is empty."""
    count = run.split_sizes.test
    if count < 1:
        return math.nan
    return standard_error(score, count, "auc" if predicts_links(run) else "accuracy")
