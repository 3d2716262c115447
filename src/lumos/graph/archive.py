"""Arrays in an npz: read without ever unpickling."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos.errors import InputError
from lumos.graph.files import readable


def arrays_of(content: bytes, file: str) -> dict[str, NDArray[Any]]:
    """Return all arrays of an npz."""
    with readable(file):
        archive = np.load(io.BytesIO(content), allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InputError(f"{file}: it holds a single array; an npz with names is needed")
        with archive:
            return {name: np.asarray(archive[name]) for name in archive.files}


def sparse_of(content: bytes, file: str) -> Any:
    """Return the sparse matrix that scipy's `save_npz` wrote."""
    from scipy.sparse import csr_array, load_npz

    with readable(file):
        matrix = csr_array(load_npz(io.BytesIO(content)))
        matrix.check_format(full_check=True)
        return matrix
