"""Link scores, secret in both groups and in the clear, in one run: speed, bytes, curve's limit.

    python benchmarks/link_scores.py [--pairs 400] [--workers 2] [--width 24] [--bits 4] [--json]

Non-neighbours score in pairs through the exchange, once per session, with 2, 4 and 8 levels (1, 2
and 3 bits). `secure` runs in worker processes, `ideal` in this one. Milliseconds of processor time
are those of both ends in one process; the limit is set by the curve alone: the group operations of
the protocol, counted, at the price that the same run measures for each.
"""

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from lumos.crypto.groups import GROUPS, Group
from lumos.device import Shard, cut
from lumos.exchange import Endpoint, LedgerReport, Program
from lumos.exchange.endpoint import idle_program
from lumos.exchange.transports.loopback import Loopback
from lumos.graph import Graph
from lumos.twoparty.score import (
    IDEAL_TOPICS,
    IdealScorer,
    LevelSpec,
    Scorer,
    ScoreReceiver,
    ScoreSender,
    SecureScorer,
    messages,
)
from lumos.twoparty.workers import ComparedPairs, Workers, make_pool
from lumos.typing import Ints, Small

CHUNK = 2000  # pairs of a call: so many sessions are open at a time
THRESHOLDS = {1: (20,), 2: (-20, 20, 60), 3: (-60, -20, 0, 20, 40, 60, 80)}


class Counting:
    """A group, counting its operations; `subtract` counts once for each difference."""

    def __init__(self, group: Group) -> None:
        self.name, self.point_bytes = group.name, group.point_bytes
        self.identity = group.identity
        self.calls: Counter[str] = Counter()
        self._group = group

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(self._group, name)

        def counted(*arguments: Any) -> object:
            self.calls[name] += arguments[2] if name == "subtract" else 1
            return operation(*arguments)

        return counted


def price(call: Callable[[], object], count: int = 1000) -> float:
    """Return the seconds of one call: the best of five rounds."""
    best = math.inf
    for _ in range(5):
        start = time.process_time()
        for _ in range(count // 5):
            call()
        best = min(best, (time.process_time() - start) / (count // 5))
    return best


def prices(group: Group) -> dict[str, float]:
    """Return the seconds of each operation, as the protocol calls it."""
    a, A, T = group.key()
    _, B = group.pair()
    # For each digit R multiplies A, which it has seen before, and S a B that is new to it.
    new = iter([bytes(group.pair()[1]) for _ in range(1000)])
    multiply = price(lambda: group.multiply(a, next(new))) + price(lambda: group.multiply(a, A))
    return {
        "key": price(group.key, 500),
        "pair": price(group.pair),
        "multiply": multiply / 2,
        "add": price(lambda: group.add(A, B)),
        "subtract": price(lambda: group.subtract(B, T, 15), 250) / 15,
    }


def cheapest(taken: list[dict[str, float]]) -> dict[str, float]:
    """Return the lowest price of each operation: a busy neighbour must not lower the limit."""
    return {name: min(found[name] for found in taken) for name in taken[0]}


def random_vectors(spec: LevelSpec, count: int) -> Small:
    """[count, width] small vectors, short enough for the ring."""
    half = min(4, 1 << (spec.bits - 1))
    return np.random.default_rng(0).integers(-half, half, (count, spec.width)).astype(np.int8)


def session(spec: LevelSpec, s: Ints, v: Ints, group: Any) -> int:
    """A fresh pair scores once; returns the bytes."""
    sender, receiver = ScoreSender(1, 2, group=group), ScoreReceiver(2, 1, group=group)
    sender.begin([(spec, s)])
    receiver.begin([(spec, v)])
    sent = 0
    message, to_receiver = sender.step(), True
    while message is not None:
        sent += len(message)
        message = (receiver if to_receiver else sender).step(message)
        to_receiver = not to_receiver
    return sent


def both_ends(spec: LevelSpec, group: Group) -> tuple[float, float, int]:
    """Seconds of a score at both ends, seconds of its group operations, and bytes."""
    s, v = random_vectors(spec, 2)
    counting, point = Counting(group), group.point_bytes
    sent = session(spec, s, v, counting)
    if sent != sum(message.length for message in messages([spec], first=True, point=point)):
        raise AssertionError("bytes differ from the public list")
    before, best = prices(group), float("inf")
    for _ in range(8):  # the best of eight rounds, since a core is seldom alone
        start = time.process_time()
        for _ in range(10):
            session(spec, s, v, group)
        best = min(best, (time.process_time() - start) / 10)
    cost = cheapest([before, prices(group)])
    return best, sum(count * cost[name] for name, count in counting.calls.items()), sent


def through_the_exchange(
    spec: LevelSpec, count: int, scorer_of: Callable[[Shard, Endpoint], Scorer], ideal: bool
) -> tuple[float, Ints, LedgerReport]:
    """Seconds of `count` scores between non-neighbours, the levels, and the ledger."""
    (shard,) = cut(Graph.from_edges(np.empty((0, 2), np.int64), devices=2 * count), 1, seed=0)
    vectors = random_vectors(spec, 2 * count)

    def device(shard: Shard, endpoint: Endpoint) -> Program[Ints]:
        scorer = scorer_of(shard, endpoint)
        learned = []
        for start in range(0, count, CHUNK):
            # Device k scores with device k + count.
            low = np.arange(start, min(count, start + CHUNK))
            devices = np.concatenate([low, low + count])
            pairs = ComparedPairs.of_ids(shard, devices, np.concatenate([low + count, low]))
            learned.append((yield from scorer.levels(pairs, vectors, spec)))
        return np.concatenate(learned)

    transport = Loopback([shard], ideal=IDEAL_TOPICS if ideal else ())
    start = time.perf_counter()
    (levels,), _ = transport.run(device, lambda _: idle_program())
    return time.perf_counter() - start, levels, transport.ledger()


def row(spec: LevelSpec, count: int, workers: Workers, group: Group) -> dict[str, Any]:
    """Both backends on the same pairs, and a score alone."""
    alone, curve, sent = both_ends(spec, group)

    def secret(shard: Shard, endpoint: Endpoint) -> Scorer:
        return SecureScorer(shard, endpoint, workers, group=group)

    def clear(shard: Shard, endpoint: Endpoint) -> Scorer:
        return IdealScorer(shard, endpoint, group)

    through_the_exchange(spec, 4, secret, ideal=False)  # the workers are up
    secure, levels, ledger = through_the_exchange(spec, count, secret, ideal=False)
    ideal, same, booked = through_the_exchange(spec, count, clear, ideal=True)
    if not np.array_equal(levels, same) or ledger.bytes != booked.bytes:
        raise AssertionError("secure and ideal scores differ")
    return {
        "group": group.name,
        "levels": spec.levels,
        "bytes": sent,
        "cpu_ms": round(alone * 1e3, 2),
        "curve_ms": round(curve * 1e3, 2),
        "of_limit": round(curve / alone, 3),
        "secure_per_second": round(count / secure, 1),
        "ideal_per_second": round(count / ideal),
        "ratio": round(secure / ideal, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--workers", type=int, default=None, help="default: one per core")
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    workers = make_pool(options.workers)
    table = []
    try:
        for thresholds in THRESHOLDS.values():
            spec = LevelSpec(width=options.width, bits=options.bits, thresholds=thresholds)
            for name in GROUPS:
                table.append(row(spec, options.pairs, workers, GROUPS[name]))
    finally:
        workers.close()
    if options.json:
        print(json.dumps({"pairs": options.pairs, "rows": table}))
        return
    print(f"{options.pairs:,} pairs, {options.width} coordinates of {options.bits} bits:")
    for line in table:
        print(
            f"{line['levels']} levels, {line['group']:>9}:"
            f" {line['secure_per_second']:6.1f}/s secret,"
            f" {line['ideal_per_second']:,}/s in the clear (ratio {line['ratio']:,});"
            f" {line['bytes']} bytes; {line['cpu_ms']} ms of both ends,"
            f" {line['of_limit']:.0%} of it the curve"
        )


if __name__ == "__main__":
    main()
