"""What neighbours learn of degrees and edges in `classify`, beside accuracy: one table.

    python -m benchmarks.strict_leak [--graph facebook] [--epsilon 3] [--seeds 3] [--json]

The attacker is a neighbour u of a device v. It has everything that v sent to it in a whole run, its
symbol and all opinions, or in the profile before its symbol and relayed ones; what u itself sent to
v; and the public list of who trains. **Degree**: is that of v at most 1, at most 5, below the
median? **Edge**: is w a neighbour of v, or a random device? *One neighbour* knows the symbol of w,
*neighbours of both* all that w sent.

Two attackers learn on one half of all (u, v): a likelihood ratio over all combinations of messages
(`bench_relay.py`), and a small network; the better one counts. Judged on the other half, AUC 0.5 is
chance. The row `classes` knows the true classes of u, v and w, and nothing else: what homophily
alone tells.

The profile before (commit 6f40ce0) gave every device a symbol, and its relay 4 hops. Its messages
are made here, from true labels; its accuracies were measured with that commit, seeds 0 to 2.
"""

import argparse
import json
from typing import NamedTuple

import numpy as np
import torch
from benchmarks.bench_relay import attack, heard
from rich.console import Console
from rich.table import Table
from torch.nn import functional

import lumos
from lumos.device.shard import Shard, cut
from lumos.encode.mechanisms import COIN, make_mechanism
from lumos.strict.relay import pads
from lumos.training.metrics import auc
from lumos.typing import Flags, Ints

BEFORE = {
    (2.0, 1): 0.898,
    (2.0, 4): 0.903,
    (3.0, 1): 0.911,
    (3.0, 4): 0.913,
}
"""Test accuracy on Facebook of the profile before, by ε and hops: mean of seeds 0 to 2."""
CELLS = [(0, 4.0), *((opinions, epsilon) for opinions in (1, 2, 3) for epsilon in (2.0, 3.0, 4.0))]
"""Numbers of opinions and ε of each."""
HIDDEN, ROUNDS, BATCH = 64, 6, 2048


class Pairs(NamedTuple):
    """All (u, v), a third device w for each, and which half attackers learn on."""

    attacker: Ints
    sender: Ints
    other: Ints
    is_edge: Flags
    usable: Flags
    """w is neither u nor v."""
    degree: Ints
    half: Flags

    @staticmethod
    def of(shard: Shard) -> "Pairs":
        """Half of the w are neighbours of v."""
        generator = np.random.default_rng(0)
        attacker, sender = shard.devices[shard.owner], shard.neighbours
        degree = shard.degree[sender]
        pick = np.floor(generator.random(len(sender)) * degree).astype(np.int64)
        is_edge = generator.random(len(sender)) < 0.5
        anybody = generator.integers(0, len(shard), len(sender))
        other = np.where(is_edge, shard.neighbours[shard.offsets[sender] + pick], anybody)
        usable = (other != attacker) & (other != sender)
        half = generator.random(len(sender)) < 0.5
        return Pairs(attacker, sender, other, is_edge, usable, degree, half)


class Messages(NamedTuple):
    """What devices sent in a run, for each pair: a column of numbers for each message."""

    sender: list[Ints]
    """From v to u."""
    attacker: list[Ints]
    """From u to v."""
    other: list[Ints]
    """From w to a neighbour of w; the symbol first."""


def run_messages(kept: dict[str, Ints], classes: int, pairs: Pairs) -> Messages:
    """Of a run with opinions; who sends no symbol has a number of its own."""
    symbol = np.where(kept["released"] < 0, classes, kept["released"])
    every = [symbol, *kept["opinions"][:, :, 0].astype(np.int64).T]
    sender, attacker, other = (
        [message[devices] for message in every]
        for devices in (pairs.sender, pairs.attacker, pairs.other)
    )
    return Messages(sender, attacker, other)


def relay_messages(shard: Shard, labels: Ints, epsilon: float, hops: int, pairs: Pairs) -> Messages:
    """Of the profile before."""
    symbols = make_mechanism(int(labels.max()) + 1, epsilon, "krr")
    coins = shard.coins.words(np.arange(len(shard)), "symbol", 0, symbols.coins)
    released = symbols.release(labels, coins)
    received = heard(shard, released, lambda hop: pads(shard, symbols, hop), hops, "relay")
    back = shard.slots(shard.neighbours, shard.devices[shard.owner])
    some = np.random.default_rng(1).random(len(pairs.other)) * shard.degree[pairs.other]
    of_other = back[shard.offsets[pairs.other] + some.astype(np.int64)]  # from w to a neighbour
    return Messages(list(received), list(received[:, back]), list(received[:, of_other]))


def network(columns: list[Ints], truth: Flags, half: Flags) -> float:
    """AUC of a small network on all columns, one-hot."""
    torch.manual_seed(0)
    inputs = torch.cat([functional.one_hot(torch.from_numpy(column)) for column in columns], 1)
    inputs, wanted = inputs.float(), torch.from_numpy(truth).float()
    model = torch.nn.Sequential(
        torch.nn.Linear(inputs.shape[1], HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    falling = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.6)
    learn = torch.from_numpy(np.flatnonzero(half))
    for _ in range(ROUNDS):
        for batch in learn[torch.randperm(len(learn))].split(BATCH):
            optimizer.zero_grad()
            logits = model(inputs[batch])[:, 0]
            functional.binary_cross_entropy_with_logits(logits, wanted[batch]).backward()
            optimizer.step()
        falling.step()
    with torch.no_grad():
        score = model(inputs)[:, 0].double().numpy()
    return auc(score[~half & truth], score[~half & ~truth])


def best(columns: list[Ints], first: list[Ints], truth: Flags, half: Flags) -> float:
    """AUC of the best attacker; `first` are the columns that matter most."""
    by_cells = (attack([those], truth, half) for those in (columns, first))
    return max(*by_cells, network(columns, truth, half))


def leak(pairs: Pairs, messages: Messages) -> dict[str, float]:
    """AUC by question."""
    both = [*messages.sender, *messages.attacker]
    paired = [
        column
        for columns in zip(messages.sender, messages.attacker, strict=True)
        for column in columns
    ]
    found = {
        name: best(paired, messages.sender, truth, pairs.half)
        for name, truth in (
            ("degree ≤ 1", pairs.degree <= 1),
            ("≤ 5", pairs.degree <= 5),
            ("< median", pairs.degree < np.median(pairs.degree)),
        )
    }
    half, is_edge = pairs.half[pairs.usable], pairs.is_edge[pairs.usable]
    for name, known in (
        ("edge, one neighbour", messages.other[:1]),
        ("edge, neighbours of both", messages.other),
    ):
        columns, first = (
            [column[pairs.usable] for column in some]
            for some in ([*known, *both], [*known, *messages.sender])
        )
        found[name] = best(columns, first, is_edge, half)
    return found


def informed(graph: lumos.Graph, epsilon: float) -> dict[str, str | float]:
    """How often the symbol of a training device is its label: all that anybody has of it."""
    run = lumos.train(graph, epsilon=epsilon, floor=False)
    released = run.model.kept["released"]
    sent = released >= 0
    truth = make_mechanism(graph.class_count, epsilon, "krr").truth / COIN
    right = float((released == graph.labels)[sent].mean())
    return {"label ε": f"{epsilon:g}", "p": truth, "right": right}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="facebook")
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    graph = lumos.load(options.graph)
    if graph.labels is None or graph.labels.min() < 0:
        raise SystemExit("every device needs a label here")
    labels = np.asarray(graph.labels)
    shard = cut(graph, 1, 0)[0]
    pairs = Pairs.of(shard)
    true = [[labels[some]] for some in (pairs.sender, pairs.attacker, pairs.other)]
    rows: list[dict[str, str | float]] = [{"messages": "classes", **leak(pairs, Messages(*true))}]
    for (epsilon, hops), accuracy in BEFORE.items():
        name = f"before, ε {epsilon:g}, " + ("no relay" if hops == 1 else f"relay {hops}")
        found = leak(pairs, relay_messages(shard, labels, epsilon, hops, pairs))
        known = {"test": accuracy} if options.graph == "facebook" else {}
        rows.append({"messages": name, **found, **known})
    for opinions, opinion_epsilon in CELLS:
        runs = [
            lumos.train(
                graph,
                seed=seed,
                epsilon=options.epsilon,
                opinions=opinions,
                opinion_epsilon=opinion_epsilon,
                floor=False,
            )
            for seed in range(options.seeds)
        ]
        found = leak(pairs, run_messages(runs[0].model.kept, graph.class_count, pairs))
        name = f"ε {options.epsilon:g}, opinions {opinions}"
        if opinions:
            name += f" at {opinion_epsilon:g}"
        test = float(np.mean([run.metrics["test_accuracy"] for run in runs]))
        rows.append({"messages": name, **found, "test": test})
    guesses = [informed(graph, epsilon) for epsilon in (2.0, 3.0, 4.0)]
    if options.json:
        print(json.dumps({"leak": rows, "informed": guesses}))
        return
    show(rows, f"{options.graph}: AUC of the best attacker, and test accuracy")
    show(
        guesses,
        "label by its symbol, the whole of what an informed attacker has: share of right guesses",
    )


def show(rows: list[dict[str, str | float]], title: str) -> None:
    """Print a table."""
    table = Table(title=title)
    for name in max(rows, key=len):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(v if isinstance(v, str) else f"{v:.3f}" for v in row.values()))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
