"""Products of one matched pair: seconds and bytes, and an ideal sum of a whole graph.

    python benchmarks/pair_products.py [--rounds 3] [--width 24] [--products 4]

Both ends' work is counted, on one core, with ``time.process_time``. The limit is set by the curve
and the hash alone: the group operations of the base transfers and the digests of the pads, counted,
at the price that the same run measures for each on the same core.
"""

import argparse
import math
import secrets
import time
from collections.abc import Callable
from hashlib import blake2b

import numpy as np
from scipy.sparse import csr_array, random_array

from lumos.crypto.groups import ED25519
from lumos.device import PrivateRandomness, PublicRandomness, Shard, simulated_secrets
from lumos.exchange import EVERY_DOOR, Endpoint, Program
from lumos.exchange.transports.loopback import Loopback
from lumos.secagg import AggregateSettings, FixedPoint, IdealAggregator, IdealCoordinator
from lumos.secagg.ideal import IDEAL_TOPICS as IDEAL_SUMS
from lumos.twoparty.product_sums import IDEAL_TOPICS, PairedCoordinator, paired_sums
from lumos.twoparty.products import BASE, PairSession

SIZES = (600, 4714)
DEVICES = 22_470
RINGS = {4: FixedPoint(64.0, 14, 4, False), 8: FixedPoint(2.0**18, 24, 8, False)}


def pair(words: int, width: int, products: int, fixed: FixedPoint) -> tuple[float, float, int]:
    """Seconds of the setup, seconds in all, and bytes, of both ends together."""
    randomness = np.random.default_rng()
    chosen = [randomness.random(words) < 0.05 for _ in range(2)]
    start = time.process_time()
    ends = [PairSession(1, 2, chosen[0], fixed), PairSession(2, 1, chosen[1], fixed)]
    sent = 0

    def swap(messages: list[bytes]) -> list[bytes]:
        nonlocal sent
        sent += sum(map(len, messages))
        return messages[::-1]

    said = swap([end.opening() for end in ends])
    said = swap([end.points(message) for end, message in zip(ends, said, strict=True)])
    said = swap([end.columns(message) for end, message in zip(ends, said, strict=True)])
    for end, message in zip(ends, said, strict=True):
        end.extend(message)
    ready = time.process_time()
    for step in range(products):
        numbers = randomness.integers(-127, 128, (2, width)).astype(np.int8)
        said = swap([end.correction(z, step, 0) for end, z in zip(ends, numbers, strict=True)])
        one, two = (end.share(m, step, 0) for end, m in zip(ends, said, strict=True))
        wide = numbers.astype(np.int64) << (fixed.fraction_bits - 7)
        right = np.outer(chosen[0], wide[1]) + np.outer(chosen[1], wide[0])
        assert np.array_equal((one + two).view(f"<i{fixed.word}"), right)
    return ready - start, time.process_time() - start, sent


def price(call: Callable[[], object], count: int) -> float:
    """Seconds of one call: the best of three rounds."""
    best = math.inf
    for _ in range(3):
        start = time.process_time()
        for _ in range(count):
            call()
        best = min(best, (time.process_time() - start) / count)
    return best


def limit(words: int, width: int, products: int, fixed: FixedPoint) -> float:
    """Seconds of the group operations and digests that the protocol cannot do without."""
    a, A, _ = ED25519.key()
    _, B = ED25519.pair()
    transfer = price(ED25519.pair, 100) + 2 * price(lambda: ED25519.multiply(a, A), 100)
    transfer += price(lambda: ED25519.add(A, B), 100) + price(
        lambda: ED25519.subtract(A, B, 1), 100
    )
    start, row = blake2b(secrets.token_bytes(64)), secrets.token_bytes(20)

    def digest() -> None:
        state = start.copy()
        state.update(row)
        state.digest()

    digests = 3 * words * -(-width * fixed.word // 64)  # both pads at S, one at R
    return 2 * (BASE * transfer + products * digests * price(digest, 20_000))


def ideal_sum(words: int, width: int) -> float:
    """Seconds of one ideal sum over a perfect matching of a whole graph."""
    randomness = np.random.default_rng(0)
    devices = np.arange(DEVICES)
    order = randomness.permutation(DEVICES)
    partner = np.empty(DEVICES, np.int64)
    partner[order[::2]], partner[order[1::2]] = order[1::2], order[::2]
    chosen = csr_array(random_array((DEVICES, words), density=14 / words, rng=0))
    chosen.data[:] = 1
    chosen.sum_duplicates()
    vectors = randomness.integers(-127, 128, (DEVICES, width)).astype(np.int8)
    shard = Shard(
        devices,
        DEVICES,
        np.zeros(DEVICES + 1, np.int64),
        np.empty(0, np.int64),
        PrivateRandomness(simulated_secrets(0, devices)),
        PublicRandomness(0),
    )
    settings = AggregateSettings(limit=2.0**18, fraction_bits=24)
    took = 0.0

    def program(shard: Shard, endpoint: Endpoint) -> Program[None]:
        nonlocal took
        aggregator = IdealAggregator(shard, endpoint, settings)
        yield from aggregator.setup()
        sums = paired_sums(shard, endpoint, aggregator)
        yield from sums.setup(partner, chosen)
        start = time.process_time()
        yield from sums.sum(vectors, None, 0)
        took = time.process_time() - start

    def coordinator(endpoint: Endpoint) -> Program[None]:
        sums = IdealCoordinator(DEVICES, endpoint, settings)
        yield from sums.setup()
        yield from PairedCoordinator(sums).sum(words * width)

    Loopback([shard], EVERY_DOOR, IDEAL_SUMS | IDEAL_TOPICS).run(program, coordinator)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--products", type=int, default=4)
    options = parser.parse_args()
    print(f"one pair, both ends, {options.products} products of width {options.width}")
    print("words  ring  setup s  all s  limit s  ratio       bytes")
    for words in SIZES:
        for word, fixed in RINGS.items():
            runs = [
                pair(words, options.width, options.products, fixed) for _ in range(options.rounds)
            ]
            setup, total, sent = min(runs, key=lambda run: run[1])
            least = limit(words, options.width, options.products, fixed)
            print(
                f"{words:5d}  {8 * word:4d}  {setup:7.3f}  {total:5.3f}  {least:7.3f}  "
                f"{total / least:5.2f}  {sent:10,d}"
            )
    print(f"one ideal sum, {DEVICES:,d} devices, {SIZES[1]} words, width {options.width}: ", end="")
    print(f"{ideal_sum(SIZES[1], options.width):.2f} s")


if __name__ == "__main__":
    main()
