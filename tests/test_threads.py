"""Threads by the size of the work."""

import sys

import numpy as np
import pytest
import torch

from lumos import machine as threads
from lumos.machine import ROWS_PER_THREAD, VARIABLES, thread_count, threads_for

LARGE = 100 * ROWS_PER_THREAD


@pytest.fixture(autouse=True)
def nobody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A library that uses four threads; the list is what it was told, newest last."""
    told = [4]
    mine = threads.ThreadPool(lambda: told[-1], told.append)
    monkeypatch.setattr(threads, "_pools", lambda: [mine])
    return told


@pytest.mark.parametrize(
    ("devices", "edges", "expected"),
    [
        (60, 100, 1),
        (22_470, 171_002, 1),
        (1_000_000, 500_000, 2),
        (1_000_000, 5_000_000, 4),
        (0, 0, 1),
    ],
)
def test_one_for_every_million_rows(devices: int, edges: int, expected: int) -> None:
    assert thread_count(devices, edges, 4) == expected


def test_small_work_uses_one_and_gives_the_others_back(pool: list[int]) -> None:
    with threads_for(60, 100):
        assert pool == [4, 1]
    assert pool == [4, 1, 4]


def test_they_come_back_after_an_error(pool: list[int]) -> None:
    with pytest.raises(KeyError), threads_for(60, 100):
        raise KeyError
    assert pool[-1] == 4


def test_large_work_leaves_them_alone(pool: list[int]) -> None:
    with threads_for(LARGE, LARGE):
        assert pool == [4]


@pytest.mark.parametrize("name", VARIABLES)
def test_the_environment_is_obeyed(
    name: str, pool: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "4")
    with threads_for(60, 100):
        assert pool == [4]


def test_a_number_that_torch_was_told_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(threads, "_defaults", lambda: (before + 1, before + 2))
    with threads_for(60, 100):
        assert torch.get_num_threads() == before


def test_torch_and_openblas_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    np.ones((300, 300)) @ np.ones((300, 300))
    openblas = threads._openblas(threads._loaded_openblas())
    if sys.platform == "linux":
        assert openblas
    before = torch.get_num_threads(), [pool.get() for pool in openblas]
    torch.set_num_threads(2)
    for pool in openblas:
        pool.set(2)
    chosen = [pool.get() for pool in openblas]
    monkeypatch.setattr(threads, "_defaults", lambda: (2, 2))
    try:
        with threads_for(60, 100):
            assert torch.get_num_threads() == 1
            assert all(pool.get() == 1 for pool in openblas)
        assert torch.get_num_threads() == 2
        assert [pool.get() for pool in openblas] == chosen
    finally:
        torch.set_num_threads(before[0])
        for pool, threads_before in zip(openblas, before[1], strict=True):
            pool.set(threads_before)
