"""The choice of the constants of strict links that depend on the number of devices.

    python -m benchmarks.small_links            # numbers of random marks
    python -m benchmarks.small_links whitening  # exponents of whitening
    python -m benchmarks.small_links vectors    # one vector to calibrate, or three
    python -m benchmarks.small_links sketch     # weights of earlier rounds of random marks
    python -m benchmarks.small_links weight     # norms of the sketch beside tokens, in one vector

Graphs are generated, and have no part in docs/strict-results.md. Devices form small groups within
classes; edges lie in a group, in a class, or anywhere, and so do words. A share of the words tells
of interests that have nothing to do with edges.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_array

import lumos
from lumos.strict.link import encoder, levels, stages

GRAPHS = 6
SIZES = (1_500, 3_000, 6_000, 10_000, 20_000)
INTERESTS = (0.0, 0.3, 0.6)
"""Shares of words that tell nothing of edges."""


def generated(number: int, devices: int, interests: float = 0.0) -> lumos.Graph:
    """Return a graph whose other parameters are drawn with its number."""
    drawn = np.random.default_rng([number, 77])
    classes, degree = int(drawn.integers(3, 13)), drawn.uniform(4, 16)
    groups = max(classes, int(devices / np.exp(drawn.uniform(*np.log((8, 80))))))
    in_group = drawn.uniform(0, 0.6)
    in_class = drawn.uniform(0.3, 0.9) * (1 - in_group)
    of_group = np.concatenate([np.arange(classes), drawn.integers(0, classes, groups - classes)])
    group = drawn.choice(groups, devices, p=drawn.dirichlet(np.full(groups, 3.0)))
    labels = of_group[group]
    weight = np.minimum((1 - drawn.random(devices)) ** (-1 / 1.7), devices**0.5)

    def ends(rows: np.ndarray, count: int) -> np.ndarray:
        return drawn.choice(rows, count, p=weight[rows] / weight[rows].sum())

    edges = np.stack([ends(np.arange(devices), int(devices * degree / 2)) for _ in range(2)], 1)
    kind = drawn.choice(3, len(edges), p=[in_group, in_class, 1 - in_group - in_class])
    for place, member in enumerate((group, labels)):
        for one in np.unique(member):
            rows = np.flatnonzero((kind == place) & (member[edges[:, 0]] == one))
            if len(rows):
                edges[rows, 1] = ends(np.flatnonzero(member == one), len(rows))
    vocabulary = int(np.exp(drawn.uniform(*np.log((300, 4000)))))
    of_class, of_groups = drawn.uniform(0.1, 0.6), drawn.uniform(0, 0.4)
    most_words = int(drawn.integers(8, 30))
    holder = np.repeat(np.arange(devices), drawn.integers(3, most_words + 1, devices))
    chance, rank = drawn.random((2, len(holder)))
    rank, topic = rank**2, vocabulary // classes
    own_words = drawn.integers(0, vocabulary, (groups, 10))
    word = (rank * vocabulary).astype(np.int64)
    word = np.where(chance < of_class, labels[holder] * topic + (rank * topic).astype(int), word)
    drawn_word = own_words[group[holder], drawn.integers(0, 10, len(holder))]
    word = np.where(chance > 1 - of_groups, drawn_word, word)
    topics = int(drawn.integers(5, 30))
    interest = drawn.integers(0, topics, devices)[holder]
    other = vocabulary + 20 * interest + (20 * drawn.random(len(holder)) ** 2).astype(np.int64)
    word = np.where(drawn.random(len(holder)) < interests, other, word)
    shape = (devices, vocabulary + 20 * topics)
    words = csr_array((np.ones(len(word), np.float32), (holder, word)), shape)
    words.data[:] = 1
    return lumos.Graph.from_edges(
        edges[edges[:, 0] != edges[:, 1]], devices=devices, features=words, labels=labels
    )


@contextmanager
def compared(vectors: tuple[str, ...]) -> Iterator[None]:
    """Calibrate these vectors."""
    with patch.object(stages.LinkSchedule, "compared", vectors):
        yield


Variant = tuple[dict[str, Any], Callable[[], Any]]
VARIANTS: dict[str, dict[str, Variant]] = {
    "marks": {str(many): ({"random_marks": many}, nullcontext) for many in (24, 16, 32)},
    "whitening": {
        f"{power:g}": ({}, partial(patch.object, encoder, "FLATTEN", power))
        for power in (0.25, 0.0, 0.35, 0.5)
    },
    "vectors": {
        "one": ({}, lambda: compared((levels.BOTH,))),
        "three": ({}, lambda: compared(levels.WAYS)),
    },
    "weight": {
        f"{weight:g}": ({}, partial(patch.dict, levels.SKETCH_WEIGHT, {1: weight}))
        for weight in (0.7, 1.0, 1.5, 2.0)
    },
    "sketch": {
        f"{fade:g}": ({}, partial(patch.object, levels, "FADE", fade))
        for fade in (0.0, 0.25, 0.5, 1.0)
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question", nargs="?", default="marks", choices=VARIANTS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    variants = VARIANTS[options.question]
    print("devices, share of other words: ROC-AUC of", ", ".join(variants))
    for devices in options.sizes:
        for share in INTERESTS:
            rows = []
            for number in range(GRAPHS):
                graph = generated(number, devices, share)
                row = []
                for settings, patched in variants.values():
                    with patched():
                        run = lumos.train(graph, task="link", seed=number, floor=False, **settings)
                    row.append(run.metrics["test_auc"])
                rows.append(row)
            means = np.mean(rows, axis=0)
            apart: np.ndarray = np.array(rows) - np.array(rows)[:, :1]
            error = apart.std(axis=0, ddof=1) / GRAPHS**0.5
            told = ", ".join(
                f"{mean:.4f} ({more:+.4f} ± {of:.4f})"
                for mean, more, of in zip(means, apart.mean(axis=0), error, strict=True)
            )
            print(f"{devices:,}, {share:.0%}: {told}", flush=True)


if __name__ == "__main__":
    main()
