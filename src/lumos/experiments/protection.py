"""What protects label, features and edges in a run: its whole promise in one short line."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lumos.training.profile import NO_PROMISE

_EPSILON = re.compile(r"ε = ([\d.e+]+)|\(([\d.e+]+), ")
_SHOWN = ("label", "features", "whole record", "one edge", "degree", "membership")
"""What is shown of the table of promises, by how its rows begin; the first row of each."""


def protection(promises: Sequence[Mapping[str, str]]) -> str:
    """The table of promises in one line: of every row the weakest promise of all its columns.

    Args:
        promises: as `run.promises` has them.
    """
    parts: dict[str, list[str]] = {}
    for about in _SHOWN:
        row = next((row for row in promises if row["about"].startswith(about)), None)
        if row is not None:
            parts.setdefault(_weakest(row), []).append(about)
    return "; ".join(f"{', '.join(about)}: {what}" for what, about in parts.items())


def _weakest(row: Mapping[str, str]) -> str:
    cells = {who: cell for who, cell in row.items() if who != "about"}
    if any(cell == NO_PROMISE or cell.startswith(f"{NO_PROMISE}:") for cell in cells.values()):
        return NO_PROMISE
    limited = [f"{who}, {cell}" for who, cell in cells.items() if cell.startswith(NO_PROMISE)]
    figures = {cell: _epsilon(cell) for cell in cells.values() if _epsilon(cell) is not None}
    largest = max(figures, key=lambda cell: figures[cell] or 0.0, default="not used")
    return " and ".join([largest, *limited])


def _epsilon(cell: str) -> float | None:
    found = _EPSILON.match(cell)
    return float(found[1] or found[2]) if found else None


def protection_of(result: Mapping[str, Any]) -> str:
    """What protects a run of Lumos or of a baseline.

    Args:
        result: its summary.
    """
    if "protects" in result:
        return str(result["protects"])
    if result.get("promises"):
        return protection(result["promises"])
    epsilon = result["epsilon"]
    released = f"; ε = {float(epsilon):g} covers releases alone" * bool(epsilon)
    return f"no promise: other messages leave without protection{released}"
