"""What a device answers with, on disk: for its owner only, and never with a budget anew."""

import stat
from pathlib import Path

import numpy as np
import pytest

from lumos.deploy.protocol.job import ANSWERS_WITH
from lumos.deploy.state import ANSWERING, ANSWERS, AnsweringFiles
from lumos.errors import InputError
from lumos.training.trainer import PairAnswer
from lumos.typing import Arrays

SNAPSHOT: Arrays = {
    "phase": np.array(9),
    "absent": np.array([4]),
    "heard/0/strict/colour/sender": np.array([3]),
    f"{ANSWERS_WITH}vectors": np.array([[3, -1]], np.int8),
}


def files(folder: Path, run: str = "run", device: int = 2) -> AnsweringFiles:
    """As a process that starts has them."""
    return AnsweringFiles(folder, run, device)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a device that has asked one device, and answered another."""
    begun = files(tmp_path)
    begun.begin(SNAPSHOT)
    begun.pairs.agree(7, (1, 0))
    begun.pairs.learn(7, -0.25)
    begun.pairs.agree(3, (1, 1))
    return tmp_path


def test_a_process_that_starts_finds_what_was_answered(folder: Path) -> None:
    assert files(folder).exist
    pairs = files(folder).pairs
    assert pairs.used == (1, 1)
    assert pairs.answer(7) == PairAnswer(-0.25, answered=True)
    assert pairs.agreed(3)
    assert pairs.answer(3) is None
    assert not pairs.agreed(2)


def test_only_what_answers_need_is_kept(folder: Path) -> None:
    loaded = files(folder).load()
    assert set(loaded) == {"run", "device", "absent", f"{ANSWERS_WITH}vectors"}
    assert loaded[f"{ANSWERS_WITH}vectors"].tolist() == [[3, -1]]
    for name in (ANSWERS, ANSWERING):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


def test_the_end_of_the_training_may_come_again(folder: Path) -> None:
    """A device that is killed before its last snapshot writes all files once more."""
    files(folder).begin(SNAPSHOT)
    assert files(folder).pairs.used == (1, 1)


def test_nothing_is_there_before_the_end_of_the_training(tmp_path: Path) -> None:
    assert not files(tmp_path).exist
    assert files(tmp_path).pairs.used == (0, 0)
    assert list(tmp_path.iterdir()) == []


def test_the_log_is_there_before_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, snapshot: Arrays) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("lumos.deploy.state.write_snapshot", fail)
    with pytest.raises(OSError, match="full"):
        files(tmp_path).begin(SNAPSHOT)
    assert (tmp_path / ANSWERS).stat().st_size
    assert not files(tmp_path).exist


def refused(folder: Path, line: str, **other: int | str) -> None:
    """A process that starts refuses the log before it answers, with one line."""
    for read in (lambda made: made.load(), lambda made: made.pairs):
        with pytest.raises(InputError, match=line) as raised:
            read(files(folder, **other))  # type: ignore[arg-type]
        assert "never a folder from a backup" in str(raised.value)
        assert "\n" not in str(raised.value)


def test_a_log_that_is_missing_is_no_budget_anew(folder: Path) -> None:
    (folder / ANSWERS).unlink()
    refused(folder, f"{ANSWERS}: is missing or empty")
    assert not (folder / ANSWERS).exists()


def test_a_log_that_is_empty_is_no_budget_anew(folder: Path) -> None:
    (folder / ANSWERS).write_bytes(b"")
    refused(folder, f"{ANSWERS}: is missing or empty")


@pytest.mark.parametrize("place", [0, 40, -5])
def test_a_damaged_log_is_refused(folder: Path, place: int) -> None:
    content = bytearray((folder / ANSWERS).read_bytes())
    content[place] ^= 1
    (folder / ANSWERS).write_bytes(content)
    refused(folder, f"{ANSWERS}: record . is damaged")


def test_a_log_of_another_run_or_device_is_refused(folder: Path) -> None:
    refused(folder, f"{ANSWERS}: is of another run", run="another")
    refused(folder, f"{ANSWERS}: is of another run", device=3)


def test_what_a_device_answers_with_is_of_its_run(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    files(other, device=3).begin(SNAPSHOT)
    (other / ANSWERING).rename(folder / ANSWERING)
    with pytest.raises(InputError, match=f"{ANSWERING}: is of another run"):
        files(folder).load()


def test_damage_to_what_a_device_answers_with_is_refused(folder: Path) -> None:
    content = bytearray((folder / ANSWERING).read_bytes())
    content[-20] ^= 1
    (folder / ANSWERING).write_bytes(content)
    with pytest.raises(InputError, match=f"{ANSWERING}: is damaged"):
        files(folder).load()
    (folder / ANSWERING).unlink()
    with pytest.raises(InputError, match=f"{ANSWERING}: is missing"):
        files(folder).load()
