"""The choice of the constants for few labels, on generated graphs alone.

    python benchmarks/few_labels.py [NOISE_SIGMAS …]    # every constant, or these, one at a time
    python benchmarks/few_labels.py --first 1000        # the same on other graphs

A generated graph has a drawn number of devices and classes, degree, vocabulary and share of telling
words; its edges are homophilous to a drawn degree, or independent of classes. A constant keeps its
value unless another one is better by two standard errors of the paired difference over the graphs.
Graphs of docs/strict-results.md have no part in it.
"""

import argparse
import math
import warnings
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_array

import lumos
from lumos.strict.classify import encoder, evidence, stages

GRAPHS, LARGE, UNTOLD = 8, 2, 8
"""Generated graphs of 1,500 to 12,000 devices, of 15,000 to 30,000, and of 1,000 to 5,000 where
edges are independent of classes."""
SHARES = (0.02, 0.05, 0.10, 0.20)
"""Shares of training devices; as many validate, up to a quarter."""
CONSTANTS: dict[tuple[Any, str], tuple[Any, ...]] = {
    (stages, "NOISE_SIGMAS"): (0.5, 1.0, 3.0, 6.0),
    (stages, "PROPAGATED_START"): ((0.4,) * 3, (0.7, 0.5, 0.4), (0.7,) * 3, (1.0,) * 3),
    (stages, "PREDICTED_SHARE"): (0.375, 0.5, 0.625, 0.75),
    (stages, "MORE_PROPAGATED"): (0, 1),
    (stages, "FEW_LABELS"): (3, 5, 8),
    (stages, "MANY_LABELS"): (250, 500, 1000, 2000),
    (stages, "FEW_VALIDATE"): (0, 400),
    (evidence, "DOUBT"): (0.0, 0.5, 1.0),
    (evidence, "SHOWN"): (-math.inf, 1.0, 1.5, 2.0, 3.0),
    (evidence, "MARGIN_SIGMAS"): (1.0, 2.0, 4.0),
    (encoder, "LONGEST"): (20_000.0, 40_000.0, 80_000.0),
}
"""By module and name: the values that are compared; the present one is among them."""


def generated(
    number: int, devices: tuple[int, int] = (1_500, 12_000), *, untold: bool = False
) -> lumos.Graph:
    """Return a graph whose parameters are drawn with its number.

    Args:
        untold: draw edges that are independent of classes.
    """
    drawn = np.random.default_rng(number)
    size = int(np.exp(drawn.uniform(*np.log(devices))))
    classes, degree, same = int(drawn.integers(3, 9)), drawn.uniform(4, 16), drawn.uniform(0.5, 0.9)
    vocabulary, telling = int(np.exp(drawn.uniform(*np.log((300, 4000))))), drawn.uniform(0.2, 0.6)
    most_words = int(drawn.integers(8, 30))
    labels = drawn.choice(classes, size, p=drawn.dirichlet(np.full(classes, 8.0)))
    weight = np.minimum((1 - drawn.random(size)) ** (-1 / 1.7), size**0.5)

    def ends(rows: np.ndarray, count: int) -> np.ndarray:
        return drawn.choice(rows, count, p=weight[rows] / weight[rows].sum())

    edges = np.stack([ends(np.arange(size), int(size * degree / 2)) for _ in range(2)], axis=1)
    inside = drawn.random(len(edges)) < (0 if untold else same)
    for label in range(classes):
        rows = np.flatnonzero(inside & (labels[edges[:, 0]] == label))
        edges[rows, 1] = ends(np.flatnonzero(labels == label), len(rows))
    holder = np.repeat(np.arange(size), drawn.integers(3, most_words + 1, size))
    topic, rank = vocabulary // classes, drawn.random(len(holder)) ** 2
    own = drawn.random(len(holder)) < telling
    word = np.where(own, labels[holder] * topic + rank * topic, rank * vocabulary).astype(np.int64)
    words = csr_array((np.ones(len(word), np.float32), (holder, word)), (size, vocabulary))
    words.data[:] = 1
    return lumos.Graph.from_edges(
        edges[edges[:, 0] != edges[:, 1]],
        devices=size,
        features=words,
        labels=labels,
        name=f"generated {number}",
    )


def scores(graphs: list[lumos.Graph]) -> np.ndarray:
    """Return [graphs, shares] the test accuracy of each run, in %."""
    rows = []
    for seed, graph in enumerate(graphs):
        splits = [(one, min(one, 0.25), 1 - one - min(one, 0.25)) for one in SHARES]
        runs = (lumos.train(graph, split=split, seed=seed, floor=False) for split in splits)
        rows.append([float(run.metrics["test_accuracy"]) for run in runs])
    return 100 * np.array(rows)


def told(differences: np.ndarray) -> tuple[float, float]:
    """Return the mean over graphs and shares, and its standard error over graphs."""
    of_graphs = differences.mean(axis=1)
    return float(of_graphs.mean()), float(of_graphs.std(ddof=1) / len(of_graphs) ** 0.5)


def choose(graphs: list[lumos.Graph], names: list[str]) -> None:
    """Print constants (some, or all), the differences of their values, and the choice."""
    present = scores(graphs)
    print(f"present constants: {present.mean():.2f} %, by share {present.mean(axis=0).round(1)}")
    for (module, name), values in CONSTANTS.items():
        if names and name not in names:
            continue
        now = choice = getattr(module, name)
        best, shown = 0.0, []
        for value in values:
            if value == now:
                continue
            with patch.object(module, name, value):
                mean, error = told(scores(graphs) - present)
            shown.append(f"{value}: {mean:+.2f} ± {error:.2f}")
            if mean > max(best, 2 * error):
                best, choice = mean, value
        print(f"{name}: present {now}; {', '.join(shown)}; choice {choice}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="constants; all by default")
    parser.add_argument("--first", type=int, default=0, help="number of the first graph")
    options = parser.parse_args()
    warnings.simplefilter("ignore", lumos.LumosWarning)
    first = options.first
    graphs = [generated(first + number) for number in range(GRAPHS)]
    graphs += [generated(first + 100 + number, (15_000, 30_000)) for number in range(LARGE)]
    graphs += [generated(first + number, (1_000, 5_000), untold=True) for number in range(UNTOLD)]
    choose(graphs, options.names)


if __name__ == "__main__":
    main()
