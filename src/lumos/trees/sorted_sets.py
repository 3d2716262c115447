"""Distinct values of sorted arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt


def first_of_each(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """[values] True where a value of the sorted array comes for the first time."""
    first = np.empty(len(values), np.bool_)
    first[:1] = True
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return first


def union(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """All distinct values of the two, increasing; `np.union1d` without its overhead."""
    both = np.concatenate([first, second])
    both.sort()
    distinct: npt.NDArray[np.int64] = both[first_of_each(both)]
    return distinct


def place_in_group(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """[values] how many equal values stand before each one in the sorted array."""
    starts = np.flatnonzero(first_of_each(values))
    sizes = np.diff(np.append(starts, len(values)))
    place: npt.NDArray[np.int64] = np.arange(len(values)) - np.repeat(starts, sizes)
    return place
