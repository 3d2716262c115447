"""Processes: longest first, within memory, and one that fails leaves the others alone."""

import multiprocessing
import os
from pathlib import Path

import pytest

from lumos.experiments import scheduler
from lumos.experiments.cache import Key, ResultCache, key_of
from lumos.experiments.cell import Cell
from lumos.experiments.scheduler import (
    JobEnd,
    PlannedJob,
    Resources,
    _next,
    _Running,
    expected_seconds,
    run_all,
)
from lumos.experiments.worker import CellJob

RESOURCES = Resources(jobs=2, threads=1, megabytes=10_000)
PROCESS = multiprocessing.get_context("spawn").Process()
"""Never started."""


def planned(
    tmp_path: Path, cell: Cell, key: Key, seconds: float = 1, memory: float = 1
) -> PlannedJob:
    cache = ResultCache(tmp_path)
    job = CellJob(
        cell=cell,
        key=key,
        data_dir=None,
        path=cache.path(key),
        partial=cache.partial(key),
    )
    return PlannedJob(job=job, seconds=seconds, megabytes=memory)


def some(tmp_path: Path, *needs: tuple[float, float]) -> list[PlannedJob]:
    cells = [Cell.of("trees", "demo:60", seed, balancer="none") for seed in range(len(needs))]
    return [
        planned(tmp_path, cell, key_of(cell, "x"), seconds, memory)
        for cell, (seconds, memory) in zip(cells, needs, strict=True)
    ]


def test_the_plan_is_longest_first(tmp_path: Path) -> None:
    # 5 | 4, then 3 joins 4, then 2 joins 5, then 1 joins either: 8
    assert expected_seconds(some(tmp_path, *((n, 1) for n in (1, 2, 3, 4, 5))), RESOURCES) == 8
    assert expected_seconds([], RESOURCES) == 0


def test_a_job_waits_for_memory_unless_it_is_alone(tmp_path: Path) -> None:
    big, small, huge = some(tmp_path, (9, 8_000), (1, 1_000), (5, 50_000))
    alone = _Running(big, PROCESS, 0.0)
    assert _next([big, small], [], RESOURCES) is big
    assert _next([huge, small], [alone], RESOURCES) is small
    assert _next([huge], [alone], RESOURCES) is None
    assert _next([huge], [], RESOURCES) is huge
    assert _next([small], [_Running(small, PROCESS, 0.0)] * 2, RESOURCES) is None


@pytest.mark.usefixtures("must_end")
def test_a_cell_that_fails_or_is_refused_stops_nobody(tmp_path: Path) -> None:
    good = Cell.of("trees", "demo:60", 0, balancer="greedy", compare="ideal")
    refused = Cell.of("trees", "demo:60", 0, balancer="no such")
    broken = Cell.of("trees", "demo:60", 0, no_such_setting=1)
    stale = Cell.of("trees", "demo:60", 1, balancer="none")
    jobs = [planned(tmp_path, cell, key_of(cell, "x")) for cell in (broken, refused, good)]
    jobs.append(planned(tmp_path, stale, Key("r", 999)))
    counts: list[int] = []

    def on_end(_: JobEnd, remaining: int) -> None:
        counts.append(remaining)

    ended = {end.job.cell: end for end in run_all(jobs, RESOURCES, tmp_path / "logs", on_end)}
    assert counts == [3, 2, 1, 0]
    assert ended[good].status == 0
    assert ResultCache(tmp_path).get(key_of(good, "x")) is not None
    assert ended[refused].status == 2
    assert ended[refused].reason.startswith("`balancer` must be one of none")
    assert ended[broken].status == 1
    assert "no_such_setting" in ended[broken].reason
    assert "\n" not in ended[broken].reason
    assert ended[stale].reason.startswith("result version of trees is")
    assert "the source was changed" in ended[stale].reason
    assert ResultCache(tmp_path).get(key_of(broken, "x")) is None
    assert "Traceback" in (tmp_path / "logs" / f"{key_of(broken, 'x')}.txt").read_text()


@pytest.mark.parametrize(
    ("limits", "cores", "megabytes"),
    [
        ({}, 4, 1000),
        ({"cpu.max": "max 100000", "memory.max": "max", "memory.current": "7"}, 4, 1000),
        ({"cpu.max": "150000 100000"}, 1, 1000),
        ({"cpu.max": "800000 100000"}, 4, 1000),
        ({"memory.max": str(600 << 20), "memory.current": str(200 << 20)}, 4, 400),
        (
            {
                "memory.max": str(600 << 20),
                "memory.current": str(500 << 20),
                "memory.stat": f"anon 5\ninactive_file {100 << 20}\nslab 3",
            },
            4,
            200,
        ),
    ],
)
def test_the_limits_of_a_container_count(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, str],
    cores: int,
    megabytes: float,
) -> None:
    for name, text in limits.items():
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(scheduler, "CGROUP", tmp_path)
    monkeypatch.setattr(scheduler, "MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {1000 << 10} kB\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    assert scheduler.available_cores() == cores
    assert scheduler.available_megabytes() == megabytes
