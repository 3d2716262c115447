"""Files that Lumos writes and reads again: JSON and npz, never pickle, written all or nothing.

A file is written beside its place and then moved there, so an interruption leaves the old one.
Symbolic links are followed: a file has one content and one lock, by whatever name it is used.
Private files are readable by their owner only, from the moment they exist. What is *durable* is on
the disk before the call returns: it survives a loss of power, not only the end of the process.

An npz is checked before memory is asked for: every array is as large as its header announces, and
all of them together are not far larger than the file. So a file of some bytes cannot ask for
gigabytes, whatever its headers say.
"""

import fcntl
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from lumos.errors import InputError
from lumos.typing import Arrays

PRIVATE, PUBLIC = 0o600, 0o666
"""Modes of files: for their owner only, or as the umask has it."""
NEW = ".new"
"""Ending of a file that is being written."""
UNPACKED_BYTES = 1 << 29
UNPACKED_RATIO = 50
"""An npz may unpack to so many bytes more than so many times its size."""
_MAX_HEADER = 10_000
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4}
"""By version of an array in an npz, the bytes of the length of its header."""
_PIECE = 1 << 20


def part_of(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose name begins so, without it."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def private_folder(path: Path) -> None:
    """Make a folder that only its owner may enter.

    One that is there and not empty keeps its mode: it may be somebody's working folder, and private
    files need no private folder.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not any(path.iterdir()):
        path.chmod(0o700)


def write_json(path: Path, content: Any, *, private: bool = False, durable: bool = False) -> None:
    """Write JSON; `private`: only its owner may read the file."""
    write_text(path, json.dumps(content, indent=1) + "\n", private=private, durable=durable)


def write_text(path: Path, text: str, *, private: bool = False, durable: bool = False) -> None:
    """Write text; `private`: only its owner may read the file."""
    write_bytes(path, text.encode(), private=private, durable=durable)


def write_bytes(
    path: Path, content: bytes, *, private: bool = False, durable: bool = False
) -> None:
    """Write bytes; `private`: only its owner may read the file."""
    _replace(path, lambda file: file.write(content), private=private, durable=durable)


def write_arrays(
    path: Path,
    arrays: Mapping[str, npt.ArrayLike],
    *,
    private: bool = False,
    durable: bool = False,
) -> None:
    """Write an npz; `private`: only its owner may read the file."""
    named: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
    _replace(path, lambda file: np.savez(file, **named), private=private, durable=durable)


def append_text(path: Path, text: str) -> None:
    """Add text to a file that only its owner may read."""
    with _opened(path, "ab", PRIVATE) as file:
        file.write(text.encode())


def append_bytes(
    path: Path, content: bytes, at: int, *, durable: bool = True, new: bool | None = None
) -> None:
    """Add bytes to a file that only its owner may read.

    Args:
        at: how long the file is; what an interruption left behind that is cut off.
        durable: they are on the disk when this returns; otherwise they survive the end of the
            process, but not a loss of power.
        new: the name of the file may not be on the disk; by default where the file is empty.
    """
    with _opened(path, "ab", PRIVATE) as file:
        file.truncate(at)
        file.write(content)
        if durable:
            _flush(file)
    if durable and (not at if new is None else new):
        sync_folder(path.parent)


def write_at(path: Path, content: bytes, at: int) -> None:
    """Write bytes at a place in a file that is there, neither durably nor all or nothing."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def remove(path: Path) -> None:
    """Remove a file, if there is one, durably."""
    if path.exists():
        path.unlink()
        sync_folder(path.parent)


def overwrite_and_remove(path: Path) -> None:
    """Write zeros over a file, if there is one, and remove it, durably.

    A disk that moves blocks around, as flash does, may keep the old content all the same.
    """
    if not path.exists():
        return
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        file.write(bytes(size))
        _flush(file)
    remove(path)


def sync_file(path: Path) -> None:
    """Make durable what a file holds, whoever wrote it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path | str) -> None:
    """Make durable which files a folder has."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_json(path: Path) -> Any:
    """Read JSON.

    Raises:
        InputError: there is no such file, or it is damaged.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; is this the folder of a run?") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({one_line(error)})") from None


def read_arrays(path: Path) -> Arrays:
    """Read an npz.

    Raises:
        InputError: there is no such file, it is damaged, or its headers announce too much.
    """
    try:
        with path.open("rb") as file:
            return unpack_arrays(file)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; is this the folder of a run?") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except Exception as error:  # zipfile, zlib and numpy have many ways to say "broken"
        raise InputError(
            f"{path}: is damaged ({type(error).__name__}); restart without `resume`"
        ) from None


def unpack_arrays(file: IO[bytes], objects: list[str] | None = None) -> Arrays:
    """All arrays of an npz, without ever unpickling.

    Args:
        file: the npz.
        objects: where given, arrays of objects are left out, and their names added to it.

    Raises:
        InputError: an array is of objects, is not as large as its header announces, or the whole is
            far larger than the file.
        Exception: the file is no npz, or damaged.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        unpacked = sum(member.file_size for member in members)
        if unpacked > UNPACKED_RATIO * size + UNPACKED_BYTES:
            raise InputError(
                f"is refused: {size:,} bytes would unpack to {unpacked:,}; write the file again "
                "without compression"
            )
        arrays = {
            member.filename.removesuffix(".npy"): _unpack(archive, member, objects)
            for member in members
        }
        return {name: array for name, array in arrays.items() if array is not None}


def _unpack(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, objects: list[str] | None
) -> npt.NDArray[Any] | None:
    """One array, once its header agrees with the directory of the archive; None if left out."""
    name = one_line(member.filename.removesuffix(".npy"))
    with archive.open(member) as raw:
        version = np.lib.format.read_magic(raw)
        if version not in _LENGTH_BYTES:
            raise InputError(f"is damaged: the array {name!r} is of an unknown version")
        length = raw.read(_LENGTH_BYTES[version])
        text = raw.read(min(int.from_bytes(length, "little"), _MAX_HEADER + 1))
        shape, by_column, dtype = _header(version, length + text)
        if dtype.hasobject and objects is not None:
            objects.append(name)
            return None
        if dtype.hasobject or dtype.fields is not None:
            raise InputError(f"is refused: the array {name!r} holds objects, not numbers or text")
        announced = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or announced != member.file_size - raw.tell():
            raise InputError(f"is damaged: the array {name!r} is not as large as its header says")
        content = bytearray()
        while piece := raw.read(_PIECE):  # what is not there asks for no memory
            content += piece
    return np.ndarray(shape, dtype, content, order="F" if by_column else "C")


@lru_cache(maxsize=1024)
def _header(version: tuple[int, int], text: bytes) -> tuple[tuple[int, ...], bool, Any]:
    """Return shape, order and type from the header of an array; files of one kind share many."""
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(io.BytesIO(text), _MAX_HEADER)
    return np.lib.format.read_array_header_2_0(io.BytesIO(text), _MAX_HEADER)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which need not exist; other processes wait meanwhile.

    Only the owner of the lock can read it: who may wait for a file may keep others from it.
    """
    with _opened(_beside(path, ".lock"), "wb", PRIVATE) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def one_line(error: object) -> str:
    """A text as it may stand in a message of one line."""
    text = " ".join(str(error).split())
    return "".join(literal if literal.isprintable() else "?" for literal in text)


def _opened(path: Path | str, how: str, mode: int) -> IO[Any]:
    return open(path, how, opener=lambda name, flags: os.open(name, flags, mode))


def _beside(path: Path, ending: str) -> str:
    """A file beside the one that a path leads to.

    A text: every name that a `Path` is made of goes into the interpreter's table of names, which
    is laid out anew, megabytes of it, once many have come and gone.
    """
    return os.path.realpath(path) + ending


def _replace(
    path: Path, write: Callable[[IO[Any]], object], *, private: bool, durable: bool
) -> None:
    place = _beside(path, NEW)
    with suppress(FileNotFoundError):
        os.unlink(place)  # left by an interruption, it would keep its own mode
    with _opened(place, "wb", PRIVATE if private else PUBLIC) as file:
        write(file)
        if durable:
            _flush(file)
    os.replace(place, place.removesuffix(NEW))
    if durable:
        sync_folder(os.path.dirname(place))


def _flush(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())
