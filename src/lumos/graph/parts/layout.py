"""Files of arrays that can be mapped into memory: the plain layout of safetensors.

    8 bytes     length of the header, little-endian
    header      JSON: {"name": {"dtype": "I32", "shape": [3], "data_offsets": [0, 12]}, …}
    buffers     raw little-endian arrays, one after the other, without gaps

Arrays of wider numbers come first, and blanks fill the header up to a multiple of 8 bytes: every
array begins at a multiple of its item size. Any reader of safetensors reads such a file.

A file is checked before it is used: every array must be as large as its header says, and all of
them together must fill the file exactly. So a file that was cut off, or whose header lies about
sizes, is refused, and no header can ask for more memory than the file is long.
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import numpy.typing as npt

from lumos.errors import InputError
from lumos.storage import PRIVATE, one_line
from lumos.typing import Arrays

DTYPES: Mapping[str, str] = {
    "I64": "<i8",
    "I32": "<i4",
    "F32": "<f4",
    "U16": "<u2",
    "I8": "i1",
    "U8": "u1",
}
"""Types of numbers that a file may hold, by their names in safetensors."""
LONGEST_HEADER = 1 << 20
MAPPED_BYTES = 1 << 16
"""Smaller files are read at once: a process may hold only so many maps."""
_NAMES = {np.dtype(code): name for name, code in DTYPES.items()}


def write_layout(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays into a new file that only its owner may read."""
    header: dict[str, Any] = {}
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    start = 0
    for name, array in ordered:
        end = start + array.nbytes
        kind = _NAMES[array.dtype.newbyteorder("<")]
        header[name] = {"dtype": kind, "shape": [*array.shape], "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with new_private(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in ordered:
            file.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)


def new_private(path: Path) -> IO[bytes]:
    """A new file that only its owner may read, open for writing."""
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, PRIVATE))


def read_layout(path: Path, remedy: str) -> Arrays:
    """The arrays of a file: read-only, and mapped, so that only what is used takes memory.

    Args:
        path: the file.
        remedy: what to do where it is damaged, for the error.

    Raises:
        InputError: there is no such file, or it is damaged.
    """
    try:
        size = path.stat().st_size
        if size < 8:
            _damaged(path, f"{size} bytes are too few", remedy)
        small = size <= MAPPED_BYTES
        content = np.fromfile(path, np.uint8) if small else np.memmap(path, np.uint8, "r")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; {remedy}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    content.flags.writeable = False
    length = int.from_bytes(content[:8].tobytes(), "little")
    if length > min(LONGEST_HEADER, size - 8) or length % 8:
        _damaged(path, "its header is not as long as it says", remedy)
    try:
        header = json.loads(content[8 : 8 + length].tobytes())
        places = {name: _place(entry) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        _damaged(path, f"its header cannot be read: {one_line(error)}", remedy)
    buffers = content[8 + length :]
    end = 0
    for name, (dtype, shape, start, stop) in sorted(places.items(), key=lambda item: item[1][2:]):
        if start != end or stop - start != math.prod(shape) * dtype.itemsize:
            _damaged(path, f"the array {one_line(name)!r} is not as large as it says", remedy)
        if start % dtype.itemsize:
            _damaged(path, f"the array {one_line(name)!r} begins at an odd place", remedy)
        end = stop
    if end != len(buffers):
        _damaged(path, f"{len(buffers):,} bytes of arrays in place of {end:,}", remedy)
    return {
        name: np.asarray(buffers[start:stop]).view(dtype).reshape(shape)
        for name, (dtype, shape, start, stop) in places.items()
    }


def _place(entry: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Type, shape, start and end of an array."""
    start, stop = entry["data_offsets"]
    numbers = (*entry["shape"], start, stop)
    if any(type(number) is not int or not 0 <= number < 1 << 62 for number in numbers):
        raise ValueError("sizes must be whole numbers")
    return np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"]), start, stop


def _damaged(path: Path, how: str, remedy: str) -> NoReturn:
    raise InputError(f"{path}: is damaged ({how}); {remedy}")
