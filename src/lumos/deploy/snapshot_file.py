"""The snapshot of a party: one npz, replaced all or nothing, and durably."""

from hashlib import blake2b
from pathlib import Path

import numpy as np

from lumos.errors import InputError
from lumos.storage import sync_folder, unpack_arrays, write_arrays
from lumos.typing import Arrays

_CHECK, _CHECK_BYTES = "check", 16


def write_snapshot(path: Path, snapshot: Arrays) -> None:
    """Replace a snapshot; it is on the disk when this returns."""
    check = np.frombuffer(_check_of(snapshot), np.uint8)
    write_arrays(path, {**snapshot, _CHECK: check}, private=True, durable=True)


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
        with path.open("rb") as file:
            arrays = unpack_arrays(file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}; {remedy}") from None
    except Exception as error:  # zipfile, zlib and numpy have many ways to say "broken"
        raise InputError(f"{path}: is damaged ({type(error).__name__}); {remedy}") from None
    check = arrays.pop(_CHECK, None)
    if check is None or check.tobytes() != _check_of(arrays):
        raise InputError(f"{path}: is damaged (its checksum is another one); {remedy}")
    return arrays


def _check_of(arrays: Arrays) -> bytes:
    """Of names, types, shapes and contents; an npz has a checksum for each array only."""
    digest = blake2b(digest_size=_CHECK_BYTES, person=b"lumos snapshot")
    for name, array in sorted(arrays.items()):
        head = f"{name}\0{array.dtype.str}\0{array.shape}\0".encode()
        digest.update(len(head).to_bytes(8, "little") + head)
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()
