"""What the relay of links tells of degrees and edges: the best attacker who knows the mechanism.

    python benchmarks/bench_relay.py [--graph facebook] [--epsilon 2] [--hops 4]

The symbol is the nearest of 8 entries of a codebook, and a colour travels beside it. The attacker
is a neighbour u of a device v. It sees v's released symbol and one relayed symbol for each hop, and
knows how such messages are distributed in the whole population, for every degree: a likelihood
ratio over all combinations of symbols, which no attacker can beat. It is learnt on one half of all
(u, v) and judged on the other. Degrees: is v's degree at most 1, at most 5, below the median?
Edges: is w, whose released symbol the attacker knows, a neighbour of v, or a random device? AUC 0.5
is chance. The rows `none` are the same attackers without a relay: what v's symbol, which depends on
its features, tells by itself.

Names of colours mean nothing, so all that they can tell is which of them are equal: those that came
from v, the attacker's own, and w's. Symbols and colours are drawn apart from each other, and the
attacker adds up the two log-likelihood ratios. What links tell beyond their relay, in answers, is
measured in `strict_link_leak.py`.
"""

import argparse
import json
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

import lumos
from lumos.device.coins import PublicCoins
from lumos.device.shard import Shard, cut
from lumos.encode.mechanisms import make_mechanism
from lumos.strict.codebook import EPOCHS, Codebook
from lumos.strict.feature_rows import FeatureRows
from lumos.strict.relay import PADS, pads, relayed
from lumos.strict.settings import StrictSettings
from lumos.training.metrics import auc
from lumos.training.private_data import features_of
from lumos.typing import Bytes, Doubles, Flags, Ints

SEEN = 16.0


def entries(graph: lumos.Graph, size: int) -> Ints:
    """[devices] the nearest entry of a codebook, learnt without noise."""
    codebook = Codebook(
        FeatureRows(features_of(graph), np.ones(graph.devices, np.bool_)), size, PublicCoins(0), 0.0
    )
    for epoch in range(EPOCHS):
        codebook.advance(epoch, codebook.update(epoch, each=False))
    return codebook.nearest()


def heard(shard: Shard, said: Bytes, made: Callable[[int], Bytes], hops: int, what: str) -> Ints:
    """[hops, slots] what each device hears over each slot, hop by hop."""
    other_end = shard.slots(shard.neighbours, shard.devices[shard.owner])
    came = said[shard.owner][other_end]
    found = [came]
    for hop in range(2, hops + 1):
        came = relayed(shard, came, made(hop), hop, what)[other_end]
        found.append(came)
    return np.stack(found)[:, :, 0].astype(np.int64)


def equal(marks: list[Ints]) -> Ints:
    """[slots] a number for which of some marks are equal."""
    cells = np.zeros(len(marks[0]), np.int64)
    for place, mark in enumerate(marks):
        first = np.full(len(mark), place)
        for before in range(place - 1, -1, -1):
            first[marks[before] == mark] = before
        cells = cells * (place + 1) + first
    return cells


def ratio(columns: list[Ints], truth: Flags, half: Flags) -> Doubles:
    """[slots] log-likelihood ratio of all combinations of some columns, learnt on one half.

    Column by column: how often a combination comes is estimated from its own count and, as if it
    had been seen `SEEN` times more, from that of the combination without the last column.
    """
    score, shares = np.zeros(len(truth)), [np.ones(1), np.ones(1)]
    cells = np.zeros(len(truth), np.int64)
    for column in columns:
        size = int(column.max()) + 1
        cells = cells * size + column
        every = np.bincount(cells[half], minlength=len(shares[0]) * size).reshape(-1, size) + 0.5
        usual = every / every.sum(axis=1, keepdims=True)
        for number, those in enumerate((half & truth, half & ~truth)):
            count = np.bincount(cells[those], minlength=every.size)
            expected = (shares[number][:, None] * usual).ravel()
            found = count + SEEN * every.size * expected
            shares[number] = found / found.sum()
        score = np.log(shares[0][cells]) - np.log(shares[1][cells])
    return score


def attack(kinds: list[list[Ints]], truth: Flags, half: Flags) -> float:
    """AUC of the likelihood ratio of all kinds, judged on the half that it was not learnt on."""
    score = np.sum([ratio(columns, truth, half) for columns in kinds], axis=0)
    return auc(score[~half & truth], score[~half & ~truth])


def colours_heard(shard: Shard, size: int, hops: int) -> tuple[Ints, Ints]:
    """[devices] own colours, and [hops, slots] those that came."""
    everyone = np.arange(len(shard))

    def drawn(purpose: str, many: int) -> Bytes:
        chance = shard.coins.uniform(everyone, purpose, 0, many)
        return np.floor(chance * size).astype(np.uint8)[:, :, None]

    own = drawn("colour", 1)[:, 0]
    came = heard(
        shard, own, lambda hop: drawn(f"made-up colours/{hop}", PADS), hops, "relay of colours"
    )
    return own[:, 0].astype(np.int64), came


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="facebook")
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--hops", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    graph = lumos.load(options.graph)
    shard = cut(graph, 1, 0)[0]
    size = StrictSettings().codebook
    symbols = make_mechanism(size, options.epsilon, "krr")
    coins = shard.coins.words(np.arange(len(shard)), "symbol", 0, symbols.coins)
    said = symbols.release(entries(graph, size), coins)
    came = heard(shard, said, lambda hop: pads(shard, symbols, hop), options.hops, "relay")
    colour, colours = colours_heard(shard, 256, options.hops)
    generator = np.random.default_rng(0)
    sender = shard.neighbours  # slot (u, v): u hears from v
    degree = shard.degree[sender]
    half = generator.random(len(sender)) < 0.5
    # w: a neighbour of v other than u, or anybody; the attacker knows what w released.
    own = said[:, 0].astype(np.int64)
    pick = shard.offsets[sender] + np.floor(generator.random(len(sender)) * degree).astype(int)
    is_edge = generator.random(len(sender)) < 0.5
    other = np.where(is_edge, shard.neighbours[pick], generator.integers(0, len(shard), len(pick)))
    usable = other != shard.devices[shard.owner]
    rows = []
    for hops in range(1, options.hops + 1):
        marks = [colour[shard.owner], *colours[:hops]]
        kinds = [[*came[:hops]], [equal(marks)]]
        with_other = [[own[other], *came[:hops]], [equal([*marks, colour[other]])]]
        known = [[column[usable] for column in columns] for columns in with_other]
        rows.append(
            {
                "relay": "none" if hops == 1 else str(hops),
                "degree <= 1": attack(kinds, degree <= 1, half),
                "degree <= 5": attack(kinds, degree <= 5, half),
                "degree < median": attack(kinds, degree < np.median(degree), half),
                "edge v-w": attack(known, is_edge[usable], half[usable]),
            }
        )
    if options.json:
        print(json.dumps(rows))
        return
    table = Table(title=f"{options.graph}, link, ε = {options.epsilon:g}: AUC of the best attacker")
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(v if isinstance(v, str) else f"{v:.3f}" for v in row.values()))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
