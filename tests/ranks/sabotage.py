"""Ranks that send themselves a signal: at a place, not at a time."""

import os
import sys
from pathlib import Path
from typing import Any

from lumos.ranks import supervisor
from lumos.ranks.supervisor import Status


def _is(rank: int) -> bool:
    """Whether this process is the rank, and not one that was started again."""
    return os.environ.get("RANK") == str(rank) and "--resume" not in sys.argv


def signal_in_phase(number: int, rank: int, phase: str, grace: float | None = None) -> None:
    """Let a rank send itself a signal two rounds after it has begun a phase.

    Args:
        number: of the signal.
        rank: which.
        phase: how the phase begins.
        grace: seconds that the supervisor gives the others to end, in place of its own.
    """
    if grace is not None:
        supervisor._GRACE = grace
    advance, rounds = Status.advance, []

    def sabotaged(status: Status) -> None:
        advance(status)
        if _is(rank) and status.phase.startswith(phase):
            rounds.append(status.round)
            if len(rounds) == 2:
                os.kill(os.getpid(), number)

    Status.advance = sabotaged  # type: ignore[method-assign,assignment]


def signal_while_writing(number: int, rank: int, name: str) -> None:
    """Let a rank send itself a signal when it has written a file anew, but not put it in place."""
    replace = os.replace

    def sabotaged(source: Any, target: Any) -> None:
        if _is(rank) and Path(target).name == name and Path(target).exists():
            os.kill(os.getpid(), number)
        replace(source, target)

    os.replace = sabotaged  # type: ignore[assignment]
