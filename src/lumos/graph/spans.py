"""Ranges side by side: the places of many rows in arrays that lie one row after the other."""

import numpy as np

from lumos.typing import Ints


def spans(starts: Ints, counts: Ints) -> Ints:
    """[sum of counts] starts[0], starts[0] + 1, … (counts[0] of them), then starts[1], …"""
    ends = np.cumsum(counts)
    places: Ints = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
        starts - (ends - counts), counts
    )
    return places
