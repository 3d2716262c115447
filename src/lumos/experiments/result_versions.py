"""Versions of results, one for each kind of cell.

A result is kept under the version of its kind. Raise a version, by hand, when the numbers of that
kind change; comments, renames and moved modules leave it alone. A test computes every kind on a
small graph, compares it with the committed `tests/experiments/golden.json`, and fails where numbers
changed and the version did not. After raising a version, write the new numbers with

    python -m tests.experiments.golden
"""

from lumos.experiments.cell import Cell
from lumos.training.profiles import PAPER, STRICT

VERSIONS: dict[str, int] = {
    f"train/{PAPER}": 1,
    f"train/{STRICT}": 1,
    "baseline": 1,
    "trees": 1,
    "cost": 1,
}
"""By kind of result; see `result_kind`."""


def result_kind(cell: Cell) -> str:
    """The kind of a cell; training runs of different profiles are different kinds."""
    return f"train/{cell['profile'] or STRICT}" if cell.kind == "train" else cell.kind


def version_of(cell: Cell) -> int:
    """The version of results that the present code computes for a cell."""
    return VERSIONS[result_kind(cell)]
