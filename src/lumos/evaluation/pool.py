"""Results of runs that were computed before: a folder with one JSON file for each."""

import fcntl
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from lumos import __version__
from lumos.errors import InputError, LumosError, UsageError
from lumos.storage import one_line, read_json, write_json
from lumos.training.profile import PROFILES


def result_key(
    kind: str, settings: Mapping[str, Any], seed: int, data: str, package: str = __version__
) -> str:
    """Return 16 hexadecimal digits that name a result.

    Args:
        kind: what is computed.
        settings: as JSON can carry them; see `plain_settings`.
        seed: run seed.
        data: fingerprint of the graph, and of what else the run reads.
        package: version of Lumos; left out where empty.
    """
    content: dict[str, Any] = {"kind": kind, "seed": seed, "settings": settings, "graph": data}
    if package:
        content["package"] = package
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=8).hexdigest()


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as JSON can carry them: infinity as text, whole numbers as integers."""
    return {name: _plain(value) for name, value in settings.items()}


def _plain(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    if math.isfinite(value) and value == int(value):
        return int(value)
    return f"{value:g}" if math.isinf(value) else value


class ResultCache:
    """The results of one folder: FOLDER/results/KEY.json, each written atomically."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> dict[str, Any] | None:
        """Return a result, or None.

        Raises:
            InputError: its file is damaged.
        """
        path = self._path(key)
        if not path.exists():
            return None
        record = read_json(path)
        if isinstance(record, dict) and isinstance(record.get("result"), dict):
            return dict(record["result"])
        raise InputError(f"{path}: is no result; remove it and start again")

    def put(self, key: str, result: Mapping[str, Any], **about: Any) -> None:
        """Write a result and what it is about; only its owner may read it."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {**about, "result": finite(result)}, private=True)

    def _path(self, key: str) -> Path:
        return self.folder / "results" / f"{key}.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder: two commands in one would compute everything twice."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.folder}: cannot be a folder ({error.strerror})") from None
        with (self.folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(
                    f"{self.folder}: another command is at work there; wait for it, or choose "
                    "another `out`"
                ) from None
            yield


def finite(value: Any) -> Any:
    """Return a value for JSON, which has neither NaN nor infinity: they become None."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# A pool that runs every job in a process of its own, so that memory and time are the job's.

PARENT_GONE = 3
"""Exit status of a process whose parent has died."""
# Optimizers of torch import the last one when they are first used, which takes more than a second.
PRELOADED = (__name__, "lumos.runs.train", "lumos.baselines", "torch._dynamo")
_FORKS = sys.platform == "linux"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A call in a process of its own; arguments and result are pickled."""

    name: str
    """Name of its log, without the suffix."""
    call: Callable[..., Any]
    """A function of a module."""
    arguments: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """The end of a job."""

    job: Job
    result: Any = None
    status: int
    """0: done. 2: refused, as a wrong setting is. Anything else: failed."""
    reason: str = ""
    """One line, where there is no result."""
    seconds: float

    @property
    def how(self) -> str:
        """The end in a few words."""
        return f"failed: {self.reason}" if self.status else f"{self.seconds:.0f} s"


def processes(jobs: int, at_once: int | None = None) -> int:
    """Return the number of processes at a time: `at_once`, or one for each core."""
    return max(1, min(at_once or available_cores(), jobs))


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def run_jobs(
    jobs: Sequence[Job],
    *,
    at_once: int | None,
    logs: Path,
    on_end: Callable[[JobEnd, int], None],
) -> list[JobEnd]:
    """Run every job. An exception, a keyboard interrupt too, kills all processes.

    Args:
        at_once: processes at a time; as many as cores where None. They share the cores.
        logs: folder for standard output and error of jobs that fail.
        on_end: callback `(end, remaining)`, called when a job has ended.
    """
    if not jobs:
        return []
    workers = processes(len(jobs), at_once)
    threads = max(1, available_cores() // workers)
    logs.mkdir(parents=True, exist_ok=True)
    pool = _Processes(logs, threads)
    ends: list[JobEnd] = []
    with ThreadPoolExecutor(workers) as executor:
        try:
            for future in as_completed([executor.submit(pool.run, job) for job in jobs]):
                ends.append(future.result())
                on_end(ends[-1], len(jobs) - len(ends))
        except BaseException:
            pool.kill()
            raise
    if not any(logs.iterdir()):
        logs.rmdir()
    return ends


class _Processes:
    """Processes that run now; none is started any more after `kill`."""

    def __init__(self, logs: Path, threads: int) -> None:
        self._logs, self._threads = logs, threads
        self._running: set[BaseProcess] = set()
        self._lock = threading.Lock()
        self._killed = False

    def run(self, job: Job) -> JobEnd:
        """Run a job and wait for its end; called in a thread of its own."""
        start, log = time.perf_counter(), self._logs / f"{job.name}.txt"
        receiver, sender = multiprocessing.Pipe(duplex=False)
        with self._lock:
            if self._killed:
                return JobEnd(job=job, status=1, reason="not run", seconds=0.0)
            process = _start(job, log, self._threads, sender)
            self._running.add(process)
        sender.close()
        try:
            status, result = receiver.recv()
        except EOFError:
            status, result = 1, None
        process.join()
        with self._lock:
            self._running.discard(process)
        seconds = time.perf_counter() - start
        if status == 0:
            log.unlink(missing_ok=True)
            return JobEnd(job=job, result=result, status=0, seconds=seconds)
        reason = result or _death(process.exitcode or 0)
        return JobEnd(job=job, status=status, reason=reason, seconds=seconds)

    def kill(self) -> None:
        """End every process at once; results are written atomically, so none is damaged."""
        with self._lock:
            self._killed = True
            for process in self._running:
                process.kill()


def _death(status: int) -> str:
    """Return why a process has sent nothing."""
    if status >= 0:
        return f"its process ended with status {status} and without a result"
    memory = ", as it is when memory runs out" if status == -signal.SIGKILL else ""
    return f"its process was ended by signal {-status}{memory}"


def _process_context() -> Any:
    """Return the context of new processes: on Linux forks of one that has imported torch."""
    context: Any = multiprocessing.get_context("forkserver" if _FORKS else "spawn")
    if _FORKS:
        context.set_forkserver_preload([*PRELOADED, *trainer_modules()])
    return context


def trainer_modules() -> list[str]:
    """Return the modules of the profiles' trainers."""
    packages = (type(PROFILES[name]).__module__.rpartition(".")[0] for name in PROFILES)
    return [f"{package}.trainer" for package in packages]


def _start(job: Job, log: Path, threads: int, sender: Any) -> BaseProcess:
    process: BaseProcess = _process_context().Process(
        target=_child, args=(job, log, threads, sender), daemon=True
    )
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    try:
        with without_main_module():
            process.start()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return process


@contextmanager
def without_main_module() -> Iterator[None]:
    """Hide the script that is run: a process would import it, and so run it again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _child(job: Job, log: Path, threads: int, sender: Any) -> None:
    """Run the job in its process and send `(status, result or reason)`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the keyboard's interrupt is the parent's
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    try:
        sender.send((0, job.call(**job.arguments)))
    except LumosError as error:
        print(error, file=sys.stderr, flush=True)
        sender.send((error.exit_status, str(error)))
    except Exception as error:
        traceback.print_exc()
        sender.send((1, f"{type(error).__name__}: {one_line(error)}"))


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(PARENT_GONE)
