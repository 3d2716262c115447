"""Files that Lumos writes and reads again: JSON and npz, never pickle, written all or nothing.

A file is written beside its place and then moved there, so an interruption leaves the old one.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.errors import InputError
from lumos.typing import Arrays


def write_json(path: Path, content: Any) -> None:
    """Write JSON."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text."""
    _replace(path, lambda place: place.write_text(text, "utf-8"))


def write_arrays(path: Path, arrays: Mapping[str, npt.ArrayLike], *, private: bool = False) -> None:
    """Write an npz.

    Args:
        private: only its owner may read the file.
    """
    mode = 0o600 if private else 0o666

    def save(place: Path) -> None:
        place.unlink(missing_ok=True)  # left by an interruption, it would keep its own mode
        with open(place, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            named: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
            np.savez(file, **named)

    _replace(path, save)


def read_json(path: Path) -> Any:
    """Read JSON.

    Raises:
        InputError: there is no such file, or it is damaged.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; is this the folder of a run?") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error})") from None


def read_arrays(path: Path) -> Arrays:
    """Read an npz.

    Raises:
        InputError: there is no such file, or it is damaged.
    """
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; is this the folder of a run?") from None
    except Exception as error:  # zipfile, zlib and numpy have many ways to say "broken"
        raise InputError(
            f"{path}: is damaged ({type(error).__name__}); restart without `resume`"
        ) from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which need not exist; other processes wait meanwhile."""
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    place = path.with_name(path.name + ".new")
    write(place)
    os.replace(place, path)
