"""Masked sums at the size of the demo graph: secure beside ideal, and beside the cipher alone.

One process hosts all devices and the coordinator, so a second of the secure column is the work of
all of them; `per device` divides it. The limit is set by the masks: every pair of mask neighbours
in one process stretches one key, every device and the coordinator one more each, at the price of
ChaCha20 and one addition per end that the same run measures. Messages and bytes per device are the
ledger's, sent and received, and are the same for both backends; they are checked to be. Beside them
stands what the protocol needed before, which sent its shares: by its closed form, with
everybody present. *Around* the vector leaves the vector and the sum out, which are no protocol's to
save. Times are CPU seconds.
"""

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
from lumos.bench.rows import BenchRow, BenchSize
from lumos.device import PrivateCoins, PublicCoins, Shard, simulated_secrets
from lumos.exchange import CARRIERS, EVERY_DOOR, Endpoint, LedgerReport, Program
from lumos.typing import Doubles

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


def run(backend: str, vectors: Doubles, rounds: int) -> tuple[float, float, Doubles, LedgerReport]:
    """Seconds of the setup and of one sum, the sum, and the ledger of setup and sums."""
    devices, width = vectors.shape
    ours, theirs = BACKENDS[backend]
    times: list[float] = []

    def shard_program(shard: Shard, endpoint: Endpoint) -> Program[Any]:
        aggregator = ours(shard, endpoint, AggregateSettings())
        times.append(time.process_time())
        yield from aggregator.setup()
        times.append(time.process_time())
        for _ in range(rounds):
            total = yield from aggregator.sum(vectors)
        times.append(time.process_time())
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
        start = time.process_time()
        masks.add_masks(vectors, keys, plus, minus)
        best = min(best, (time.process_time() - start) / count)
    return best


def messages_before(k: int) -> int:
    """Of one device in one sum, sent and received, where shares and `alive` went to neighbours.

    k `shares` and k `alive` each way; wrapped, left-out, masked, lost, reveal and sum once.
    """
    return 4 * k + 6


def bytes_before(k: int) -> int:
    """The same in bytes, without the vector and the sum, whose numbers had 4 or 8 bytes.

    80 k `shares` and 16 k `alive` each way, 32 k + 32 wrapped, 32 k reveal, 8 left-out, 8 lost.
    """
    return 2 * (80 * k + 16 * k) + 32 * k + 32 + 32 * k + 16


def measured(devices: int, width: int, rounds: int) -> dict[str, Any]:
    """Everything that is known of sums of one width."""
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
    setup_bytes, setup_messages = 32 + 32 + 16 + 16 * devices + 2 * 48 * k, 4 + 2 * k
    moved = float((ledger.bytes_sent + ledger.bytes_received - setup_bytes).mean()) / rounds
    passed = (
        float((ledger.messages_sent + ledger.messages_received - setup_messages).mean()) / rounds
    )
    vector, vector_before = 2 * width * probe.fixed.wire, 2 * width * probe.fixed.word
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
        "messages_per_device": passed,
        "messages_before": messages_before(k),
        "messages_over_before": passed / messages_before(k),
        "bytes_per_device": moved,
        "bytes_before": bytes_before(k) + vector_before,
        "bytes_over_before": moved / (bytes_before(k) + vector_before),
        "around_the_vector": moved - vector,
        "around_before": bytes_before(k),
        "around_over_before": (moved - vector) / bytes_before(k),
        "over_vector_and_sum": moved / vector,
        "setup_bytes_per_device": setup_bytes,
        "rounds_of_the_exchange": (ledger.rounds - 5) // rounds,
    }


def measure(size: BenchSize) -> list[BenchRow]:
    """For each width, a secure sum beside an ideal one, and beside the cipher alone."""
    devices, widths = (2000, (935, 2000, 76_000)) if size.full else (400, (935,))
    found = []
    for width in widths:
        row = measured(devices, width, 1)
        name = f"masked sum of {width:,} numbers, {devices:,} devices"
        note = f"{row['bytes_per_device']:,.0f} bytes a device"
        for against, key in (
            ("ideal sum", "ideal_seconds"),
            ("masks alone", "masks_alone_seconds"),
        ):
            found.append(
                BenchRow(
                    name=name,
                    ours=row["secure_seconds"] / devices,
                    peer=row[key] / devices,
                    ratio=row[key] / row["secure_seconds"],
                    unit="CPU s a device",
                    against=against,
                    note=note,
                )
            )
        for what, key in (("messages", "messages"), ("bytes", "bytes")):
            ours = row[f"{key}_per_device"]
            found.append(
                BenchRow(
                    name=name,
                    ours=ours,
                    peer=row[f"{key}_before"],
                    ratio=row[f"{key}_before"] / ours,
                    unit=f"{what} a device",
                    against="shares sent (by formula)",
                )
            )
    return found
