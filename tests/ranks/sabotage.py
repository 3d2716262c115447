"""Ranks that send themselves a signal: at a place, not at a time."""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from lumos.ranks.world import Status


def _is(rank: int, attempt: int) -> bool:
    """Return whether this process is the rank, in this attempt: the first, or one after it."""
    again = "--resume" in sys.argv or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    return os.environ.get("RANK") == str(rank) and again == (attempt > 0)


def signal_in_phase(number: int, rank: int, phase: str, attempt: int = 0) -> None:
    """Let a rank send itself a signal two rounds after it has begun a phase.

    If that stops it, the others wait for it no longer than a moment, and nobody before.

    Args:
        number: of the signal.
        rank: which.
        phase: how the phase begins.
        attempt: 0 for ranks that begin, 1 for ranks that go on from a checkpoint.
    """
    advance, rounds = Status.advance, []

    def sabotaged(status: Status) -> None:
        advance(status)
        if status.phase.startswith(phase):
            rounds.append(status.round)
            if len(rounds) == 2 and _is(rank, attempt):
                os.kill(os.getpid(), number)
            elif len(rounds) == 2 and number == signal.SIGSTOP:
                wait_no_longer_than(0.5)

    Status.advance = sabotaged  # type: ignore[method-assign,assignment]


def wait_no_longer_than(seconds: float) -> None:
    """Let this rank wait for no more than this in a collective, from now on."""
    from torch.distributed.distributed_c10d import _get_default_group, _set_pg_timeout

    _set_pg_timeout(timedelta(seconds=seconds), _get_default_group())


def signal_while_writing(number: int, rank: int, name: str, attempt: int = 0) -> None:
    """Let a rank send itself a signal when it has written a file anew, but not put it in place."""
    replace = os.replace

    def sabotaged(source: Any, target: Any) -> None:
        if _is(rank, attempt) and Path(target).name == name and Path(target).exists():
            os.kill(os.getpid(), number)
        replace(source, target)

    os.replace = sabotaged  # type: ignore[assignment]


def main() -> None:
    """Run `lumos`, and kill rank 1 once, in an epoch; for torchrun."""
    from lumos.cli.main import main

    signal_in_phase(signal.SIGKILL, 1, "epoch 14")
    main()


if __name__ == "__main__":
    main()
