"""The disk of the coordinator: killed or without power at every step, and files that are cut."""

import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deploy.crashing_disk import Crash, CrashingDisk, quick_disk  # noqa: F401

from lumos import InputError
from lumos.deploy.protocol.frames import Data, RoundKey
from lumos.deploy.state import CoordinatorFolder
from lumos.typing import Arrays

Envelopes = dict[int, Data]


def key(phase: int, number: int, attempt: int = 0) -> RoundKey:
    return RoundKey(phase, attempt, 0, number)


def envelopes(of: RoundKey) -> Envelopes:
    return {
        0: Data(of, "masked", 2, bytes(range(8))),
        3: Data(of, "reveal", 2, b"abcde", [2, 3]),
        7: Data(of, "reveal", 0, b""),
    }


def snapshot(phase: int) -> Arrays:
    return {"phase": np.array(phase), "run/x": np.linspace(0, phase, 7)}


def add(phase: int, number: int) -> Callable[[CoordinatorFolder], None]:
    return lambda folder: folder.add_round(key(phase, number), envelopes(key(phase, number)))


STEPS: list[Callable[[CoordinatorFolder], Any]] = [
    add(0, 0),
    add(0, 1),
    lambda folder: folder.begin(0, 1, [5], {}),
    lambda folder: folder.leave_out(5, "trees"),
    lambda folder: folder.save(snapshot(1)),
    lambda folder: folder.save(snapshot(2)),
    add(2, 0),
    lambda folder: folder.begin(2, 1, [5], {}),
    lambda folder: folder.begin(2, 4, [2, 5], {"n": np.arange(3)}),
    add(3, 7),  # the snapshot of that phase comes later
    lambda folder: folder.leave_out(2, "epoch 1 of 3"),
    add(2, 1),
    lambda folder: folder.save(snapshot(3)),
    add(3, 0),
]

State = tuple[int, dict[RoundKey, Envelopes], dict[int, str], int]


def state(folder: CoordinatorFolder) -> State:
    found = folder.load()
    phase = 0 if found is None else int(found["phase"])
    if found is not None:
        assert np.array_equal(found["run/x"], snapshot(phase)["run/x"])
    begun = folder.begun(phase)
    return phase, folder.rounds(), folder.left_out(), 0 if begun is None else begun.attempt


def after_steps(path: Path) -> list[State]:
    folder = CoordinatorFolder(path)
    states = [state(folder)]
    for step in STEPS:
        step(folder)
        states.append(state(CoordinatorFolder(path)))
    return states


def test_everything_is_there_for_the_next_process(tmp_path: Path) -> None:
    states = after_steps(tmp_path / "coordinator")
    assert states[0] == (0, {}, {}, 0)
    first = {key(0, number): envelopes(key(0, number)) for number in range(2)}
    assert states[4] == (0, first, {5: "trees"}, 1)
    assert states[5] == (1, {}, {5: "trees"}, 0)
    assert states[9][3] == 4
    last = {key(3, number): envelopes(key(3, number)) for number in (7, 0)}
    assert states[-1] == (3, last, {5: "trees", 2: "epoch 1 of 3"}, 0)


def test_only_the_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "coordinator"
    after_steps(path)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()}
    assert modes == dict.fromkeys(
        ["snapshot.bin", "rounds.log", "attempts.log", "left_out.log"], 0o600
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_every_step_leaves_what_was_before_or_what_comes_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, power: bool
) -> None:
    """Also between the snapshot and the rounds that it drops."""
    states = after_steps(tmp_path / "whole")
    path = tmp_path / "coordinator"
    for crash_after in range(1000):
        shutil.rmtree(path, ignore_errors=True)
        folder = CoordinatorFolder(path)
        with monkeypatch.context() as patched:
            disk = CrashingDisk(patched, path)
            disk.crash_after(crash_after)
            done = 0
            try:
                for step in STEPS:
                    step(folder)
                    done += 1
            except Crash:
                pass
            else:
                break
            disk.crash_after(float("inf"))
            if power:
                disk.lose_power()
        again = CoordinatorFolder(path)
        assert state(again) in states[done : done + 2]
        for step in STEPS[done:]:  # the interrupted one is done again
            step(again)
        assert state(CoordinatorFolder(path)) == states[-1]
    assert done == len(STEPS)
    assert crash_after > 30


def test_a_log_cut_at_every_byte_has_the_rounds_that_were_complete(tmp_path: Path) -> None:
    """Nothing followed from a round that was not; the next one goes on behind the cut."""
    folder = CoordinatorFolder(tmp_path / "coordinator")
    path, ends = folder.path / "rounds.log", []
    folder.save(snapshot(1))
    for number in range(3):
        add(1, number)(folder)
        ends.append(path.stat().st_size)
    content = path.read_bytes()
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        cut = CoordinatorFolder(folder.path)
        complete = [key(1, number) for number in range(3) if ends[number] <= size]
        assert list(cut.rounds()) == complete
        add(1, 9)(cut)
        found = CoordinatorFolder(folder.path).rounds()
        assert found == {of: envelopes(of) for of in [*complete, key(1, 9)]}


def test_rounds_of_all_attempts_at_the_phase_are_kept(tmp_path: Path) -> None:
    """By them the coordinator knows the attempt that it was in."""
    folder = CoordinatorFolder(tmp_path / "coordinator")
    for attempt in range(2):
        folder.add_round(key(0, 0, attempt), envelopes(key(0, 0, attempt)))
    assert list(CoordinatorFolder(folder.path).rounds()) == [key(0, 0, 0), key(0, 0, 1)]


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("rounds.log", CoordinatorFolder.rounds),
        ("rounds.log", CoordinatorFolder.load),
        ("left_out.log", CoordinatorFolder.left_out),
        ("attempts.log", lambda folder: folder.begun(0)),
        ("snapshot.bin", CoordinatorFolder.load),
        ("snapshot.bin", CoordinatorFolder.rounds),
    ],
)
def test_a_damaged_file_is_refused(
    tmp_path: Path, name: str, read: Callable[[CoordinatorFolder], Any]
) -> None:
    path = tmp_path / "coordinator"
    after_steps(path)
    CoordinatorFolder(path).begin(3, 1, [5], {})
    damaged = bytearray((path / name).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (path / name).write_bytes(damaged)
    with pytest.raises(InputError, match=f"{name}: .*is damaged.*; the run cannot go on; begin"):
        read(CoordinatorFolder(path))


def test_a_snapshot_that_is_missing_or_older_than_the_rounds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "coordinator"
    after_steps(path)
    CoordinatorFolder(tmp_path / "older").save(snapshot(2))
    shutil.copy(tmp_path / "older" / "snapshot.bin", path)
    with pytest.raises(InputError, match=r"is missing, or older than rounds\.log; the run cannot"):
        CoordinatorFolder(path).load()
    (path / "snapshot.bin").unlink()
    with pytest.raises(InputError, match=r"is missing, or older than rounds\.log"):
        CoordinatorFolder(path).rounds()
