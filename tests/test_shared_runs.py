"""What tests share is made once, and made again where making it failed."""

import threading
from pathlib import Path

import pytest
from tests.shared_runs import SharedFolders


def test_it_is_made_once_however_many_ask(tmp_path: Path) -> None:
    made: list[Path] = []
    start = threading.Barrier(8)

    def make(folder: Path) -> None:
        folder.mkdir()
        made.append(folder)

    def ask() -> None:
        folders = SharedFolders(tmp_path / "shared")  # as another process has it
        start.wait()
        folders.made("one", make)

    asking = [threading.Thread(target=ask) for _ in range(8)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert made == [tmp_path / "shared" / "one"]


def test_a_failure_leaves_nothing_that_counts_as_made(tmp_path: Path) -> None:
    folders = SharedFolders(tmp_path / "shared")

    def fail(folder: Path) -> None:
        folder.mkdir()
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        folders.made("one", fail)
    made: list[Path] = []
    assert folders.made("one", made.append) == tmp_path / "shared" / "one"
    assert len(made) == 1


def test_a_run_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[dict[str, object]] = []
    monkeypatch.setattr("lumos.train", lambda graph, **settings: trained.append(settings))
    folders = SharedFolders(tmp_path / "shared")
    first = folders.trained("link", "demo:60", task="link")
    assert folders.trained("link", "demo:60", task="link") == first
    assert trained == [{"task": "link", "out": first}]
