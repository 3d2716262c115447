"""Processes: one that fails, is refused or is killed leaves the others alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

from lumos.errors import UsageError
from lumos.evaluation.pool import Job, JobEnd, ResultCache, result_key, run_jobs

pytestmark = pytest.mark.usefixtures("must_end")


def double(number: int) -> int:
    return 2 * number


def refuse() -> NoReturn:
    raise UsageError("`x` must be 1")


def fail() -> NoReturn:
    raise ValueError("two\nlines")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(mark: str) -> None:
    Path(mark).write_text(str(os.getpid()))
    time.sleep(600)


def job(call: object, **arguments: object) -> Job:
    return Job(name=call.__name__, call=call, arguments=arguments)  # type: ignore


def test_every_end_has_one_line(tmp_path: Path) -> None:
    counts: list[int] = []

    def on_end(_: JobEnd, remaining: int) -> None:
        counts.append(remaining)

    jobs = [job(fail), job(refuse), job(die), job(double, number=4)]
    ended = {end.job.name: end for end in run_jobs(jobs, at_once=2, logs=tmp_path, on_end=on_end)}
    assert counts == [3, 2, 1, 0]
    assert (ended["double"].status, ended["double"].result) == (0, 8)
    assert (ended["refuse"].status, ended["refuse"].reason) == (2, "`x` must be 1")
    assert (ended["fail"].status, ended["fail"].reason) == (1, "ValueError: two lines")
    assert ended["die"].status == 1
    assert "ended by signal 9, as it is when memory runs out" in ended["die"].reason
    assert "Traceback" in (tmp_path / "fail.txt").read_text()
    assert not (tmp_path / "double.txt").exists()


PROGRAM = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.evaluation.test_pool import job, sleep
from lumos.evaluation.pool import run_jobs
folder = Path(sys.argv[1])
jobs = [job(sleep, mark=str(folder / "mark"))]
run_jobs(jobs, at_once=1, logs=folder / "logs", on_end=print)
"""


@pytest.mark.parametrize(
    "blow",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.long),  # also: Ctrl-C in test_reproduce
        signal.SIGKILL,
    ],
)
def test_no_process_outlives_its_parent(tmp_path: Path, blow: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stderr=subprocess.DEVNULL
    )
    mark = tmp_path / "mark"
    while not (mark.exists() and mark.read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(blow)
    process.wait()
    while alive(int(mark.read_text())):
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_result_is_found_by_settings_seed_graph_and_package(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path)
    key = result_key("train", {"epsilon": 2}, 0, "graph")
    others = {
        result_key("baseline", {"epsilon": 2}, 0, "graph"),
        result_key("train", {"epsilon": 1}, 0, "graph"),
        result_key("train", {"epsilon": 2}, 1, "graph"),
        result_key("train", {"epsilon": 2}, 0, "other"),
        result_key("train", {"epsilon": 2}, 0, "graph", package="another"),
    }
    assert len(others | {key}) == 6
    assert cache.get(key) is None
    cache.put(key, {"score": 0.5, "loss": float("nan")})
    assert cache.get(key) == {"score": 0.5, "loss": None}
    with cache.locked(), pytest.raises(UsageError, match="another command"), cache.locked():
        pass
