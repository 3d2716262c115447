"""A graph of your own in three CSV files: edges, labels, features."""

import csv
from pathlib import Path

import numpy as np

import lumos

folder = Path("csv-example")
folder.mkdir(exist_ok=True)


def write(name: str, header: list[str], rows: list[list[object]]) -> None:
    """Write one table."""
    with (folder / name).open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


# Stands for your files: 600 shops of two kinds, with two numbers each.
randomness = np.random.default_rng(0)
kind = randomness.integers(0, 2, 600)
ends = randomness.integers(0, 600, (6000, 2))
alike = kind[ends[:, 0]] == kind[ends[:, 1]]
kept = ends[(ends[:, 0] != ends[:, 1]) & (alike | (randomness.random(6000) < 0.2))]
write("shops.csv", ["source", "target"], kept.tolist())
write(
    "shops.labels.csv",
    ["id", "label"],
    [[shop, ("bakery", "garage")[k]] for shop, k in enumerate(kind)],
)
numbers = kind[:, None] + randomness.normal(0, 1, (600, 2))
write(
    "shops.features.csv",
    ["id", "turnover", "area"],
    [[shop, *row] for shop, row in enumerate(numbers.round(3).tolist())],
)

graph = lumos.load(folder / "shops.csv")  # finds shops.labels.csv and shops.features.csv beside it
print(graph)
run = lumos.train(graph)
print(f"test accuracy {run.metrics['test_accuracy']:.3f}, alone {run.own['test_accuracy']:.3f}")
