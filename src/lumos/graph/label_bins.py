"""Numbers cut into classes of about equal size."""

from itertools import pairwise

import numpy as np

from lumos.typing import Doubles, Ints


def binned(values: Doubles, bins: int) -> tuple[Ints, tuple[str, ...]]:
    """[values] the class of each value, and the names of the classes, which are their ranges.

    A class is an interval `low to < high` whose borders are among the values. The border after the
    share k / `bins` of the values is the value whose predecessors are closest to that share, so
    that equal values share a class; borders that coincide are one. At most `bins` different values
    are a class each. The names leave out the smallest and the largest value.

    Args:
        values: at least two different ones, finite.
        bins: the number of classes, at least 2.
    """
    distinct, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(distinct) <= bins:
        return index.astype(np.int64), _texts(distinct)
    below = np.cumsum(counts)[:-1]  # values below distinct[1], distinct[2], …
    shares = np.arange(1, bins) * len(values) / bins
    right = np.searchsorted(below, shares).clip(1, len(below) - 1) if len(below) > 1 else None
    if right is None:
        nearest = np.zeros(len(shares), dtype=np.int64)
    else:
        nearest = np.where(shares - below[right - 1] <= below[right] - shares, right - 1, right)
    borders = distinct[1:][np.unique(nearest)]
    return np.searchsorted(borders, values, side="right").astype(np.int64), _ranges(borders)


def _ranges(borders: Doubles) -> tuple[str, ...]:
    texts = _texts(borders)
    middle = [f"{low} to < {high}" for low, high in pairwise(texts)]
    return (f"< {texts[0]}", *middle, f"≥ {texts[-1]}")


def _texts(values: Doubles) -> tuple[str, ...]:
    """Short decimal texts, longer ones where short ones would coincide."""
    short = [f"{value:.6g}" for value in values.tolist()]
    whole = [str(int(v)) if v.is_integer() and abs(v) < 2**53 else repr(v) for v in values.tolist()]
    if all(value.is_integer() for value in values.tolist()) or len(set(short)) < len(short):
        return tuple(whole)
    return tuple(short)
