"""The snapshot of a party: named arrays in one file, replaced all or nothing, and durably.

    file = magic (16 bytes) ‖ length of the head (8) ‖ head ‖ contents of arrays ‖ H(before) (16)

The head says name, type and shape of each array, in the order of their contents. A snapshot is
written after every epoch, so it is one plain buffer: an npz of a hundred small arrays takes longer
than all else in a small epoch.
"""

import math
from hashlib import blake2b
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from lumos.errors import InputError
from lumos.storage import sync_folder, write_bytes
from lumos.typing import Arrays

_MAGIC = b"lumos snapshot 1"
_LENGTH, _CHECK = 8, 16
_BEFORE_HEAD = len(_MAGIC) + _LENGTH
_KINDS = "biufSU"
"""Of types that an array may have: numbers and text, never objects."""


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    name: str
    dtype: str
    shape: tuple[int, ...]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[_Entry])


def write_snapshot(path: Path, snapshot: Arrays) -> None:
    """Replace a snapshot; it is on the disk when this returns."""
    write_bytes(path, packed(snapshot), private=True, durable=True)


def packed(snapshot: Arrays) -> bytes:
    """The content of a file with these arrays."""
    named: Arrays = {name: np.asarray(array) for name, array in snapshot.items()}
    for name, array in named.items():
        if array.dtype.kind not in _KINDS:
            raise TypeError(f"the array {name!r} of a snapshot has the type {array.dtype}")
    head = _ENCODER.encode(
        [_Entry(name, array.dtype.str, array.shape) for name, array in named.items()]
    )
    before = [_MAGIC, len(head).to_bytes(_LENGTH, "little"), head]
    content = b"".join([*before, *(array.tobytes() for array in named.values())])
    return content + _check_of(content)


def read_snapshot(path: Path, remedy: str) -> Arrays | None:
    """The snapshot; None where there is none.

    Args:
        remedy: what to do where it is damaged.

    Raises:
        InputError: it is damaged, or cannot be read.
    """
    if not path.exists():
        return None
    try:
        sync_folder(path.parent)  # another process may have died before its name was on the disk
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    try:
        return unpacked(content)
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        what = error if type(error) is ValueError else "its head cannot be read"
        raise InputError(f"{path}: is damaged ({what}); {remedy}") from None


def unpacked(content: bytes) -> Arrays:
    """The arrays; `ValueError`, `TypeError` or `MsgspecError` where the content is damaged."""
    end = len(content) - _CHECK
    if end < _BEFORE_HEAD or not content.startswith(_MAGIC):
        _refuse("it is no snapshot, or incomplete")
    if content[end:] != _check_of(memoryview(content)[:end]):
        _refuse("its checksum is another one")
    place = _BEFORE_HEAD + int.from_bytes(content[len(_MAGIC) : _BEFORE_HEAD], "little")
    arrays: Arrays = {}
    for entry in _DECODER.decode(memoryview(content)[_BEFORE_HEAD : min(place, end)]):
        dtype = np.dtype(entry.dtype)
        if dtype.kind not in _KINDS or dtype.fields is not None:
            _refuse("an array holds neither numbers nor text")
        size = math.prod(entry.shape) * dtype.itemsize
        if min(entry.shape, default=0) < 0 or size > end - place:
            _refuse("an array is not as large as the head says")
        arrays[entry.name] = _array(content[place : place + size], dtype, entry.shape)
        place += size
    if place != end:
        _refuse("its arrays are not as large as the head says")
    return arrays


def _array(content: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """An array that can be written to."""
    array = np.empty(shape, dtype)
    if content:
        array.reshape(-1)[:] = np.frombuffer(content, dtype)
    return array


def _check_of(content: bytes | memoryview) -> bytes:
    return blake2b(content, digest_size=_CHECK, person=b"lumos snapshot").digest()


def _refuse(why: str) -> NoReturn:
    raise ValueError(why)
