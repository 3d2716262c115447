"""The outcome of a reproduction, and what `lumos reproduce --json` prints of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lumos.experiments.figures.row import Row
from lumos.experiments.settings import Form


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A finished reproduction."""

    rows: list[Row]
    ran: int
    """Cells that were computed now."""
    known: int
    """Cells that had a result before."""
    failed: list[str]
    """One line each."""
    refused: list[str]
    other_version: int
    """Cells whose result is of another version."""
    left_out: dict[str, float]
    """Runs that are not expected to finish within the time, one line each: expected seconds."""
    planned_seconds: float
    seconds: float
    cpu_seconds: float
    """Of the cells that were computed now."""
    jobs: int
    """Number of processes."""
    files: list[Path]

    def summary(self, form: Form) -> dict[str, Any]:
        """The JSON object of the command."""
        return {
            "form": form,
            "rows": [row.as_json() for row in self.rows],
            "ran": self.ran,
            "known": self.known,
            "failed": self.failed,
            "refused": self.refused,
            "left_out": {line: round(seconds, 1) for line, seconds in self.left_out.items()},
            "other_code": self.other_version,
            "planned_seconds": round(self.planned_seconds, 1),
            "seconds": round(self.seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "jobs": self.jobs,
            "files": [str(path) for path in self.files],
        }
