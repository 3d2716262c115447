"""Processes: longest first, within memory, and one that fails leaves the others alone."""

from pathlib import Path

import numpy as np
import pytest

from lumos.experiments import scheduler as pool
from lumos.experiments.cache import ResultCache
from lumos.experiments.cell import Cell, Key, key_of
from lumos.experiments.scheduler import Ended, Room, Waiting, _next, planned, run_all
from lumos.experiments.structure import CDF_POINTS, cdf_points
from lumos.experiments.worker import CellJob

ROOM = Room(jobs=2, threads=1, megabytes=10_000)


def waiting(tmp_path: Path, cell: Cell, key: Key, seconds: float = 1, memory: float = 1) -> Waiting:
    store = ResultCache(tmp_path)
    job = CellJob(
        cell=cell,
        key=key,
        data_dir=None,
        place=store.place(key),
        partial=store.partial(key),
    )
    return Waiting(job=job, seconds=seconds, megabytes=memory)


def some(tmp_path: Path, *needs: tuple[float, float]) -> list[Waiting]:
    cells = [Cell.of("trees", "demo:60", seed, balancer="none") for seed in range(len(needs))]
    return [
        waiting(tmp_path, cell, key_of(cell, "x"), seconds, memory)
        for cell, (seconds, memory) in zip(cells, needs, strict=True)
    ]


def test_the_plan_is_longest_first(tmp_path: Path) -> None:
    # 5 | 4, then 3 joins 4, then 2 joins 5, then 1 joins either: 8
    assert planned(some(tmp_path, *((n, 1) for n in (1, 2, 3, 4, 5))), ROOM) == 8
    assert planned([], ROOM) == 0


def test_a_job_waits_for_memory_unless_it_is_alone(tmp_path: Path) -> None:
    big, small, huge = some(tmp_path, (9, 8_000), (1, 1_000), (5, 50_000))
    assert _next([big, small], [], ROOM) is big
    assert _next([huge, small], [(big, None, 0.0)], ROOM) is small
    assert _next([huge], [(big, None, 0.0)], ROOM) is None
    assert _next([huge], [], ROOM) is huge
    assert _next([small], [(small, None, 0.0)] * 2, ROOM) is None


@pytest.mark.usefixtures("must_end")
def test_a_cell_that_fails_or_is_refused_stops_nobody(tmp_path: Path) -> None:
    good = Cell.of("trees", "demo:60", 0, balancer="greedy", compare="ideal")
    refused = Cell.of("trees", "demo:60", 0, balancer="no such")
    broken = Cell.of("trees", "demo:60", 0, no_such_setting=1)
    stale = Cell.of("trees", "demo:60", 1, balancer="none")
    jobs = [waiting(tmp_path, cell, key_of(cell, "x")) for cell in (broken, refused, good)]
    jobs.append(waiting(tmp_path, stale, Key("r", "another-code")))
    told: list[int] = []

    def hear(_: Ended, left: int) -> None:
        told.append(left)

    ended = {end.job.cell: end for end in run_all(jobs, ROOM, tmp_path / "logs", hear)}
    assert told == [3, 2, 1, 0]
    assert ended[good].status == 0
    assert ResultCache(tmp_path).get(key_of(good, "x")) is not None
    assert ended[refused].status == 2
    assert ended[refused].reason.startswith("--balancer must be one of none")
    assert ended[broken].status == 1
    assert "no_such_setting" in ended[broken].reason
    assert "\n" not in ended[broken].reason
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
    monkeypatch.setattr(pool, "CGROUP", tmp_path)
    monkeypatch.setattr(pool, "MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {1000 << 10} kB\n")
    monkeypatch.setattr(pool.os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    assert pool.available_cores() == cores
    assert pool.available_megabytes() == megabytes


def test_a_distribution_in_few_points() -> None:
    values, counts = np.arange(1000), np.ones(1000, np.int64)
    points = cdf_points(values, counts)
    assert len(points) <= CDF_POINTS
    assert points[0] == [0, 1]
    assert points[-1] == [999, 1000]
    assert [value for value, _ in points[:100]] == list(range(100))
    assert cdf_points(values[:200], counts[:200]) == [[n, n + 1] for n in range(200)]
    assert all(up_to == value + 1 for value, up_to in points)
    assert cdf_points(np.array([3, 8]), np.array([2, 1])) == [[3, 2], [8, 3]]
