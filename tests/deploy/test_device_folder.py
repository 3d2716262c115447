"""The disk of a device: killed or without power at every step, and files that are damaged."""

import json
import shutil
import stat
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.deploy.crashing_disk import Crash, CrashingDisk, quick_disk  # noqa: F401

from lumos import InputError, UsageError
from lumos.crypto import entropy
from lumos.deploy.protocol.frames import RoundKey
from lumos.deploy.state import DeviceFolder
from lumos.errors import AlreadyOpened
from lumos.secagg.openings import Opening
from lumos.storage import read_arrays
from lumos.typing import Arrays

RUN, OTHER_RUN = b"a run of a test!" * 2, b"another test run" * 2
NEVER_BACK = "this device cannot go on with the run, and is left out after the deadline"


def snapshot(phase: int, sums: int | None = None) -> Arrays:
    arrays: Arrays = {"phase": np.array(phase), "keep": np.arange(5) % 2 == 0}
    if sums is not None:
        arrays |= {"run/sums/number": np.array(sums), "run/x": np.linspace(0, sums, 7)}
    return arrays


def ledgers(rounds: int) -> Arrays:
    return {"run/|round": np.array(rounds)}


def opening(number: int) -> Opening:
    return Opening(-1 - number, number, bytes([number]) * 16)


def same(one: Arrays | None, other: Arrays | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) and one[name].dtype == other[name].dtype
        for name in one
    )


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def folder(tmp_path: Path) -> DeviceFolder:
    """A device in the middle of a run."""
    made = DeviceFolder(tmp_path / "device")
    made.keys(RUN)
    made.opened().open(opening(0))
    made.save(snapshot(2, 1))
    made.opened().open(opening(1))
    made.begin(2, 1, [5, 3], ledgers(7))
    return made


def test_everything_is_there_for_the_next_process(folder: DeviceFolder) -> None:
    keys = folder.keys(RUN).key("a purpose", b"")
    again = DeviceFolder(folder.path)
    assert same(again.load(), snapshot(2, 1))
    begun = again.begun(2)
    assert begun is not None
    assert (begun.attempt, sorted(begun.absent)) == (1, [3, 5])
    assert same(begun.ledgers, ledgers(7))
    assert again.begun(3) is None
    assert again.keys(RUN).key("a purpose", b"") == keys
    opened = again.opened()
    opened.open(opening(1))
    with pytest.raises(AlreadyOpened):
        opened.open(opening(1)._replace(told=b"something else"))


def test_only_the_owner_can_read(folder: DeviceFolder) -> None:
    folder.add_round(RoundKey(9, 0, 0, 0), {})
    folder.write_result({"w": np.ones(2)}, {"accuracy": 1.0})
    assert mode(folder.path) == 0o700
    assert {path.name: mode(path) for path in folder.path.iterdir()} == dict.fromkeys(
        [
            "secret.key",
            "snapshot.bin",
            "openings.log",
            "attempts.log",
            "rounds.log",
            "weights.npz",
            "result.json",
        ],
        0o600,
    )


def test_a_snapshot_drops_openings_and_attempts_before_it(folder: DeviceFolder) -> None:
    before = (folder.path / "openings.log").stat().st_size
    opened = folder.opened()
    opened.open(opening(2))
    folder.save(snapshot(3, 2))
    assert (folder.path / "openings.log").stat().st_size == before
    assert (folder.path / "attempts.log").stat().st_size == 0
    for some in (opened, DeviceFolder(folder.path).opened()):
        assert [some.has(-1 - number) for number in range(4)] == [False, False, True, False]


State = tuple[Arrays | None, tuple[bool, ...], int, int]
"""What the next process finds: snapshot, openings that count, attempt at its phase, its ledgers."""
Steps = list[Callable[[DeviceFolder], Any]]

STEPS: Steps = [
    lambda folder: folder.keys(RUN),
    lambda folder: folder.begin(0, 1, [4], ledgers(1)),
    lambda folder: folder.begin(0, 3, [4, 5], ledgers(2)),
    lambda folder: folder.save(snapshot(1)),
    lambda folder: folder.opened().open(opening(0)),
    lambda folder: folder.save(snapshot(2, 1)),
    lambda folder: folder.opened().open(opening(1)),
    lambda folder: folder.opened().open(opening(2)),
    lambda folder: folder.begin(2, 1, [4, 5, 6], ledgers(3)),
    lambda folder: folder.save(snapshot(3, 2)),
    lambda folder: folder.opened().open(opening(3)),
    lambda folder: folder.save(snapshot(4, 4)),
]


def state(folder: DeviceFolder) -> State:
    found = folder.load()
    phase = 0 if found is None else int(found["phase"])
    sums = 0 if found is None else int(found.get("run/sums/number", 0))
    opened, begun = folder.opened(), folder.begun(phase)
    later = tuple(opened.has(-1 - number) for number in range(sums, 5))
    if begun is None:
        return found, later, 0, 0
    return found, later, begun.attempt, int(begun.ledgers["run/|round"])


def is_one_of(found: State, states: list[State]) -> bool:
    return any(same(found[0], known[0]) and found[1:] == known[1:] for known in states)


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_every_step_leaves_what_was_before_or_what_comes_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, power: bool
) -> None:
    """Every call either has happened for the next process, or has not; and it can go on."""
    whole = DeviceFolder(tmp_path / "whole")
    states = [state(whole)]
    for step in STEPS:
        step(whole)
        states.append(state(DeviceFolder(whole.path)))
    path = tmp_path / "device"
    for crash_after in range(1000):
        shutil.rmtree(path, ignore_errors=True)
        folder = DeviceFolder(path)
        with monkeypatch.context() as patched:
            disk = CrashingDisk(patched, path)
            done, key = 0, None
            disk.crash_after(crash_after)
            try:
                for step in STEPS:
                    made = step(folder)
                    key = made.key("a purpose", b"") if made is not None else key
                    done += 1
            except Crash:
                pass
            else:
                break
            disk.crash_after(float("inf"))
            if power:
                disk.lose_power()
        again = DeviceFolder(path)
        assert is_one_of(state(again), states[done : done + 2])
        if key is not None:
            assert again.keys(RUN).key("a purpose", b"") == key
        for step in STEPS[done:]:  # the interrupted one is done again
            step(again)
        assert is_one_of(state(DeviceFolder(path)), states[-1:])
    assert done == len(STEPS)
    assert crash_after > 40


def test_an_opening_that_could_not_be_written_is_not_given_out(
    folder: DeviceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = folder.opened()
    with monkeypatch.context() as patched:
        CrashingDisk(patched, folder.path).crash_after(0)
        with pytest.raises(Crash):
            opened.open(opening(2))
    assert not opened.has(-3)


def test_a_store_that_does_not_sync_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin of the test with a loss of power: without fsync an opening is lost."""
    path = tmp_path / "device"
    folder = DeviceFolder(path)
    disk = CrashingDisk(monkeypatch, path)
    monkeypatch.setattr("os.fsync", lambda file: None)
    folder.opened().open(opening(0))
    disk.lose_power()
    assert not DeviceFolder(path).opened().has(-1)


def test_a_snapshot_cut_at_every_byte_is_refused(folder: DeviceFolder) -> None:
    path = folder.path / "snapshot.bin"
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(InputError, match=f"snapshot.bin: .*; {NEVER_BACK}") as refused:
            DeviceFolder(folder.path).load()
        assert "\n" not in str(refused.value)


def test_a_snapshot_with_any_byte_changed_is_refused(folder: DeviceFolder) -> None:
    path = folder.path / "snapshot.bin"
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=NEVER_BACK):
            DeviceFolder(folder.path).load()


@pytest.mark.parametrize(
    ("head", "contents", "why"),
    [
        ([["phase", "|O", [1]]], bytes(8), "neither numbers nor text"),
        ([["phase", "<M8[s]", [1]]], bytes(8), "neither numbers nor text"),
        ([["phase", "<i8", [1 << 60]]], bytes(8), "not as large"),
        ([["phase", "<i8", [-1]]], bytes(8), "not as large"),
        ([["phase", "<i8", []]], bytes(9), "not as large"),
        ([["phase", "<i8", []]], bytes(7), "not as large"),
        ([["phase", "no type", []]], b"", "head cannot be read"),
        ([["phase", "<i8"]], bytes(8), "head cannot be read"),
        ({"phase": 1}, b"", "head cannot be read"),
    ],
)
def test_a_snapshot_that_is_whole_and_wrong_is_refused(
    head: Any, contents: bytes, why: str, folder: DeviceFolder
) -> None:
    body = msgspec.msgpack.encode(head)
    content = b"lumos snapshot 1" + len(body).to_bytes(8, "little") + body + contents
    check = blake2b(content, digest_size=16, person=b"lumos snapshot").digest()
    (folder.path / "snapshot.bin").write_bytes(content + check)
    with pytest.raises(InputError, match=f"snapshot.bin: is damaged .*{why}.*; {NEVER_BACK}"):
        DeviceFolder(folder.path).load()


def test_a_snapshot_has_every_array_as_it_was(folder: DeviceFolder) -> None:
    wanted: Arrays = {
        "phase": np.array(7),
        "empty": np.empty((0, 3), np.float32),
        "words": np.array(["a", "longer"]),
        "no words": np.array([], np.str_),
        "flags": np.array([True, False]),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "every other": np.arange(10, dtype=np.uint8)[::2],
    }
    folder.save(wanted)
    loaded = folder.load()
    assert loaded is not None
    assert same(loaded, wanted)
    assert {name: (array.dtype, array.shape) for name, array in loaded.items()} == {
        name: (array.dtype, array.shape) for name, array in wanted.items()
    }
    loaded["flags"][:] = False  # as a participant does


def test_a_snapshot_of_objects_is_not_written(folder: DeviceFolder) -> None:
    with pytest.raises(TypeError, match="'phase'"):
        folder.save({"phase": np.array([object()])})


def test_a_snapshot_from_a_backup_or_a_deleted_one_is_refused(folder: DeviceFolder) -> None:
    """Its sums were opened already, and their openings are forgotten."""
    path = folder.path / "snapshot.bin"
    old = path.read_bytes()
    folder.save(snapshot(3, 2))
    path.write_bytes(old)
    with pytest.raises(InputError, match=f"is older than openings.log; {NEVER_BACK}"):
        DeviceFolder(folder.path).load()
    path.unlink()
    with pytest.raises(InputError, match=f"snapshot.bin: is missing; {NEVER_BACK}"):
        DeviceFolder(folder.path).load()


@pytest.mark.parametrize("name", ["openings.log", "attempts.log"])
def test_a_damaged_log_is_refused(folder: DeviceFolder, name: str) -> None:
    path = folder.path / name
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    again = DeviceFolder(folder.path)
    with pytest.raises(InputError, match=rf"{name}: record \d is damaged; {NEVER_BACK}"):
        again.opened() if name == "openings.log" else again.begun(0)


def test_a_secret_is_drawn_once_for_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[bytes] = []
    draw = entropy.draw

    def noted(count: int) -> bytes:
        drawn.append(draw(count))
        return drawn[-1]

    monkeypatch.setattr(entropy, "draw", noted)
    folder = DeviceFolder(tmp_path / "device")
    key = folder.keys(RUN).key("a purpose", b"")
    assert DeviceFolder(folder.path).keys(RUN).key("a purpose", b"") == key
    assert [len(bytes_) for bytes_ in drawn] == [32]
    assert drawn[0] in (folder.path / "secret.key").read_bytes()
    other = DeviceFolder(tmp_path / "other").keys(RUN)
    assert other.key("a purpose", b"") != key


def test_a_secret_of_another_run_is_refused(folder: DeviceFolder) -> None:
    with pytest.raises(InputError, match=f"is of run {RUN.hex()}, not of {OTHER_RUN.hex()}; this"):
        DeviceFolder(folder.path).keys(OTHER_RUN)


@pytest.mark.parametrize("readable", [0o640, 0o604, 0o666])
def test_a_secret_that_others_may_read_is_refused(folder: DeviceFolder, readable: int) -> None:
    (folder.path / "secret.key").chmod(readable)
    with pytest.raises(InputError, match="others may read"):
        folder.keys(RUN)


def test_a_damaged_secret_is_refused_and_not_named(folder: DeviceFolder) -> None:
    path = folder.path / "secret.key"
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        for some in (bytes(damaged), content[:place], content + b"x"):
            path.write_bytes(some)
            with pytest.raises(InputError, match=r"secret\.key: is damaged") as refused:
                folder.keys(RUN)
            assert content[16:48].hex() not in str(refused.value)


def test_a_run_that_has_begun_gets_no_new_secret(folder: DeviceFolder) -> None:
    """With another secret it would be another device."""
    (folder.path / "secret.key").unlink()
    with pytest.raises(InputError, match=f"is missing, and the device has begun.*{NEVER_BACK}"):
        DeviceFolder(folder.path).keys(RUN)


def test_a_forgotten_secret_is_overwritten_and_gone(folder: DeviceFolder, tmp_path: Path) -> None:
    path = folder.path / "secret.key"
    kept = tmp_path / "the same blocks of the disk"
    kept.hardlink_to(path)
    (folder.path / "secret.key.new").write_bytes(path.read_bytes())  # left by an interruption
    size = path.stat().st_size
    folder.forget_secret()
    assert kept.read_bytes() == bytes(size)
    assert not list(folder.path.glob("secret.key*"))
    folder.forget_secret()


@pytest.mark.parametrize("again", [False, True])
def test_a_result_is_there_only_if_both_files_are_complete(
    folder: DeviceFolder, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    weights: Arrays = {"w": np.linspace(0, 1, 9)}
    for crash_after in range(100):
        if again:
            folder.write_result({"w": np.zeros(1)}, {"accuracy": 0.0})
        with monkeypatch.context() as patched:
            disk = CrashingDisk(patched, folder.path)
            disk.crash_after(crash_after)
            try:
                folder.write_result(weights, {"accuracy": 0.5})
            except Crash:
                crashed = True
            else:
                crashed = False
        if (folder.path / "result.json").exists():
            before = json.loads((folder.path / "result.json").read_text())["accuracy"] == 0.0
            wanted: Arrays = {"w": np.zeros(1)} if before else weights
            assert same(read_arrays(folder.path / "weights.npz"), wanted)
            assert again or not before
        if not crashed:
            break
        (folder.path / "result.json").unlink(missing_ok=True)
    assert not crashed
    assert (folder.path / "result.json").exists()


def test_what_cannot_be_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file: cannot be a folder"):
        DeviceFolder(tmp_path / "file")


def test_who_has_sent_something_survives_a_restart(tmp_path: Path) -> None:
    folder = DeviceFolder(tmp_path)
    assert folder.peers() == set()
    for device in (7, 3):
        folder.add_peer(device)
    assert DeviceFolder(tmp_path).peers() == {3, 7}
    with pytest.raises(InputError, match=r"secret\.key: is missing"):
        DeviceFolder(tmp_path).keys(RUN)
