"""A disk on which a process dies at any step, or the power fails there.

Only what was synced survives a loss of power: of a file the content at its last fsync, of a folder
the names at its last fsync.
"""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class Crash(BaseException):
    """The process is dead; nothing catches this."""


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests need not wait for a real disk; whether it was asked to sync is what they test."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


class CrashingDisk:
    """Watches one folder.

    Args:
        folder: where everything happens; it exists.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self._synced: dict[int, bytes] = {}
        self._durable: dict[str, bytes] = {}
        self._left: float = float("inf")
        for name in ("fsync", "replace", "unlink"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def crash_after(self, steps: float) -> None:
        """Die at the step after so many."""
        self._left = steps

    def lose_power(self) -> None:
        """Have what was synced, and nothing else."""
        self._left = float("inf")
        durable = dict(self._durable)
        shutil.rmtree(self.folder)
        self.folder.mkdir(mode=0o700)
        for name, content in durable.items():
            (self.folder / name).write_bytes(content)
            (self.folder / name).chmod(0o600)
        self._synced = {path.stat().st_ino: path.read_bytes() for path in self.folder.iterdir()}

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            if self._left <= 0:
                raise Crash
            self._left -= 1
            result = call(*given, **named)
            if name == "fsync":
                self._sync(given[0])
            return result

        return step

    def _sync(self, file: int) -> None:
        about = os.fstat(file)
        if stat.S_ISDIR(about.st_mode):
            self._durable = {
                path.name: self._synced.get(path.stat().st_ino, b"")
                for path in self.folder.iterdir()
            }
            return
        for path in self.folder.iterdir():
            if path.stat().st_ino == about.st_ino:
                self._synced[about.st_ino] = path.read_bytes()
                if path.name in self._durable:
                    self._durable[path.name] = self._synced[about.st_ino]
