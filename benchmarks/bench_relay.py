"""What a relay tells of degrees and edges: the best possible attacker, who knows the mechanism.

    python benchmarks/bench_relay.py [--graph facebook] [--epsilon 2] [--hops 4] [--json]

The attacker is a neighbour u of a device v. It sees v's released symbol and one relayed symbol for
each hop, and knows how such messages are distributed in the whole population, for every degree: a
likelihood ratio over all combinations of symbols, which no attacker can beat. It is learnt on one
half of all (u, v) and judged on the other. Degrees: is v's degree at most 1, at most 5, below the
median? Edges: is w, whose released symbol the attacker knows, a neighbour of v, or a random device?
AUC 0.5 is chance. The rows `none` are the same attackers without a relay: what v's symbol, which is
a guess at its class, tells by itself.
"""

import argparse
import json

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import lumos
from lumos.device.shard import Shard, cut
from lumos.encode.symbols import Symbols
from lumos.strict.relay import pads, relayed
from lumos.training.evaluate import auc

Ints = npt.NDArray[np.int64]


def heard(shard: Shard, labels: Ints, symbols: Symbols, hops: int) -> Ints:
    """[hops, slots] the symbol that each device hears over each slot, hop by hop."""
    everyone = np.arange(len(shard))
    said = symbols.release(labels, shard.coins.words(everyone, "symbol", 0, symbols.coins))
    other_end = shard.slots(shard.neighbours, shard.devices[shard.owner])
    came = said[shard.owner][other_end]
    found = [came]
    for hop in range(2, hops + 1):
        came = relayed(shard, came, pads(shard, symbols, hop), hop)[other_end]
        found.append(came)
    return np.stack(found)[:, :, 0].astype(np.int64)


def attack(cells: Ints, truth: npt.NDArray[np.bool_], half: npt.NDArray[np.bool_]) -> float:
    """AUC of the likelihood ratio of `cells`, learnt on one half and judged on the other."""
    size = int(cells.max()) + 1
    yes = np.bincount(cells[half & truth], minlength=size) + 0.5
    no = np.bincount(cells[half & ~truth], minlength=size) + 0.5
    score = np.log(yes / yes.sum()) - np.log(no / no.sum())
    judged = ~half
    return auc(score[cells[judged & truth]], score[cells[judged & ~truth]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="facebook")
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--hops", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    graph = lumos.load(options.graph)
    if graph.labels is None or graph.labels.min() < 0:
        raise SystemExit("every device needs a label here")
    shard = cut(graph, 1, 0)[0]
    symbols = Symbols.of(graph.class_count, options.epsilon, "krr")
    came = heard(shard, np.asarray(graph.labels), symbols, options.hops)
    generator = np.random.default_rng(0)
    sender = shard.neighbours  # slot (u, v): u hears from v
    degree = shard.degree[sender]
    half = generator.random(len(sender)) < 0.5
    # w: a neighbour of v other than u, or anybody; the attacker knows what w released.
    own = np.empty(len(shard), np.int64)
    own[sender] = came[0]
    pick = shard.offsets[sender] + np.floor(generator.random(len(sender)) * degree).astype(int)
    is_edge = generator.random(len(sender)) < 0.5
    other = np.where(is_edge, shard.neighbours[pick], generator.integers(0, len(shard), len(pick)))
    usable = other != shard.devices[shard.owner]
    rows = []
    for hops in range(1, options.hops + 1):
        cells = np.zeros(len(sender), np.int64)
        for hop in range(hops):
            cells = cells * symbols.size + came[hop]
        with_other = (cells * symbols.size + own[other])[usable]
        rows.append(
            {
                "relay": "none" if hops == 1 else str(hops),
                "degree <= 1": attack(cells, degree <= 1, half),
                "degree <= 5": attack(cells, degree <= 5, half),
                "degree < median": attack(cells, degree < np.median(degree), half),
                "edge v-w": attack(with_other, is_edge[usable], half[usable]),
            }
        )
    if options.json:
        print(json.dumps(rows))
        return
    table = Table(title=f"{options.graph}, ε = {options.epsilon:g}: AUC of the best attacker")
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(v if isinstance(v, str) else f"{v:.3f}" for v in row.values()))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
