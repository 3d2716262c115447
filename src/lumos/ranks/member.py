"""A process as one of many ranks: it joins, works, and leaves or fails together with the others.

with joined() as world:
    run = train_rank("facebook", hosting=Hosting(world=world))
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from lumos.errors import LumosError, RankFailed, RankLost
from lumos.ranks.supervisor import ANOTHER_FAILED, LOST, SUPERVISED
from lumos.ranks.world import TIMEOUT, World, enter

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class RankError(LumosError):
    """What this rank says for all of them."""

    def __init__(self, line: str, exit_status: int) -> None:
        super().__init__(line)
        self.exit_status = exit_status


def is_rank() -> bool:
    """Whether this process was started as a rank, by torchrun or by a supervisor."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def restarted() -> bool:
    """Whether torchrun has started this rank again."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") not in ("", "0")


@contextmanager
def joined(timeout: float = TIMEOUT) -> Iterator[World]:
    """Be a rank inside; errors end all ranks, and one of them says why.

    Raises:
        RankError: this rank failed, and speaks.
        RankLost: another rank is gone, and no supervisor can say which.

    Where another rank failed, and speaks itself, the process ends here.
    """
    supervised = SUPERVISED in os.environ
    if supervised:
        end_with_supervisor()
    try:
        world = World.join(timeout)
    except RankLost:
        if supervised:
            end_at_once(LOST)
        raise
    enter(world)
    try:
        yield world
    except RankFailed:
        end_at_once(ANOTHER_FAILED)
    except RankLost:
        if supervised:
            end_at_once(LOST)
        raise
    except Exception as error:
        standing = world.status.standing
        failed = world.fail()
        if failed[0] != world.rank:
            end_at_once(ANOTHER_FAILED)
        status = error.exit_status if isinstance(error, LumosError) else 1
        if isinstance(error, LumosError) and len(failed) == world.size:
            raise  # all alike: a wrong option or file, and no matter of ranks
        raise RankError(f"rank {world.rank} failed {standing}: {_told(error)}", status) from error
    else:
        world.leave()


def end_at_once(status: int) -> NoReturn:
    """End this process without taking the group apart: with a rank missing, that would abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _told(error: Exception) -> str:
    """One line about an error: what Lumos says itself, otherwise its kind and place alone.

    The text of an unexpected error may hold a value of a device, so it is not printed.
    """
    if isinstance(error, LumosError):
        return str(error)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror or type(error).__name__}"
    if trace is None:
        return type(error).__name__
    place = Path(trace.tb_frame.f_code.co_filename).name
    return f"{type(error).__name__} in {place}, line {trace.tb_lineno}"


def end_with_supervisor() -> None:
    """Have Linux kill this process when its supervisor is gone, however that came about."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.environ.get(SUPERVISED, str(os.getppid())) != str(os.getppid()):  # gone already
            sys.exit(LOST)
