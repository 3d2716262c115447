"""Interpreters that need not import torch: forks of a process that has, and has done nothing else.

What they run is what a new interpreter would run, `python -m MODULE …` or `python -c LINES …`; a
supervisor inside starts its ranks in the same way. `test_failure.py` and `test_two_hosts.py` have
ranks that are started as people start them.
"""

import json
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from lumos.evaluation.pool import PRELOADED, trainer_modules, without_main_module
from lumos.ranks import supervisor
from lumos.ranks.supervisor import End, Supervisor

LONGEST = 300.0
"""Seconds after which a test fails instead."""


class Ended(NamedTuple):
    """How an interpreter ended."""

    status: int
    reported: list[str]
    """Lines of Lumos on standard error."""
    left: list[int]
    """Ranks that still run."""


def run_python(words: Sequence[str], before: Callable[[], None] | None = None) -> Ended:
    """Run `python WORDS…`, whose supervisor, if it starts one, forks its ranks.

    Args:
        words: `-m MODULE …` or `-c LINES …`.
        before: called first, so that ranks inherit what it changes; it has to be picklable.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _finished(Path(folder), _interpreter, (list(words), before))


def run_ranks(words: Sequence[str], ranks: int) -> tuple[End, Ended]:
    """Run `python WORDS…` in each of several ranks."""
    with tempfile.TemporaryDirectory() as folder:
        ended = _finished(Path(folder), _supervised, (list(words), ranks))
        return End(*json.loads((Path(folder) / "end.json").read_text())), ended


def _finished(folder: Path, target: Callable[..., None], arguments: tuple[Any, ...]) -> Ended:
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, *trainer_modules(), __name__])
    process = context.Process(target=target, args=(folder, *arguments))
    with without_main_module():
        process.start()
    process.join(LONGEST)
    if process.exitcode is None:
        process.kill()
    errors = (folder / "err").read_text() if (folder / "err").exists() else ""
    assert process.exitcode is not None, f"no end after {LONGEST:g} seconds: {errors}"
    reported = [line for line in errors.splitlines() if line.startswith("lumos:")]
    return Ended(process.exitcode, reported, [pid for pid in _ranks(folder) if runs(pid)])


def _ranks(folder: Path) -> list[int]:
    log = folder / "pids"
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for somebody to ask how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def _interpreter(folder: Path, words: list[str], before: Callable[[], None] | None) -> None:
    _prepare(folder)
    if before is not None:
        before()
    _leave(_status_of(words))


def _supervised(folder: Path, words: list[str], ranks: int) -> None:
    _prepare(folder)
    end = Supervisor([sys.executable, *words], ranks).run()
    (folder / "end.json").write_text(json.dumps(end))


def _prepare(folder: Path) -> None:
    """Have standard output and error go to files, and ranks be forks that are noted."""
    for stream, name in ((1, "out"), (2, "err")):
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, stream)
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.modules["torch"].set_num_threads(1)

    class Noted(Forked):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            with (folder / "pids").open("a") as log:
                log.write(f"{self.pid}\n")

    supervisor.subprocess.Popen = Noted  # type: ignore[attr-defined]


class Forked:
    """`subprocess.Popen` of an interpreter, as far as a supervisor uses it."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], stdin: int, start_new_session: bool
    ) -> None:
        assert (command[0], stdin, start_new_session) == (
            sys.executable,
            subprocess.DEVNULL,
            True,
        )
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid:
            return
        os.setsid()
        os.environ.clear()
        os.environ.update(env)
        _leave(_status_of(command[1:]))

    def poll(self, options: int = os.WNOHANG) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self) -> int:
        status = self.poll(0)
        assert status is not None
        return status

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


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
