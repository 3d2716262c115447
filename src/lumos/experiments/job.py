"""A job: what a process of its own computes and writes to a file."""

from pathlib import Path
from typing import Protocol


class Job(Protocol):
    """One job. It is sent to its process, so it must be picklable."""

    @property
    def name(self) -> str:
        """Name of its log, without the suffix."""
        ...

    @property
    def path(self) -> Path:
        """The file of the result, written atomically."""
        ...

    def run(self) -> None:
        """Compute the result and write it; called in the process."""
        ...
