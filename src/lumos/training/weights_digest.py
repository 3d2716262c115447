"""A digest of trained weights, by which two runs are compared."""

from hashlib import sha256

import numpy as np

from lumos.typing import Arrays


def weights_digest(weights: Arrays) -> str:
    """SHA-256 of the names, types, shapes and bytes of all weights, in hexadecimal."""
    digest = sha256()
    for name, array in sorted(weights.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
