"""Masked sums at the size of the demo graph: secure beside ideal, and beside the cipher alone.

    python benchmarks/bench_aggregate.py [--devices 2000] [--widths 2000,76000] [--json]

One process hosts all devices and the coordinator, so a second of the secure column is the work of
all of them; `per device` divides it. The limit is set by the masks: every pair of mask neighbours
in one process stretches one key, every device and the coordinator one more each, at the price of
ChaCha20 and one addition per end that the same run measures. Bytes per device are the ledger's,
sent and received, and are the same for both backends; they are checked to be.
"""

import argparse
import json
import time
from typing import Any

import numpy as np

from lumos.aggregate import (
    AggregateSettings,
    IdealAggregator,
    IdealCoordinator,
    SecureAggregator,
    SecureCoordinator,
    masks,
)
from lumos.aggregate.ideal import IDEAL_TOPICS
from lumos.device import PrivateCoins, PublicCoins, Shard, simulated_secrets
from lumos.exchange import CARRIERS, EVERY_DOOR, Endpoint, LedgerReport, Program

BACKENDS: dict[str, tuple[Any, Any]] = {
    "secure": (SecureAggregator, SecureCoordinator),
    "ideal": (IdealAggregator, IdealCoordinator),
}
SEED = 1


def shard_of(devices: int) -> Shard:
    """All devices in one shard; the data graph plays no part in a masked sum."""
    ids = np.arange(devices, dtype=np.int64)
    return Shard(
        ids,
        devices,
        np.zeros(devices + 1, np.int64),
        np.empty(0, np.int64),
        PrivateCoins(simulated_secrets(SEED, ids)),
        PublicCoins(SEED),
    )


def run(
    backend: str, vectors: np.ndarray, rounds: int
) -> tuple[float, float, np.ndarray, LedgerReport]:
    """Seconds of the setup and of one sum, the sum, and the ledger of setup and sums."""
    devices, width = vectors.shape
    ours, theirs = BACKENDS[backend]
    times: list[float] = []

    def shard_program(shard: Shard, endpoint: Endpoint) -> Program[Any]:
        aggregator = ours(shard, endpoint, AggregateSettings())
        times.append(time.perf_counter())
        yield from aggregator.setup()
        times.append(time.perf_counter())
        for _ in range(rounds):
            total = yield from aggregator.sum(vectors)
        times.append(time.perf_counter())
        return total

    def coordinator_program(endpoint: Endpoint) -> Program[None]:
        coordinator = theirs(devices, endpoint, AggregateSettings())
        yield from coordinator.setup()
        for _ in range(rounds):
            yield from coordinator.sum(width)

    permitted = IDEAL_TOPICS if backend == "ideal" else frozenset()
    carrier = CARRIERS["loopback"]([shard_of(devices)], EVERY_DOOR, permitted)
    [total], _ = carrier.run(shard_program, coordinator_program)
    start, middle, end = times
    return middle - start, (end - middle) / rounds, total, carrier.ledger()


def mask_price(width: int, word: int) -> float:
    """Seconds to stretch one key to a vector and use it at both ends; the best of five."""
    vectors = np.zeros((2, width), f"<u{word}")
    count = max(4, 2_000_000 // width)
    keys = np.random.default_rng(0).integers(0, 2**32, (count, 8), np.uint32)
    plus, minus = np.zeros(count, np.int64), np.ones(count, np.int64)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        masks.add_masks(vectors, keys, plus, minus)
        best = min(best, (time.perf_counter() - start) / count)
    return best


def measure(devices: int, width: int, rounds: int) -> dict[str, Any]:
    vectors = np.random.default_rng(SEED).normal(size=(devices, width))
    setup, secure, total, ledger = run("secure", vectors, rounds)
    _, ideal, ideal_total, booked = run("ideal", vectors, rounds)
    if not np.array_equal(total, ideal_total):
        raise AssertionError("secure and ideal sums differ")
    if not np.array_equal(ledger.bytes_sent, booked.bytes_sent):
        raise AssertionError("secure and ideal ledgers differ")
    probe = SecureAggregator(shard_of(devices), Endpoint(None))
    k = probe.parameters.neighbours
    stretched = devices * k // 2 + 2 * devices
    limit = stretched * mask_price(width, probe.fixed.word)
    # Commitment, digest, contribution, list; keys. They are not a sum's.
    setup_bytes = 32 + 32 + 16 + 16 * devices + 2 * 48 * k
    moved = (ledger.bytes_sent + ledger.bytes_received - setup_bytes) / rounds
    return {
        "devices": devices,
        "width": width,
        "neighbours": k,
        "threshold": probe.parameters.threshold,
        "setup_seconds": setup,
        "secure_seconds": secure,
        "secure_ms_per_device": 1000 * secure / devices,
        "ideal_seconds": ideal,
        "secure_over_ideal": secure / ideal,
        "masks_alone_seconds": limit,
        "secure_over_masks_alone": secure / limit,
        "bytes_per_device": float(moved.mean()),
        "overhead_over_vector_and_sum": float(moved.mean()) / (2 * width * probe.fixed.word),
        "setup_bytes_per_device": setup_bytes,
        "rounds_of_the_exchange": (ledger.rounds - 5) // rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=2000)
    parser.add_argument("--widths", default="2000,76000")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    widths = [int(width) for width in options.widths.split(",")]
    rows = [measure(options.devices, width, options.rounds) for width in widths]
    if options.json:
        print(json.dumps(rows))
        return
    for name in rows[0]:
        shown = [row[name] for row in rows]
        texts = [f"{v:,.2f}" if isinstance(v, float) else f"{v:,}" for v in shown]
        print(f"{name:<30}" + "".join(f"{text:>16}" for text in texts))


if __name__ == "__main__":
    main()
