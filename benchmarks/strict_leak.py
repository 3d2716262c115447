"""What neighbours learn of degrees and edges in `classify`, beside accuracy: one table.

    python -m benchmarks.strict_leak [--graph facebook] [--epsilon 3] [--seeds 3] [--json]

The attacker is a neighbour u of a device v. It has everything that v sent to it in a whole run, its
symbol and all opinions; what u itself sent to v; and the public list of who trains. **Degree**: is
that of v at most 1, at most 5, below the median? **Edge**: is w a neighbour of v, or a random
device? *One neighbour* knows the symbol of w, *neighbours of both* all that w sent.

Two attackers learn on one half of all (u, v): a likelihood ratio over all combinations of messages
(`attack`), and a small network; the better one counts. Judged on the other half, AUC 0.5 is
chance. The row `classes` knows the true classes of u, v and w, and nothing else: what homophily
alone tells.
"""

import argparse
import json
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

import lumos
from lumos.device.shard import Shard, cut
from lumos.encode.mechanisms import COIN, make_mechanism
from lumos.training.metrics import auc
from lumos.typing import Doubles, Flags, Ints

CELLS = [(0, 4.0), *((opinions, epsilon) for opinions in (1, 2, 3) for epsilon in (2.0, 3.0, 4.0))]
"""Numbers of opinions and ε of each."""
HIDDEN, ROUNDS, BATCH = 64, 6, 2048
SEEN = 16.0
"""How many more times a combination counts as seen, at the frequency of its parts."""


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
    pairs = Pairs.of(cut(graph, 1, 0)[0])
    true = [[labels[some]] for some in (pairs.sender, pairs.attacker, pairs.other)]
    rows: list[dict[str, str | float]] = [{"messages": "classes", **leak(pairs, Messages(*true))}]
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
