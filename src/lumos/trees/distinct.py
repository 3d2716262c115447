"""The first entry of each run of equal values in a sorted array."""

from typing import Any

import numpy as np
import numpy.typing as npt


def first_of_each(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """[values] True where a value of the sorted array comes for the first time."""
    first = np.empty(len(values), np.bool_)
    first[:1] = True
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return first
