"""Secret comparisons and masked sums: speed and bytes beside what they can be compared with.

Both parties' work is counted, on one core, in processor seconds. Bytes of a comparison stand beside
CrypTFlow2's formula (m = 4, λ = 128), whose oblivious transfers come from an extension: its base
transfers, once per pair, are not in it. A masked sum stands beside an ideal one, beside its masks
alone (every pair of mask neighbours stretches one key, every device and the coordinator one more
each), and beside the messages and bytes of a protocol that sends its shares, by closed form.
"""

import math
import secrets
import time
from typing import Any

import numpy as np
from benchmarks.bench import Row, Size, seconds_of

from lumos.crypto.groups import GROUPS, Group
from lumos.device import PrivateRandomness, PublicRandomness, Shard, simulated_secrets
from lumos.exchange import EVERY_DOOR, TRANSPORTS, Endpoint, LedgerReport, Program
from lumos.secagg import (
    AggregateSettings,
    IdealAggregator,
    IdealCoordinator,
    SecureAggregator,
    SecureCoordinator,
    masks,
)
from lumos.secagg.ideal import IDEAL_TOPICS
from lumos.twoparty.comparison import Receiver, Sender, Spec
from lumos.twoparty.lookup import Lookup, Query, ReceiverKeys, SenderKeys
from lumos.typing import Doubles

BITS = 8
SIZES = (1, 5, 50)
"""Comparisons of one pair."""
ROUNDS = 12
BACKENDS: dict[str, tuple[Any, Any]] = {
    "secure": (SecureAggregator, SecureCoordinator),
    "ideal": (IdealAggregator, IdealCoordinator),
}
SEED = 1


def cryptflow2_bits(bits: int) -> int:
    """Return λ(4q − ⌈log q⌉ − 2) + 16(2q − 1) + 22(q − 1) − 2⌈log q⌉ with q = ⌈ℓ/4⌉, λ = 128."""
    q = -(-bits // 4)
    log = math.ceil(math.log2(q))
    return 128 * (4 * q - log - 2) + 16 * (2 * q - 1) + 22 * (q - 1) - 2 * log


def session(spec: Spec, count: int, group: Any) -> int:
    """Let a fresh pair compare `count` times; return the bytes."""
    xs, ys = ([secrets.randbelow(1 << spec.bits) for _ in range(count)] for _ in range(2))
    sender, receiver = Sender(1, 2, group=group), Receiver(2, 1, group=group)
    sender.begin([(spec, x) for x in xs])
    receiver.begin([(spec, y) for y in ys])
    sent = 0
    message, to_receiver = sender.step(), True
    while message is not None:
        sent += len(message)
        message = (receiver if to_receiver else sender).step(message)
        to_receiver = not to_receiver
    expected = [int(x < y) for x, y in zip(xs, ys, strict=True)]
    if sender.results != expected or receiver.results != expected:
        raise AssertionError("a comparison went wrong")
    return sent


def base_transfers(group: Group, count: int = 128) -> None:
    """Make what an extension needs once per pair: 1-of-2 transfers of seeds."""
    sender = SenderKeys(group)
    sender.bind(bytes(32))
    receiver, seeds = ReceiverKeys(sender.A, bytes(32), group), Lookup((1,), 128)
    for number in range(count):
        query = Query(seeds, b"", number)
        points, _ = receiver.choose(query, number & 1)
        sender.pads(query, 0, points)


def speeds(spec: Spec, count: int, seconds: float) -> dict[str, float]:
    """Return comparisons per second by group: the best of twelve rounds, since cores are shared."""
    best = dict.fromkeys(GROUPS, 0.0)
    for _ in range(ROUNDS):
        for name in GROUPS:
            done, start = 0, time.process_time()
            while (spent := time.process_time() - start) < seconds / ROUNDS:
                session(spec, count, GROUPS[name])
                done += count
            best[name] = max(best[name], done / spent)
    return best


def compare(size: Size) -> list[Row]:
    """Measure both groups in turns: comparisons per second, and bytes beside the formula."""
    return comparison_rows(4.0 if size.full else 1.0)


def comparison_rows(seconds: float) -> list[Row]:
    spec, formula, rows = Spec(BITS), cryptflow2_bits(BITS) / 8, []
    base = 1e3 * min(seconds_of(lambda: base_transfers(GROUPS["secp256k1"])) for _ in range(5))
    for count in SIZES:
        found = speeds(spec, count, seconds)
        rows.append(
            Row(
                name=f"comparison of {BITS} bits, secp256k1, {count} per pair",
                ours=found["secp256k1"],
                peer=found["ed25519"],
                ratio=found["secp256k1"] / found["ed25519"],
                unit="per CPU s",
                against="ed25519",
                note=f"an extension's 128 base transfers: {base:.1f} ms",
            )
        )
        for name in GROUPS:
            sent = session(spec, count, GROUPS[name]) / count
            rows.append(
                Row(
                    name=f"comparison of {BITS} bits, {name}, {count} per pair",
                    ours=sent,
                    peer=formula,
                    ratio=formula / sent,
                    unit="bytes",
                    against="CrypTFlow2's formula",
                )
            )
    return rows


def shard_of(devices: int) -> Shard:
    """Put all devices in one shard; the data graph plays no part in a masked sum."""
    ids = np.arange(devices, dtype=np.int64)
    return Shard(
        ids,
        devices,
        np.zeros(devices + 1, np.int64),
        np.empty(0, np.int64),
        PrivateRandomness(simulated_secrets(SEED, ids)),
        PublicRandomness(SEED),
    )


def run(backend: tuple[Any, Any], vectors: Doubles) -> tuple[float, Doubles, LedgerReport]:
    """Return the seconds of one sum, the sum, and the ledger of setup and sum."""
    devices, width = vectors.shape
    ours, theirs = backend
    times: list[float] = []

    def shard_program(shard: Shard, endpoint: Endpoint) -> Program[Any]:
        aggregator = ours(shard, endpoint, AggregateSettings())
        yield from aggregator.setup()
        times.append(time.process_time())
        total = yield from aggregator.sum(vectors)
        times.append(time.process_time())
        return total

    def coordinator_program(endpoint: Endpoint) -> Program[None]:
        coordinator = theirs(devices, endpoint, AggregateSettings())
        yield from coordinator.setup()
        yield from coordinator.sum(width)

    permitted = IDEAL_TOPICS if ours is IdealAggregator else frozenset()
    transport = TRANSPORTS["loopback"]([shard_of(devices)], EVERY_DOOR, permitted)
    [total], _ = transport.run(shard_program, coordinator_program)
    start, end = times
    return end - start, total, transport.ledger()


def mask_price(width: int, word: int) -> float:
    """Return the seconds to stretch one key and use it at both ends; the best of five."""
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


def sums(size: Size) -> list[Row]:
    """Measure a secure sum for each width."""
    devices, widths = (2000, (935, 2000, 76_000)) if size.full else (400, (935,))
    return [row for width in widths for row in sum_rows(devices, width)]


def sum_rows(devices: int, width: int) -> list[Row]:
    vectors = np.random.default_rng(SEED).normal(size=(devices, width))
    secure, total, ledger = run(BACKENDS["secure"], vectors)
    ideal, ideal_total, booked = run(BACKENDS["ideal"], vectors)
    if not np.array_equal(total, ideal_total):
        raise AssertionError("secure and ideal sums differ")
    if not np.array_equal(ledger.bytes_sent, booked.bytes_sent):
        raise AssertionError("secure and ideal ledgers differ")
    probe = SecureAggregator(shard_of(devices), Endpoint(None))
    k = probe.parameters.neighbours
    alone = (devices * k // 2 + 2 * devices) * mask_price(width, probe.fixed.word)
    # The setup is not a sum's: commitment, digest, contribution, list; keys.
    setup_bytes, setup_messages = 32 + 32 + 16 + 16 * devices + 2 * 48 * k, 4 + 2 * k
    moved = float((ledger.bytes_sent + ledger.bytes_received).mean()) - setup_bytes
    passed = float((ledger.messages_sent + ledger.messages_received).mean()) - setup_messages
    # With shares sent: k `shares` and k `alive` each way (80 and 16 bytes), wrapped (32 k + 32) and
    # reveal (32 k), left-out and lost (8 each), masked and sum, whose numbers had 4 or 8 bytes.
    before = 2 * 96 * k + 64 * k + 48 + 2 * width * probe.fixed.word
    each = "CPU s a device"
    return [
        Row(
            name=f"masked sum of {width:,} numbers, {devices:,} devices",
            ours=ours,
            peer=peer,
            ratio=peer / ours,
            unit=unit,
            against=against,
        )
        for ours, peer, unit, against in (
            (secure / devices, ideal / devices, each, "ideal sum"),
            (secure / devices, alone / devices, each, "masks alone"),
            (passed, 4 * k + 6, "messages a device", "shares sent (by formula)"),
            (moved, before, "bytes a device", "shares sent (by formula)"),
        )
    ]
