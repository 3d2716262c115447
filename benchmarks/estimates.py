"""How far the accuracy that a run estimates privately is from its test accuracy, and why.

    python -m benchmarks.estimates                     # generated graphs
    python -m benchmarks.estimates demo lastfm         # these graphs, five seeds each

On graphs of `held_out.Drawn` (another battery) and of `few_labels.generated` with up to `LARGEST`
devices, half of the devices train, or few. A run's estimate less its test accuracy is the sum of

- noise: the noise of the sum of model selection, of which a chosen candidate has the better part;
- luck: what is subtracted for that (`lumos.strict.classify.evidence`);
- labels: labels are randomized, weights were fitted to them, and digits are not independent;
- devices: accuracy on the devices that evaluate less that on test devices;
- limits: an estimate lies between 0 and 100 %.

"Before" is the same without the two corrections of `lumos.strict.classify.evidence`: no luck, and
digits of wrong classes that are right by chance. Errors are standard errors over graphs. The last
columns are the mean standard error that runs state, and in how many of them the test accuracy is
within one and two of it.
"""

import argparse
import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from benchmarks.few_labels import SHARES, generated
from benchmarks.held_out import Drawn

import lumos
from lumos.graph.demo import words_for
from lumos.strict.classify import evidence, stages
from lumos.training.split import Role

BATTERY, NUMBERS, LARGEST, SMALLEST = 5151, 160, 6000, 600
EPSILONS, SEEDS = (2.0, 3.0, 4.0), 5
SOURCES = ("noise", "luck", "labels", "devices", "limits")
HOMOPHILOUS = ("heavy blocks", "geometric", "growing", "ring", "hubs", "generated")
UNRELATED = ("structureless", "untold")


class Measured(NamedTuple):
    """One run."""

    graph: str
    edges: str
    split: str
    epsilon: float
    validation: int
    classes: int
    digits: bool
    error: float
    """Standard error as the run states it."""
    excess: float
    """Estimate less test accuracy."""
    before: float
    """The same without corrections."""
    sources: tuple[float, ...]
    """Its parts, in the order of `SOURCES`."""


def measured(graph: lumos.Graph, name: str, edges: str, kind: str, **settings: Any) -> Measured:
    """Train on a graph, and compare the estimate with the truth."""
    found: dict[str, Any] = {}
    learn = stages.SelectionStage.learn

    def watched(self: Any, state: Any, total: np.ndarray, step: int) -> None:
        learn(self, state, total, step)
        schedule, choice, labels = self.schedule, state.selection.choice, np.asarray(graph.labels)
        exact = self.vectors(state).sum(axis=0)
        right = state.candidates()[choice].argmax(axis=1) == labels

        def accuracy(counts: np.ndarray) -> float:
            gain = counts[2 * choice - 1] - counts[2 * choice] if choice else 0.0
            return float(evidence._accuracy(counts[0] + gain, 0.0, schedule)[0])

        val, test = (right[state._roles == role].mean() for role in (Role.VALIDATION, Role.TEST))
        estimate, noisy, clean = state.selection.accuracy[0], accuracy(total), accuracy(exact)
        confined = state.selection.estimates()["selected_accuracy"]
        form = schedule.label_form
        chance = 0.0 if form.places == 1 else 1 / form.base
        before = (noisy ** (1 / form.places) - chance) / (1 - chance)
        parts = (noisy - clean, estimate - noisy, clean - val, val - test, confined - estimate)
        found.update(
            validation=schedule.validation,
            classes=schedule.classes,
            digits=schedule.label_form.places > 1,
            error=state.selection.accuracy[1],
            excess=float(confined - test),
            before=min(1.0, max(0.0, before)) - float(test),
            sources=tuple(float(part) for part in parts),
        )

    with patch.object(stages.SelectionStage, "learn", watched):
        lumos.train(graph, floor=False, **settings)
    return Measured(name, edges, kind, settings["label_epsilon"], **found)


def graphs() -> Iterator[tuple[str, str, lumos.Graph, float, int]]:
    """Return name, family, graph, a small share that trains, and a seed."""
    base = 100 * BATTERY
    for number in range(NUMBERS):
        drawn, share = Drawn(number, BATTERY), SHARES[number // 2 % 4]
        if drawn.size > LARGEST:
            continue
        yield f"drawn {number}", drawn.edges, drawn.graph(), drawn.splits["few"][0], number
        sizes = SMALLEST, LARGEST
        if number % 2 == 0:
            graph = generated(50_000 + base + number, sizes)
            yield f"generated {number}", "generated", graph, share, number
        if number % 4 == 1:
            graph = generated(60_000 + base + number, sizes, untold=True)
            yield f"untold {number}", "untold", graph, SHARES[number // 4 % 4], number


def of_generated() -> Iterator[Measured]:
    for name, edges, graph, share, seed in graphs():
        splits = {"half": (0.5, 0.25, 0.25), "few": (share, share, 1 - 2 * share)}
        for kind, split in splits.items():
            for epsilon in EPSILONS:
                settings = {"split": split, "label_epsilon": epsilon, "seed": seed}
                yield measured(graph, name, edges, kind, **settings)


def of_known(names: list[str]) -> Iterator[Measured]:
    for name in names:
        graph = lumos.load(name)
        if name == "lastfm":
            words = words_for(np.asarray(graph.labels), np.random.default_rng(0))
            graph = dataclasses.replace(graph, features=words)
        for epsilon in EPSILONS[:2]:
            for seed in range(SEEDS):
                kind = f"{name} {seed}"
                yield measured(graph, kind, name, "half", label_epsilon=epsilon, seed=seed)


def show(title: str, runs: list[Measured]) -> None:
    """Print one row, if it has enough runs."""
    if len({run.graph for run in runs}) < 3:
        return
    number = {name: place for place, name in enumerate(dict.fromkeys(run.graph for run in runs))}
    of_graph = np.array([number[run.graph] for run in runs])

    def mean(values: np.ndarray) -> str:
        means = np.bincount(of_graph, 100 * values) / np.bincount(of_graph)
        return f"{100 * values.mean():+.1f} ± {means.std(ddof=1) / len(means) ** 0.5:.1f}"

    excess = np.array([run.excess for run in runs])
    errors = np.array([run.error for run in runs])
    parts = [f"{100 * part:+.1f}" for part in np.mean([run.sources for run in runs], axis=0)]
    inside = [f"{100 * np.mean(np.abs(excess) < size * errors):.0f} %" for size in (1, 2)]
    before = mean(np.array([run.before for run in runs]))
    cells = [
        title,
        str(len(runs)),
        before,
        mean(excess),
        *parts,
        f"{100 * errors.mean():.1f}",
        *inside,
    ]
    print("|", " | ".join(cells), "|", flush=True)


def show_all(runs: list[Measured]) -> None:
    """Print all rows about generated graphs."""
    tests: dict[str, Callable[[Measured], bool]] = {
        "": lambda run: True,
        ", homophily": lambda run: run.edges in HOMOPHILOUS,
        ", other classes": lambda run: run.edges in ("heterophilous", "mixed classes"),
        ", edges without classes": lambda run: run.edges in UNRELATED,
        ", labels as digits": lambda run: run.digits,
    }
    for kind in ("half", "few"):
        for name, test in tests.items():
            for epsilon in EPSILONS:
                these = [run for run in runs if (run.split, run.epsilon) == (kind, epsilon)]
                show(f"{kind}, ε = {epsilon:g}{name}", list(filter(test, these)))
    of_runs: dict[str, tuple[int, ...]] = {
        "validation": (0, 100, 400, LARGEST),
        "classes": (2, 5, 11, 21),
    }
    for name, borders in of_runs.items():
        for low, high in itertools.pairwise(borders):
            these = [run for run in runs if low <= getattr(run, name) < high]
            show(f"{low} to {high - 1} {name}", these)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="graphs; generated ones by default")
    names = parser.parse_args().names
    warnings.simplefilter("ignore", lumos.LumosWarning)
    columns = [
        "",
        "runs",
        "before",
        "estimate less test",
        *SOURCES,
        "stated error",
        "within 1",
        "within 2",
    ]
    print("|", " | ".join(columns), "|", flush=True)
    print("|" + "---|" * len(columns))
    if not names:
        show_all(list(of_generated()))
        return
    runs = list(of_known(names))
    for name in names:
        for epsilon in EPSILONS[:2]:
            these = [run for run in runs if (run.edges, run.epsilon) == (name, epsilon)]
            show(f"{name}, ε = {epsilon:g}", these)


if __name__ == "__main__":
    main()
