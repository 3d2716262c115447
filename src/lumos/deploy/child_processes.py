"""Processes that end with the process that started them, however that ends (on Linux)."""

import ctypes
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
# The child asks for its end with its parent, and then becomes the command.
_GUARDED = """
import os, sys
if sys.platform == "linux":
    import ctypes, signal
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def end_with(parent: int) -> None:
    """Let this process be killed when its parent ends; it may have ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def start_command(
    command: Sequence[str], *, output: IO[bytes], errors: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a command that ends with this process; Ctrl-C in a terminal does not reach it."""
    guarded = [sys.executable, "-I", "-S", "-c", _GUARDED, str(os.getpid())]
    return subprocess.Popen(
        [*guarded, *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        start_new_session=True,
    )


def fork(work: Callable[[], int]) -> int:
    """Run a function in a forked child, which ends with this process; returns its number.

    Args:
        work: its result is the exit status.
    """
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        end_with(parent)
        status = work()
    except BaseException:  # a defect: nobody above could report it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def children_of(process: int) -> list[int]:
    """Numbers of the children of a process; none where the system does not say."""
    try:
        return [int(word) for word in _children(process).read_text().split()]
    except OSError:
        return []


def _children(process: int) -> Path:
    return Path(f"/proc/{process}/task/{process}/children")


def private_megabytes(process: int) -> float | None:
    """Memory that only this process has; None where the system does not say."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
    return sum(found) / 1024 if found else None
