"""One comparison of 8 bits: speed and bytes beside the limits they stand against, in one run.

    python benchmarks/bench_compare.py [--seconds 4] [--bits 8] [--json]

Both parties' work is counted, on one core, with ``time.process_time``. The limit is set by the
curve alone: the group operations of the protocol, counted, at the price that the same run
measures for each on the same core. Bytes stand beside CrypTFlow2's formula (m = 4, λ = 128), whose
oblivious transfers come from an extension: its base transfers, once per pair, are not in it.
"""

import argparse
import json
import math
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from lumos.compare import Receiver, Sender, Spec, messages
from lumos.crypto.group import ED25519

SIZES = (1, 5, 50)


class Counting:
    """The group, counting its calls."""

    identity = ED25519.identity

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(ED25519, name)

        def counted(*arguments: bytes) -> object:
            self.calls[name] += 1
            return operation(*arguments)

        return counted


def cryptflow2_bits(bits: int) -> int:
    """λ(4q − ⌈log q⌉ − 2) + 16(2q − 1) + 22(q − 1) − 2⌈log q⌉ with q = ⌈ℓ/4⌉, λ = 128."""
    q = -(-bits // 4)
    log = math.ceil(math.log2(q))
    return 128 * (4 * q - log - 2) + 16 * (2 * q - 1) + 22 * (q - 1) - 2 * log


def session(spec: Spec, count: int, group: Any = ED25519) -> int:
    """A fresh pair compares ``count`` times; returns the bytes."""
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


def price(call: Callable[[], object], count: int = 2000) -> float:
    """Seconds of one call: the best of five rounds."""
    best = math.inf
    for _ in range(5):
        start = time.process_time()
        for _ in range(count // 5):
            call()
        best = min(best, (time.process_time() - start) / (count // 5))
    return best


def prices() -> dict[str, float]:
    a, A, _ = ED25519.key()
    _, B = ED25519.pair()
    return {
        "key": price(ED25519.key),
        "pair": price(ED25519.pair),
        "multiply": price(lambda: ED25519.multiply(a, B)),
        "add": price(lambda: ED25519.add(A, B)),
        "subtract": price(lambda: ED25519.subtract(A, B)),
    }


def measure(spec: Spec, count: int, seconds: float) -> float:
    """Comparisons per second: the best of twelve rounds, since a core is seldom alone."""
    session(spec, count)
    best = 0.0
    for _ in range(12):
        done, start = 0, time.process_time()
        while (spent := time.process_time() - start) < seconds / 12:
            session(spec, count)
            done += count
        best = max(best, done / spent)
    return best


def rows(bits: int, seconds: float) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """The prices, and a row per number of comparisons of a pair.

    Prices are taken before, between and after, and the lowest counts: a busy neighbour must
    not make the limit look lower than it is.
    """
    spec = Spec(bits)
    speeds = []
    taken = [prices()]
    for count in SIZES:
        speeds.append(measure(spec, count, seconds))
        taken.append(prices())
    cost = {name: min(found[name] for found in taken) for name in taken[0]}
    listed = []
    for count, speed in zip(SIZES, speeds, strict=True):
        group = Counting()
        sent = session(spec, count, group)
        if sent != sum(message.length for message in messages([spec] * count, first=True)):
            raise AssertionError("bytes differ from the public list")
        limit = count / sum(number * cost[name] for name, number in group.calls.items())
        formula = cryptflow2_bits(bits) / 8
        listed.append(
            {
                "per_pair": count,
                "per_second": round(speed, 1),
                "limit_per_second": round(limit, 1),
                "of_limit": round(speed / limit, 3),
                "bytes": sent / count,
                "cryptflow2_bytes": formula,
                "bytes_ratio": round(sent / count / formula, 3),
                "operations": {name: n / count for name, n in sorted(group.calls.items())},
            }
        )
    return cost, listed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cost, table = rows(options.bits, options.seconds)
    if options.json:
        rates = {f"{name}_per_second": round(1 / seconds) for name, seconds in cost.items()}
        print(json.dumps({"bits": options.bits, "group": rates, "rows": table}))
        return
    print(
        f"per second and core: {1 / cost['multiply']:,.0f} scalar multiplications of a checked"
        f" point, {1 / cost['pair']:,.0f} of the base, {1 / cost['subtract']:,.0f} subtractions"
    )
    print(f"ℓ = {options.bits}, per comparison, both parties' work on one core:")
    for row in table:
        operations = ", ".join(f"{n:g} {name}" for name, n in row["operations"].items())
        print(
            f"{row['per_pair']:>3} per pair: {row['per_second']:7.0f}/s,"
            f" {row['of_limit']:.0%} of the curve's limit {row['limit_per_second']:.0f}/s;"
            f" {row['bytes']:6.1f} bytes, CrypTFlow2 {row['cryptflow2_bytes']:.1f}"
            f" (ratio {row['bytes_ratio']}); {operations}"
        )


if __name__ == "__main__":
    main()
