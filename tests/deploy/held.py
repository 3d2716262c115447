"""The program `lumos`, with a coordinator that a test can hold, and kill.

    LUMOS_TEST_HOLD=FOLDER python -m tests.deploy.held up …

The coordinator goes no further than a phase while FOLDER has a file of that name. It leaves out
nobody, so that a busy machine changes nothing; and it is started again when it is killed, as a
service manager would do. `lumos up` starts its processes as this program, too.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO

from tests.deploy.processes import UnhurriedCoordinator

from lumos.cli.main import run
from lumos.deploy import local_federation, processes
from lumos.deploy.broker import start_command
from lumos.deploy.local_federation import fork, load_program

HOLD = "LUMOS_TEST_HOLD"


class HeldCoordinator(UnhurriedCoordinator):
    """Takes what arrives, and goes on when the test lets it."""

    def advance(self, now: float) -> None:
        if not Path(os.environ[HOLD], str(self.phase)).exists():
            super().advance(now)


def start_held(command: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start `python -m lumos …` as this program."""
    return start_command([sys.executable, "-m", "tests.deploy.held", *command[3:]], output)


def main(words: list[str]) -> int:
    """Return the exit status of a command."""
    processes.CoordinatorParticipant = HeldCoordinator  # type: ignore[attr-defined]
    local_federation.start_command = start_held  # type: ignore[attr-defined]
    if words[0] != "coordinator":
        return run(words)
    load_program(Path(words[1]))
    status = -signal.SIGKILL
    while status == -signal.SIGKILL:
        status = os.waitstatus_to_exitcode(os.waitpid(fork(partial(run, words)), 0)[1])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
