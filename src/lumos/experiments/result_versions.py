"""Versions of results, one for each kind of cell.

A result is kept under the version of its kind. Raise a version, by hand, when the numbers of that
kind change; comments, renames and moved modules leave it alone. A test computes every kind on a
small graph, compares it with the committed `tests/experiments/golden.json`, and fails where numbers
changed and the version did not. After raising a version, write the new numbers with

    python -m tests.experiments.golden
"""

from lumos.experiments.cell import Cell
from lumos.training.config import TrainSettings
from lumos.training.profile import PAPER, STRICT

VERSIONS: dict[str, int] = {
    f"train/{PAPER}": 3,
    f"train/{STRICT} classify": 4,
    f"train/{STRICT} link": 5,
    "baseline": 1,
    "trees": 2,
    "cost": 3,
}
"""By kind of result; see `result_kind`."""


def result_kind(cell: Cell) -> str:
    """The kind of a cell.

    Training runs of different profiles are different kinds, and so are the tasks of the strict one,
    which have trainers of their own.
    """
    if cell.kind != "train":
        return cell.kind
    profile = cell["profile"] or STRICT
    task = f" {cell['task'] or TrainSettings.task}" if profile == STRICT else ""
    return f"train/{profile}{task}"


def version_of(cell: Cell) -> int:
    """The version of results that the present code computes for a cell."""
    return VERSIONS[result_kind(cell)]
