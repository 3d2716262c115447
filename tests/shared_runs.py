"""What several tests read and none changes: made once, by whichever test process comes first."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lumos


class SharedFolders:
    """Folders that all processes of one pytest run share.

    Args:
        base: of all of them; made here if it is not there.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        base.mkdir(exist_ok=True)

    @classmethod
    def of_session(cls, factory: pytest.TempPathFactory) -> "SharedFolders":
        """Return those beside the temporary folders of the test processes."""
        base = factory.getbasetemp()
        return cls((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared")

    def made(self, name: str, make: Callable[[Path], object]) -> Path:
        """Return the folder of that name; `make` is called with its path where it is not there."""
        folder, done = self._base / name, self._base / f"{name}.done"
        with (self._base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # half made
                make(folder)
                done.touch()
        return folder

    def copied(self, name: str, make: Callable[[Path], object], to: Path) -> Path:
        """Return a copy of the folder of that name, which a test may change."""
        return Path(shutil.copytree(self.made(name, make), to))

    def trained(self, name: str, graph: str, **settings: Any) -> Path:
        """Return the folder of a finished run; the name stands for its settings."""
        return self.made(name, lambda out: lumos.train(graph, out=out, **settings))
