"""Figures in the table of promises, as a run prints it: what is audited is what people read."""

import math
import re

from lumos.errors import UsageError
from lumos.runs.run import Run
from lumos.training.profile import NO_PROMISE

_NUMBER = r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?|∞|inf)"
_BOTH = re.compile(rf"\({_NUMBER}, {_NUMBER}\)")
_PURE = re.compile(rf"ε = {_NUMBER}")


def cell(run: Run, about: str, column: str) -> str:
    """The cell of the first row whose question begins with `about`.

    Raises:
        UsageError: there is none.
    """
    for row in run.promises:
        if row["about"].startswith(about) and column in row:
            return row[column]
    raise UsageError(f"the table of promises has no cell {about!r}, {column!r}")


def printed(run: Run, about: str, column: str, *, life: bool = False) -> tuple[float, float] | None:
    """(ε, δ) of a cell, δ = 0 where it is pure; None where it promises nothing.

    Args:
        life: over all runs with a book, where the table has a column for it.
    """
    names = [name for row in run.promises for name in row if name.startswith(column)]
    for_life = [name for name in names if life and "life" in name]
    text = cell(run, about, for_life[0] if for_life else column)
    if text.startswith(NO_PROMISE):
        return None  # whatever ε it names is that of a part: "no promise by the sums; ε = 3 by …"
    both, pure = _BOTH.search(text), _PURE.search(text)
    if both is not None:
        return _value(both[1]), _value(both[2])
    return None if pure is None else (_value(pure[1]), 0.0)


def counted(run: Run, about: str, column: str, what: str) -> int | None:
    """The whole number before a word of a cell; None where there is none."""
    found = re.search(rf"(\d+) {what}\b", cell(run, about, column))
    return None if found is None else int(found[1])


def _value(text: str) -> float:
    return math.inf if text == "∞" else float(text)
