"""Every balancer on every graph that is here: what it reaches, what it asks, and how long it takes.

    python benchmarks/bench_balancers.py [--graphs facebook lastfm …] [--data DIR] [--json]

The optimum is the exact one, by maximum flow. Comparisons are ideal ones, which the ledger counts
exactly as secret ones. ℓ is the number of bits that the devices agreed on, log2 of the public
bound of a workload. mcmc runs for the paper's number of steps.
"""

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lumos.compare.comparer import agree_on_length
from lumos.device.shard import Shard
from lumos.exchange import Program
from lumos.graph import Graph, load
from lumos.graph.catalog import CATALOG
from lumos.trees.balance import Balanced, balance
from lumos.trees.balancers import mcmc
from lumos.trees.estimate import expected_comparisons
from lumos.trees.optimum import least_largest_workload
from lumos.trees.settings import TreeSettings
from lumos.typing import Ints

SIBLING = Path(__file__).parents[2] / "shared" / "data"
NAMES = ("demo", "facebook", "lastfm", "twitch-ENGB")
PAPER = {"facebook": 1000, "lastfm": 300}
"""Steps of Algorithm 2 in the paper; other graphs get 300."""
BALANCERS: tuple[str, ...] = ("greedy", "mcmc", "optimal")

COLUMNS = (
    ("graph", "graph", "<13", ""),
    ("balancer", "balancer", "<13", ""),
    ("largest", "largest", ">8", ",d"),
    ("optimum", "optimum", ">8", ",d"),
    ("comparisons", "comparisons", ">12", ",d"),
    ("per edge", "comparisons_per_edge", ">9", ".2f"),
    ("bits/edge", "bits_per_edge", ">10", ".2f"),
    ("per pair", "bits_per_pair", ">9", ".2f"),
    ("largest", "bits_per_pair_largest", ">8", ".1f"),
    ("ℓ", "public_bits", ">4", "d"),
    ("control/edge", "control_bits_per_edge", ">13", ".2f"),
    ("messages", "messages", ">11", ",d"),
    ("rounds", "rounds", ">8", ",d"),
    ("seconds", "seconds", ">8", ".2f"),
)


@contextmanager
def agreed_lengths() -> Iterator[list[int]]:
    """Listens to what the devices agree on as ℓ."""
    agreed: list[int] = []

    def listening(shard: Shard, largest: Ints) -> Program[int]:
        agreed.append((yield from agree_on_length(shard, largest)))
        return agreed[-1]

    module: Any = mcmc
    module.agree_on_length = listening
    try:
        yield agreed
    finally:
        module.agree_on_length = agree_on_length


def measure(graph: Graph, balancer: str, optimum: int) -> tuple[dict[str, Any], Balanced]:
    steps = PAPER.get(graph.name.lower(), 300)
    settings = TreeSettings(balancer=balancer, iterations=steps, compare="ideal")
    with agreed_lengths() as agreed:
        balanced = balance(graph, settings, seed=1)
    ledger = balanced.ledger
    found = {
        "graph": graph.name,
        "balancer": f"mcmc {steps:,}" if balancer == "mcmc" else balancer,
        "largest": balanced.max_workload,
        "optimum": optimum,
        "comparisons": ledger.comparisons,
        "comparisons_per_edge": ledger.comparisons / graph.edges,
        "bits_per_edge": ledger.comparison_bits / graph.edges,
        "bits_per_pair": ledger.bits_per_pair_mean,
        "bits_per_pair_largest": ledger.bits_per_pair_largest,
        "public_bits": agreed[0] if agreed else 4 if ledger.comparisons else 0,
        "control_bits_per_edge": ledger.control_bits / graph.edges,
        "messages": ledger.messages,
        "rounds": ledger.rounds,
        "seconds": balanced.seconds,
        "expected_over_asked": expected_comparisons(graph, settings) / max(1, ledger.comparisons),
    }
    return found, balanced


def available(names: list[str], folder: Path) -> list[Graph]:
    graphs = []
    for name in names:
        if name in CATALOG and not (folder / CATALOG[name].folders[0]).is_dir():
            print(f"{name} is not here; set LUMOS_DATA to the folder that holds it")
            continue
        graphs.append(load(name, data_dir=folder, features=False))
    return graphs


def ratios(rows: list[dict[str, Any]]) -> None:
    *others, best = rows
    walk = others[-1]
    above = ", ".join(f"{row['balancer']} {row['largest'] / row['optimum']:.2f}" for row in rows)
    sent = walk["messages"] / best["messages"]
    control = walk["control_bits_per_edge"] / best["control_bits_per_edge"]
    print(
        f"{best['graph']:<13}largest over optimum: {above}; mcmc over optimal: "
        f"{sent:.2f} messages, {control:.1f} control bits; optimal compares nothing"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=list(NAMES))
    parser.add_argument("--data", help="where the named graphs lie")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(options.data or os.environ.get("LUMOS_DATA") or SIBLING)
    blocks = []
    if not options.json:
        print("".join(f"{title:{width}}" for title, _, width, _ in COLUMNS))
    for graph in available(options.graphs, folder):
        optimum = least_largest_workload(graph)
        rows = []
        for balancer in BALANCERS:
            found, balanced = measure(graph, balancer, optimum)
            assert balanced.max_workload >= optimum
            rows.append(found)
            if not options.json:
                cells = (f"{format(found[key], shape):{width}}" for _, key, width, shape in COLUMNS)
                print("".join(cells), flush=True)
        assert rows[-1]["largest"] == optimum, "optimal is optimal"
        blocks.append(rows)
    if options.json:
        print(json.dumps([row for rows in blocks for row in rows]))
        return
    print()
    for rows in blocks:
        ratios(rows)
    print(
        "\nbits/edge, per pair, largest: comparison bits over all edges, and mean and largest over "
        "the pairs that compared;\nℓ: log2 of the public bound of the compared numbers (greedy: of "
        "round(ln deg)). A pair that compares changing\nworkloads again and again can reveal more "
        "than ℓ bits."
    )
    print(
        "expected_comparisons (the progress bar) over what was asked: "
        + ", ".join(
            f"{row['graph']} {row['balancer']} {row['expected_over_asked']:.2f}"
            for rows in blocks
            for row in rows
            if row["comparisons"]
        )
    )


if __name__ == "__main__":
    main()
