"""Ranks that need not import torch: forks of a process that has, and has done nothing else.

What they run is what a new interpreter would run, `python -m MODULE …` or `python -c LINES …`, in
the environment that torchrun gives its processes. `test_failure.py` and `test_two_hosts.py` have
ranks that torchrun starts.
"""

import json
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from lumos.evaluation.pool import PRELOADED, trainer_modules, without_main_module

LONGEST = 300.0
"""Seconds after which a test fails instead."""


class Ended(NamedTuple):
    """How ranks ended."""

    statuses: list[int]
    """Exit statuses; negative for a signal, -9 also for a rank that was stopped."""
    reported: list[str]
    """Lines of Lumos on standard error."""


def run_ranks(words: Sequence[str], ranks: int, before: Callable[[], None] | None = None) -> Ended:
    """Run `python WORDS…` in each of several ranks.

    Args:
        words: `-m MODULE …` or `-c LINES …`.
        before: called first in every rank; it has to be picklable.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        context: Any = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*PRELOADED, *trainer_modules(), __name__])
        process = context.Process(target=_launch, args=(folder, list(words), ranks, before))
        with without_main_module():
            process.start()
        process.join(LONGEST)
        if process.exitcode is None:
            process.kill()
        errors = (folder / "err").read_text() if (folder / "err").exists() else ""
        assert process.exitcode == 0, f"no end after {LONGEST:g} seconds: {errors}"
        reported = [line for line in errors.splitlines() if line.startswith("lumos:")]
        return Ended(json.loads((folder / "statuses.json").read_text()), reported)


def _launch(folder: Path, words: list[str], ranks: int, before: Callable[[], None] | None) -> None:
    """Fork all ranks and wait for them, but for those that are stopped."""
    for stream, name in ((1, "out"), (2, "err")):
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, stream)
    sys.modules["torch"].set_num_threads(1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    os.environ |= {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ["WORLD_SIZE"] = str(ranks)
    running, statuses = {}, [-signal.SIGKILL] * ranks
    for rank in range(ranks):
        pid = os.fork()
        if not pid:
            os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
            if before is not None:
                before()
            _leave(_status_of(words))
        running[pid] = rank
    while not all(map(_is_stopped, running)):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            statuses[running.pop(pid)] = os.waitstatus_to_exitcode(status)
        else:
            time.sleep(0.02)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    (folder / "statuses.json").write_text(json.dumps(statuses))


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def _status_of(words: Sequence[str]) -> int:
    """The exit status of `python WORDS…`."""
    kind, what, *arguments = words
    sys.argv = ["-c" if kind == "-c" else what, *arguments]
    try:
        if kind == "-c":
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
        else:
            runpy.run_module(what, run_name="__main__", alter_sys=True)
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
            return 1
        return int(leaving.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _leave(status: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
