"""A proposal of Algorithm 2: how many edges to hand over, which, and the threshold to accept it."""

import math

import numpy as np

from lumos.device.shard import Shard
from lumos.typing import Flags, Ints


def largest_step(kept: int) -> int:
    """max(1, round(ln |N_u|)) (errata 8c)."""
    return max(1, round(math.log(kept))) if kept else 1


def step_size(kept: int, uniform: float) -> int:
    """k, uniform in 1 … max(1, round(ln |N_u|))."""
    return 1 + int(uniform * largest_step(kept))


def threshold(workload: int, uniform: float) -> int:
    """t = f(X) + ceil(-ln r) - 1: the step is accepted iff f(X') ≤ t (errata 5).

    P(f' ≤ t) = P(-ln r > f' - f) = min(1, e^(f - f')), and only the outcome leaves the device.
    """
    return workload + math.ceil(-math.log(uniform)) - 1


def propose(shard: Shard, keep: Flags, workload: int, row: int, iteration: int) -> tuple[int, Ints]:
    """The proposing device draws r, k and k of its neighbours: (threshold, their slots)."""
    start, end = int(shard.offsets[row]), int(shard.offsets[row + 1])
    kept = keep[start:end].nonzero()[0].tolist()
    most = 2 + largest_step(len(kept))
    coins = shard.coins.uniform_of(row, "mcmc", iteration, most)
    size = min(step_size(len(kept), coins[1]), len(kept))
    for place in range(size):  # the first `size` places of a Fisher–Yates shuffle
        other = place + int(coins[2 + place] * (len(kept) - place))
        kept[place], kept[other] = kept[other], kept[place]
    offered = np.array(kept[:size], np.int64)
    offered.sort()
    return threshold(workload, coins[0]), start + offered
