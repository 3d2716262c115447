"""Features of any scale, as they are and brought to one scale by noisy sums, in one run.

    python benchmarks/feature_scales.py [--devices 2000] [--seeds 3] [--across 0.2] [--out FILE]

Every graph has four classes and sixteen features that tell them apart. The features are then
spoilt, or left as they are (controls). Both sides are `lumos.train` at its defaults on the same
graph, split and labels: `scaling='none'`, as it was before, and `scaling='auto'`. The account of
the run is the same on both sides.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import lumos
from lumos.strict.features import Scaling

FEATURES, CLASSES = 16, 4
SIDES: dict[str, Scaling] = {"as they are": "none", "scaled": "auto"}
Rows = npt.NDArray[np.float64]
Spoil = Callable[[Rows, np.random.Generator], Rows]


def one_large(rows: Rows, randomness: np.random.Generator) -> Rows:
    """The first column is noise in the thousands."""
    return np.column_stack([3000 * randomness.standard_normal(len(rows)), rows[:, 1:]])


def offset(rows: Rows, _: np.random.Generator) -> Rows:
    """All columns are far from 0."""
    return rows + 20


def years(rows: Rows, _: np.random.Generator) -> Rows:
    """A quarter of the columns has the mean 2000 and a spread of 10."""
    return np.where(np.arange(FEATURES) % 4 == 0, 2000 + 10 * rows, rows)


def many_scales(rows: Rows, _: np.random.Generator) -> Rows:
    """Columns from thousandths to thousands."""
    scaled: Rows = rows * 10.0 ** (np.arange(FEATURES) % 7 - 3.0)
    return scaled


def as_they_are(rows: Rows, _: np.random.Generator) -> Rows:
    """Control: normal numbers around 0."""
    return rows


def bounded(rows: Rows, _: np.random.Generator) -> Rows:
    """Control: between -1 and 1, so that nothing is to be done."""
    within: Rows = np.tanh(rows)
    return within


KINDS: dict[str, Spoil] = {
    "one column in the thousands": one_large,
    "offset of 20": offset,
    "years in a quarter of the columns": years,
    "scales from 0.001 to 1000": many_scales,
    "control: normal, around 0, size 1": as_they_are,
    "control: between -1 and 1": bounded,
}


def communities(kind: str, devices: int, seed: int, across: float) -> lumos.Graph:
    """Features around the centre of a class, four neighbours in the mean.

    Args:
        kind: of `KINDS`.
        devices: number of devices.
        seed: of features, labels and edges.
        across: chance that an edge between classes is kept. With 0.2, five of eight edges are
            within a class, so neither features nor neighbours decide alone; with 0.037, nine of
            ten.
    """
    randomness = np.random.default_rng(seed)
    labels = randomness.integers(0, CLASSES, devices)
    ends = randomness.integers(0, devices, (20 * devices, 2))
    alike = labels[ends[:, 0]] == labels[ends[:, 1]]
    kept = (alike | (randomness.random(len(ends)) < across)) & (ends[:, 0] != ends[:, 1])
    edges = np.unique(np.sort(ends[kept], axis=1), axis=0)
    some = np.sort(randomness.permutation(len(edges))[: 2 * devices])
    centres = 0.7 * randomness.standard_normal((CLASSES, FEATURES))
    rows = centres[labels] + randomness.standard_normal((devices, FEATURES))
    features = KINDS[kind](rows, randomness).astype(np.float32)
    return lumos.Graph.from_edges(
        edges[some], devices=devices, features=features, labels=labels, name=kind
    )


def measure(devices: int, seeds: int, across: float) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By kind and side, for each seed: own and whole accuracy, the warnings, the guarantee."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for kind in KINDS:
        found[kind] = {side: [] for side in SIDES}
        for seed in range(seeds):
            graph = communities(kind, devices, seed, across)
            for side, scaling in SIDES.items():
                run = lumos.train(graph, seed=seed, scaling=scaling)
                own = run.own or {}
                found[kind][side].append(
                    {
                        "own": own["test_accuracy"],
                        "whole": run.metrics["test_accuracy"],
                        "warnings": run.model.warnings,
                        "features": run.guarantees[1]["training devices"],
                    }
                )
    return found


def table(found: dict[str, dict[str, list[dict[str, Any]]]]) -> Table:
    """Mean and standard deviation in %, and the mean of the paired gain in points."""
    names = [f"{variant}, {side}" for variant in ("own", "whole") for side in SIDES]
    drawn = Table("features", *names, "gain of own", "gain of the whole", title="test accuracy, %")
    for kind, sides in found.items():
        cells = []
        for variant in ("own", "whole"):
            for runs in sides.values():
                scores = 100 * np.array([run[variant] for run in runs])
                cells.append(f"{scores.mean():.1f} ± {_deviation(scores):.1f}")
        for variant in ("own", "whole"):
            before, after = (np.array([run[variant] for run in runs]) for runs in sides.values())
            cells.append(f"{100 * (after - before).mean():+.1f}")
        drawn.add_row(kind, *cells)
    return drawn


def _deviation(scores: Rows) -> float:
    return float(scores.std(ddof=1)) if len(scores) > 1 else 0.0


def main() -> None:
    """Print the table, the guarantee of every run, and what the runs warning about."""
    reader = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    reader.add_argument("--devices", type=int, default=2000)
    reader.add_argument("--seeds", type=int, default=3)
    reader.add_argument("--across", type=float, default=0.2, help="edges between classes kept")
    reader.add_argument("--out", type=Path, help="JSON with every run")
    chosen = reader.parse_args()
    found = measure(chosen.devices, chosen.seeds, chosen.across)
    screen = Console(width=150)
    screen.print(table(found))
    runs = [run for sides in found.values() for side in sides.values() for run in side]
    screen.print("features of a training device:", *sorted({run["features"] for run in runs}))
    for kind, sides in found.items():
        for side, made in sides.items():
            for warning in dict.fromkeys(one for run in made for one in run["warnings"]):
                screen.print(f"{kind}, {side}: {warning}", markup=False)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
