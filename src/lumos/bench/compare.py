"""One comparison of 8 bits in both groups: speed and bytes beside their limits, in one run.

Both parties' work is counted, on one core, with ``time.process_time``; rounds of the two groups
take turns, so that a busy neighbour slows both. The limit is set by the curve alone: the group
operations of the protocol, counted, at the price that the same run measures for each on the same
core. Bytes stand beside CrypTFlow2's formula (m = 4, λ = 128), whose oblivious transfers come from
an extension: its base transfers, once per pair, are not in it.
"""

import math
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from lumos.bench.rows import BenchRow, BenchSize
from lumos.compare import Receiver, Sender, Spec, messages
from lumos.crypto.group import GROUPS, Group
from lumos.session.lookup import Lookup, Query, ReceiverKeys, SenderKeys

SIZES = (1, 5, 50)
ROUNDS = 12


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


def cryptflow2_bits(bits: int) -> int:
    """λ(4q − ⌈log q⌉ − 2) + 16(2q − 1) + 22(q − 1) − 2⌈log q⌉ with q = ⌈ℓ/4⌉, λ = 128."""
    q = -(-bits // 4)
    log = math.ceil(math.log2(q))
    return 128 * (4 * q - log - 2) + 16 * (2 * q - 1) + 22 * (q - 1) - 2 * log


def session(spec: Spec, count: int, group: Any) -> int:
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


def price(call: Callable[[], object], count: int = 1000) -> float:
    """Seconds of one call: the best of five rounds."""
    best = math.inf
    for _ in range(5):
        start = time.process_time()
        for _ in range(count // 5):
            call()
        best = min(best, (time.process_time() - start) / (count // 5))
    return best


def prices(group: Group) -> dict[str, float]:
    """Seconds of each operation, as the protocol calls it."""
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
        "128 base transfers": price(lambda: base_transfers(group), 5),
    }


def base_transfers(group: Group, count: int = 128) -> None:
    """What an extension of the transfers needs once per pair: 1-of-2 transfers of seeds."""
    sender = SenderKeys(group)
    sender.bind(bytes(32))
    receiver, seeds = ReceiverKeys(sender.A, bytes(32), group), Lookup((1,), 128)
    for number in range(count):
        query = Query(seeds, b"", number)
        points, _ = receiver.choose(query, number & 1)
        sender.pads(query, 0, points)


def cheapest(taken: list[dict[str, float]]) -> dict[str, float]:
    """The lowest price of each operation: a busy neighbour must not lower the limit."""
    return {name: min(found[name] for found in taken) for name in taken[0]}


def speeds(spec: Spec, count: int, seconds: float) -> dict[str, float]:
    """Comparisons per second by group: the best of twelve rounds, since a core is seldom alone."""
    best = dict.fromkeys(GROUPS, 0.0)
    for _ in range(ROUNDS):
        for name in GROUPS:
            done, start = 0, time.process_time()
            while (spent := time.process_time() - start) < seconds / ROUNDS:
                session(spec, count, GROUPS[name])
                done += count
            best[name] = max(best[name], done / spent)
    return best


def row(spec: Spec, count: int, name: str, speed: float, cost: dict[str, float]) -> dict[str, Any]:
    """One group, with so many comparisons of a pair."""
    group = Counting(GROUPS[name])
    sent, point = session(spec, count, group), GROUPS[name].point_bytes
    if sent != sum(m.length for m in messages([spec] * count, first=True, point=point)):
        raise AssertionError("bytes differ from the public list")
    limit = count / sum(number * cost[call] for call, number in group.calls.items())
    formula = cryptflow2_bits(spec.bits) / 8
    return {
        "group": name,
        "per_pair": count,
        "per_second": round(speed, 1),
        "limit_per_second": round(limit, 1),
        "of_limit": round(speed / limit, 3),
        "bytes": sent / count,
        "cryptflow2_bytes": formula,
        "bytes_ratio": round(sent / count / formula, 3),
        "operations": {call: n / count for call, n in sorted(group.calls.items())},
    }


def rows(bits: int, seconds: float) -> tuple[dict[str, dict[str, float]], list[dict[str, Any]]]:
    """The prices by group, and a row per group and number of comparisons of a pair.

    Prices are taken before, between and after.
    """
    spec = Spec(bits)
    taken = {name: [prices(GROUPS[name])] for name in GROUPS}
    found = {}
    for count in SIZES:
        found[count] = speeds(spec, count, seconds)
        for name in GROUPS:
            taken[name].append(prices(GROUPS[name]))
    cost = {name: cheapest(of_group) for name, of_group in taken.items()}
    listed = [row(spec, n, name, found[n][name], cost[name]) for n in SIZES for name in GROUPS]
    return cost, listed


def ratios(table: list[dict[str, Any]]) -> dict[int, float]:
    """By comparisons of a pair: how much quicker secp256k1 is than ed25519."""
    speed = {(line["per_pair"], line["group"]): line["per_second"] for line in table}
    return {n: round(speed[n, "secp256k1"] / speed[n, "ed25519"], 2) for n in SIZES}


def measure(size: BenchSize) -> list[BenchRow]:
    """By group and comparisons of a pair: speed beside the limit, bytes beside the formula."""
    cost, listed = rows(8, 4.0 if size.full else 1.0)
    base = 1e3 * cost["secp256k1"]["128 base transfers"]
    found = []
    for line in listed:
        name = f"comparison of 8 bits, {line['group']}, {line['per_pair']} per pair"
        found.append(
            BenchRow(
                name=name,
                ours=line["per_second"],
                peer=line["limit_per_second"],
                ratio=line["of_limit"],
                unit="per CPU s",
                against="the curve's limit",
                note=", ".join(f"{n:g} {what}" for what, n in line["operations"].items()),
            )
        )
        found.append(
            BenchRow(
                name=name,
                ours=line["bytes"],
                peer=line["cryptflow2_bytes"],
                ratio=line["cryptflow2_bytes"] / line["bytes"],
                unit="bytes",
                against="CrypTFlow2's formula",
            )
        )
    speed = {(line["per_pair"], line["group"]): line["per_second"] for line in listed}
    for count, ratio in ratios(listed).items():
        found.append(
            BenchRow(
                name=f"secp256k1, {count} per pair",
                ours=speed[count, "secp256k1"],
                peer=speed[count, "ed25519"],
                ratio=ratio,
                unit="per CPU s",
                against="ed25519",
                note=f"an extension's 128 base transfers: {base:.1f} ms",
            )
        )
    return found
