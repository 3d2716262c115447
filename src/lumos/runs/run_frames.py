"""The tables of a run as pandas frames."""

import math
from typing import TYPE_CHECKING, Any

from lumos.display import frame, frame_of_rows
from lumos.errors import UsageError
from lumos.runs.schema import EpochEvent

_EVENT = EpochEvent.__struct_fields__

if TYPE_CHECKING:
    import pandas

    from lumos.runs.run import Run


def scores_frame(run: "Run") -> "pandas.DataFrame":
    """A row for each arm and score that is one number."""
    rows = [
        {"arm": arm, "score": name, "value": value}
        for arm, scores in run.scores.items()
        for name, value in scores.items()
        if isinstance(value, int | float)
    ]
    return frame_of_rows(rows, ("arm", "score", "value"))


def history_frame(run: "Run") -> "pandas.DataFrame":
    """A row for each epoch of each arm."""
    events = [event for history in run.histories.values() for event in history]
    columns = {name: [getattr(event, name) for event in events] for name in _EVENT}
    for name in ("loss", "score"):
        columns[name] = [math.nan if value is None else value for value in columns[name]]
    return frame(columns)


def predictions_frame(run: "Run") -> "pandas.DataFrame":
    """A row for each device, with a column for the probability of each class.

    Raises:
        UsageError: the run predicts links.
    """
    if run.model.logits is None:
        raise UsageError("this run predicts links and has no classes; use predict_links")
    chances = run.predict_proba()
    columns: dict[str, Any] = {"device": list(run.ids), "predicted": run.predict()}
    for place, name in enumerate(run.classes):
        columns[f"p({name})"] = chances[:, place]
    return frame(columns)


def promises_frame(run: "Run") -> "pandas.DataFrame":
    """The table of promises, row by row; empty where none is made."""
    return frame_of_rows(run.promises, list(run.promises[0]) if run.promises else ["about"])
