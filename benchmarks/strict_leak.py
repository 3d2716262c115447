"""What neighbours learn of degrees and edges in `classify`, beside accuracy: one table.

    python -m benchmarks.strict_leak [--graph facebook] [--epsilon 3] [--seeds 3] [--json]

The attackers are those of `lumos.audit.attacks.neighbours`, over all pairs of neighbours,
without numbers of their own. AUC 0.5 is chance. The row `classes` knows the true classes of u, v
and w, and nothing else: what homophily alone tells.
"""

import argparse
import json
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import lumos
from lumos.audit.attacks.neighbours import NeighbourPairs, ReceivedMessages, best, questions
from lumos.ldp.mechanisms import COIN, make_mechanism

CELLS = [
    (0, 4.0),
    *(
        (propagated_labels, epsilon)
        for propagated_labels in (1, 2, 3)
        for epsilon in (2.0, 3.0, 4.0)
    ),
]
"""Numbers of propagated labels and ε of each."""


def leak(pairs: NeighbourPairs, messages: ReceivedMessages) -> dict[str, float]:
    """AUC by question."""
    return {question.name: best(question) for question in questions(pairs, messages)}


def informed(graph: lumos.Graph, epsilon: float) -> dict[str, str | float]:
    """Return how often the randomized label of a training device equals its label."""
    run = lumos.train(graph, label_epsilon=epsilon, floor=False)
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
    pairs = NeighbourPairs.of(graph)
    rows: list[dict[str, str | float]] = [
        {"messages": "classes", **leak(pairs, ReceivedMessages.of([labels], pairs))}
    ]
    for propagated_labels, propagated_epsilon in CELLS:
        settings: dict[str, Any] = (
            {"propagated_epsilon": propagated_epsilon} if propagated_labels else {}
        )
        runs = [
            lumos.train(
                graph,
                seed=seed,
                label_epsilon=options.epsilon,
                propagated_labels=propagated_labels,
                floor=False,
                **settings,
            )
            for seed in range(options.seeds)
        ]
        kept = runs[0].model.kept
        sent = [kept["released"], *kept["propagated_labels"][:, :, 0].astype(np.int64).T]
        found = leak(pairs, ReceivedMessages.of(sent, pairs))
        name = f"ε {options.epsilon:g}, propagated labels {propagated_labels}"
        if propagated_labels:
            name += f" at {propagated_epsilon:g}"
        test = float(np.mean([run.metrics["test_accuracy"] for run in runs]))
        rows.append({"messages": name, **found, "test": test})
    guesses = [informed(graph, epsilon) for epsilon in (2.0, 3.0, 4.0)]
    if options.json:
        print(json.dumps({"leak": rows, "informed": guesses}))
        return
    show(rows, f"{options.graph}: AUC of the best attacker, and test accuracy")
    show(
        guesses,
        "label by its randomized label, the whole of what an informed attacker has: share of "
        "right guesses",
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
