"""Choices of strict, checked on generated graphs that had no part in any of them.

    python -m benchmarks.held_out now                             # the present version, and others
    python -m benchmarks.held_out now --again                     # stored graphs that now differ
    python -m benchmarks.held_out links                           # links alone; or with --again
    PYTHONPATH=OLD/src:. python -m benchmarks.held_out before     # OLD: a checkout of ece93186
    python -m benchmarks.held_out now --number 0                  # another battery; nothing is kept
    python -m benchmarks.held_out local --number 201              # few labels; nothing is kept

The definition of the battery, its NUMBER included, was committed before anything was run on it.
Later, with the first 14 graphs computed, alternatives were left out on graphs from `LARGE` devices
on, because of the time that they take.
Its families of edges and of features occur in no other benchmark. A choice that is changed because
of a result has used the battery up: it needs another NUMBER. Graphs from `MORE` on are
heterophilous or structureless; only strict, its local model and its control run on them.

Links were learnt from products of tokens when the battery was defined. The present way was chosen
on batteries of other numbers; "products of tokens" has the scores of the former one.

`local` compares strict where labels are few with a local model of labelled devices alone, which is
another run with the same graph, split and seed. `now` has the local model of the run itself: where
all devices take part, they train it.

Differences are paired: graph, split and seed are the same. Results are in
docs/results/held-out.json, and `python -m reproduce --write-docs` writes docs/strict-results.md
from them.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.spatial import cKDTree

import lumos

PATH = Path("docs/results/held-out.json")
NUMBER = 875_095_242
"""Drawn from the operating system; never used before."""
EDGES = ("heavy blocks", "mixed classes", "heterophilous", "geometric", "growing", "ring", "hubs",
         "structureless")  # fmt: skip
FEATURES = ("sparse words", "dense binary", "Gaussian", "one-hot", "mixed features")
GRAPHS = len(EDGES) * len(FEATURES)
"""Every family of edges with every family of features."""
MORE, NUM_MORE = 1000, 30
"""Number of the first graph that is heterophilous or structureless, and of all of these."""
SIZES, CLASSES = (800, 20_000), (2, 20)
LARGE = 10_000
"""Number of devices from which on few alternatives run."""
LOCAL_GRAPHS, LOCAL_DEVICES = 180, 4000
"""Numbers of graphs that `local` goes through, and the most devices that one of them may have."""
FEW = (0.02, 0.15)
"""Share of training devices where they are few; as many validate. Elsewhere half of the devices
train, and a quarter validates."""


def families(number: int) -> tuple[str, str]:
    """Return the families of edges and of features of a graph."""
    if number >= MORE:
        return ("heterophilous", "mixed classes", "structureless")[number % 3], FEATURES[number % 5]
    return EDGES[number % len(EDGES)], FEATURES[number // len(EDGES) % len(FEATURES)]


class Drawn:
    """Everything drawn for one graph.

    Args:
        number: of the graph.
        battery: number of the battery.
    """

    def __init__(self, number: int, battery: int = NUMBER) -> None:
        self.edges, self.features = families(number)
        self.seed = number
        self.rng = rng = np.random.default_rng([battery, number])
        self.size = int(np.exp(rng.uniform(*np.log(SIZES))))
        self.classes = round(float(np.exp(rng.uniform(*np.log(CLASSES)))))
        share = float(np.exp(rng.uniform(*np.log(FEW))))
        self.splits = {"half": (0.5, 0.25, 0.25), "few": (share, share, 1 - 2 * share)}
        self.label_epsilon = float(rng.choice([2.0, 3.0, 4.0]))

    def graph(self) -> lumos.Graph:
        """Return the graph."""
        edges, labels = self._edges_and_labels()
        edges, labels = edges[edges[:, 0] != edges[:, 1]], np.unique(labels, return_inverse=True)[1]
        features = self._features(labels).astype(np.float32)
        return lumos.Graph.from_edges(edges, devices=self.size, features=features, labels=labels)

    def _edges_and_labels(self) -> tuple[np.ndarray, np.ndarray]:
        rng, size = self.rng, self.size
        degree = rng.uniform(3, 14)
        labels = rng.choice(self.classes, size, p=rng.dirichlet(np.full(self.classes, 3.0)))
        labels[: self.classes] = np.arange(self.classes)
        if self.edges == "geometric":
            return self._geometric(degree)
        if self.edges == "ring":
            return self._ring(degree)
        if self.edges == "growing":
            return self._growing(labels, 1 + int(degree / 4)), labels
        if self.edges == "hubs":
            return self._hubs(labels)
        every, same = np.eye(self.classes), rng.uniform(0.5, 0.95)
        even = np.full_like(every, 1 / self.classes)
        if self.edges == "heavy blocks":
            mixing = same * every + (1 - same) * even
        elif self.edges == "heterophilous":
            mixing = same * np.roll(every, 1, axis=1) + (1 - same) * even
        elif self.edges == "mixed classes":  # some classes keep to themselves, others to another
            towards = np.where(rng.random(self.classes) < 0.5, np.arange(self.classes),
                               rng.permutation(self.classes))  # fmt: skip
            mixing = same * every[towards] + (1 - same) * even
        else:
            mixing = even
        return self._blocks(labels, mixing, degree), labels

    def _blocks(self, labels: np.ndarray, mixing: np.ndarray, degree: float) -> np.ndarray:
        """Return edges of blocks with degrees that differ: Pareto, with an exponent near 1."""
        rng, size = self.rng, self.size
        weight = np.minimum((1 - rng.random(size)) ** (-1 / rng.uniform(1.1, 1.6)), size / 20)
        first = rng.choice(size, int(size * degree / 2), p=weight / weight.sum())
        chances = mixing[labels[first]].cumsum(axis=1)
        towards = (rng.random((len(first), 1)) > chances).sum(axis=1).clip(0, self.classes - 1)
        second = np.empty_like(first)
        for label in range(self.classes):
            rows, members = np.flatnonzero(towards == label), np.flatnonzero(labels == label)
            chance = weight[members] / weight[members].sum()
            second[rows] = rng.choice(members, len(rows), p=chance)
        return np.stack([first, second], axis=1)

    def _geometric(self, degree: float) -> tuple[np.ndarray, np.ndarray]:
        """Return edges between near points of a square, and classes of its districts."""
        rng = self.rng
        place = rng.random((self.size, 2))
        centres = rng.random((self.classes * int(rng.integers(1, 5)), 2))
        labels = np.asarray(cKDTree(centres).query(place)[1]) % self.classes
        radius = float(np.sqrt(degree / np.pi / self.size))
        return cKDTree(place).query_pairs(radius, output_type="ndarray"), labels

    def _ring(self, degree: float) -> tuple[np.ndarray, np.ndarray]:
        """Return a ring with shortcuts, and classes of its arcs."""
        rng, every = self.rng, np.arange(self.size)
        arcs = np.sort(rng.integers(0, self.size, self.classes * int(rng.integers(1, 9))))
        labels = np.searchsorted(arcs, every) % self.classes
        steps = 1 + np.arange(max(1, int(degree / 2)))
        edges = np.stack([np.repeat(every, len(steps)), np.tile(steps, self.size)], axis=1)
        edges[:, 1] = (edges[:, 0] + edges[:, 1]) % self.size
        shortcut = rng.random(len(edges)) < rng.uniform(0.05, 0.5)
        edges[shortcut, 1] = rng.integers(0, self.size, int(shortcut.sum()))
        return edges, labels

    def _growing(self, labels: np.ndarray, links: int) -> np.ndarray:
        """Return edges of devices that come one by one, and choose earlier ones.

        A device copies the end of an earlier edge, again if its class is another one.
        """
        rng, patience = self.rng, int(self.rng.integers(1, 6))
        ends = [0, 1]
        edges = [(0, 1)]
        for device in range(2, self.size):
            for _ in range(links):
                for chosen in rng.integers(0, len(ends), patience):
                    if labels[ends[chosen]] == labels[device]:
                        break
                edges.append((device, ends[chosen]))
                ends += edges[-1]
        return np.array(edges)

    def _hubs(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return stars whose leaves mostly have the class of their hub; some have no hub."""
        rng, size = self.rng, self.size
        hubs = max(self.classes, size // int(rng.integers(10, 40)))
        leaves = np.flatnonzero(rng.random(size) < 0.9)
        leaves = leaves[leaves >= hubs]
        hub = rng.integers(0, hubs, len(leaves))
        labels = labels.copy()
        copies = rng.random(len(leaves)) < rng.uniform(0.4, 0.9)
        labels[leaves[copies]] = labels[hub[copies]]
        second = leaves[rng.random(len(leaves)) < 0.2]
        between = rng.integers(0, hubs, (2 * hubs, 2))
        extra = np.stack([second, rng.integers(0, hubs, len(second))], axis=1)
        return np.concatenate([np.stack([leaves, hub], axis=1), extra, between]), labels

    def _features(self, labels: np.ndarray) -> np.ndarray:
        if self.features == "mixed features":
            return np.concatenate([self._gaussian(labels, 30), self._one_hot(labels),
                                   self._sparse(labels, 200)], axis=1)  # fmt: skip
        if self.features == "sparse words":
            return self._sparse(labels, int(np.exp(self.rng.uniform(*np.log((200, 3000))))))
        if self.features == "dense binary":
            return self._binary(labels)
        if self.features == "Gaussian":
            return self._gaussian(labels, int(self.rng.integers(10, 200)))
        return self._one_hot(labels)

    def _sparse(self, labels: np.ndarray, width: int) -> np.ndarray:
        """Return words with a skewed frequency that classes change."""
        rng = self.rng
        usual = 1 / (5 + np.arange(width)) ** rng.uniform(0.6, 1.1)
        chances = usual * np.exp(rng.uniform(0.4, 1.2) * rng.standard_normal((self.classes, width)))
        chances *= rng.uniform(5, 30) / chances.sum(axis=1, keepdims=True)
        found = np.empty((self.size, width), np.bool_)
        for label in range(self.classes):
            rows = np.flatnonzero(labels == label)
            found[rows] = rng.random((len(rows), width)) < chances[label]
        return found

    def _binary(self, labels: np.ndarray) -> np.ndarray:
        """Return answers to questions with yes or no, most of which many affirm."""
        rng = self.rng
        width = int(rng.integers(50, 400))
        odds = np.exp(rng.uniform(-0.5, 1.0) + 0.7 * rng.standard_normal(width))
        odds = odds * np.exp(rng.uniform(0.1, 0.6) * rng.standard_normal((self.classes, width)))
        return rng.random((self.size, width)) < (odds / (1 + odds))[labels]

    def _gaussian(self, labels: np.ndarray, width: int) -> np.ndarray:
        """Return measurements in units of their own."""
        rng = self.rng
        means = rng.uniform(0.1, 0.5) * rng.standard_normal((self.classes, width))
        units = np.exp(rng.uniform(0, 1.0) * rng.standard_normal(width))
        return (means[labels] + rng.standard_normal((self.size, width))) * units

    def _one_hot(self, labels: np.ndarray) -> np.ndarray:
        """Return columns of categories, one 1 in each."""
        rng = self.rng
        columns = []
        for values in rng.integers(3, 25, int(rng.integers(4, 15))):
            chances = rng.dirichlet(np.full(values, rng.uniform(0.5, 5.0)), self.classes)
            below = rng.random((self.size, 1)) > chances.cumsum(axis=1)[labels]
            columns.append(np.eye(values)[below.sum(axis=1).clip(0, values - 1)])
        return np.concatenate(columns, axis=1)


Variant = tuple[dict[str, Any], Callable[[ExitStack], None]]


def _patched(target: Any, name: str, value: Any) -> Callable[[ExitStack], None]:
    def enter(stack: ExitStack) -> None:
        stack.enter_context(patch.object(target, name, value))

    return enter


def _nothing(stack: ExitStack) -> None:
    """Patch nothing."""


def classify_variants() -> dict[str, Variant]:
    """Return the alternatives to each choice in classification."""
    from lumos.strict.classify import encoder, evidence, stages

    schedule = stages.ClassifySchedule
    whole = lambda total, noise, expected=0.0: np.maximum(total, 1.0)  # noqa: E731
    simple = lambda *given: evidence.SimpleMatrix.of(*given).matrix  # noqa: E731
    no_value = property(lambda self: self._class_mechanism)
    return {
        "a class drawn at random in place of no class":
            ({}, _patched(schedule, "propagated_label_mechanism", no_value)),
        "only labelled devices take part": ({"participation": "labelled"}, _nothing),
        "all devices take part": ({"participation": "all"}, _nothing),
        "one propagated label": ({"propagated_labels": 1}, _nothing),
        "two propagated labels": ({"propagated_labels": 2}, _nothing),
        "no further propagated label where labels are few":
            ({}, _patched(stages, "MORE_PROPAGATED", 0)),
        "whole matrices": ({}, _patched(stages, "shrunk_matrix", whole)),
        "matrices of one parameter": ({}, _patched(stages, "shrunk_matrix", simple)),
        "all evidence weights begin with 1": ({}, _patched(stages, "PROPAGATED_START", (1.0,) * 3)),
        "steps of evidence weights whatever the noise": ({}, _patched(stages, "NOISE_SIGMAS", 0.0)),
        "no larger share of few validation devices": ({}, _patched(stages, "FEW_VALIDATE", 0)),
        "gradients with their part along the mean row":
            ({}, _patched(encoder.Encoder, "_without_mean", lambda self, gradient: gradient)),
    }  # fmt: skip


def link_variants() -> dict[str, Variant]:
    """Return the alternatives to each choice in link prediction."""
    from lumos.strict.link import encoder, levels, stages

    schedule = stages.LinkSchedule
    weight = patch.dict(levels.SKETCH_WEIGHT, {1: 0.7})
    return {
        "16 random marks": ({"random_marks": 16}, _nothing),
        "24 random marks": ({"random_marks": 24}, _nothing),
        "32 random marks": ({"random_marks": 32}, _nothing),
        "no whitening": ({}, _patched(encoder, "FLATTEN", 0.0)),
        "three vectors to calibrate": ({}, _patched(schedule, "compared", levels.WAYS)),
        "one vector to calibrate": ({}, _patched(schedule, "compared", (levels.BOTH,))),
        "sketch of the last round": ({}, _patched(levels, "FADE", 0.0)),
        "sketch of all rounds alike": ({}, _patched(levels, "FADE", 1.0)),
        "norm 0.7 of the sketch": ({}, lambda stack: stack.enter_context(weight)),
        "1.5 standard errors for one vector": ({}, _patched(levels, "SURE", {1: 1.5, 3: 1.5})),
        "sums without noise": ({"protect": "none"}, _nothing),
    }


FOR_LARGE = ("24 random marks", "one vector to calibrate")


def run_of(drawn: Drawn, graph: lumos.Graph, **settings: Any) -> lumos.Run:
    """Train strict on a graph."""
    return lumos.train(graph, seed=drawn.seed, **settings)


def classified(run: lumos.Run) -> dict[str, float]:
    """Return test accuracies, in %, of a run, its local model and its control."""
    parts = {"strict": run.metrics, "local": run.own, "control": run.control}
    return {
        name: round(100 * float(scores["test_accuracy"]), 3)
        for name, scores in parts.items()
        if scores is not None
    }


def cell(
    drawn: Drawn, graph: lumos.Graph, version: str, split: str, stored: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the scores of all variants on one graph and split; `stored` where they are the same.

    They are taken to be the same if those of the present version are.
    """
    settings = {"split": drawn.splits[split], "label_epsilon": drawn.label_epsilon}
    found: dict[str, Any] = {
        version: classified(run_of(drawn, graph, **settings, control=True, floor=True))
    }
    if stored is not None and found[version] == stored.get(version):
        return stored
    if version == "now" and drawn.seed < MORE and drawn.size < LARGE:
        for name, (more, enter) in classify_variants().items():
            with ExitStack() as stack:
                enter(stack)
                run = run_of(drawn, graph, **settings, **more, floor=False)
            found[name] = classified(run)
    return found


def link_cell(drawn: Drawn, graph: lumos.Graph, version: str) -> dict[str, Any]:
    """Return the AUC, in hundredths, of all variants on one graph."""

    def scores(run: lumos.Run) -> dict[str, float]:
        parts = {"strict": run.metrics, "degree": run.own}
        return {
            name: round(100 * float(part["test_auc"]), 3)
            for name, part in parts.items()
            if part is not None
        }

    found: dict[str, Any] = {version: scores(run_of(drawn, graph, task="link"))}
    if version == "now":
        for name, (more, enter) in link_variants().items():
            if drawn.size >= LARGE and name not in FOR_LARGE:
                continue
            with ExitStack() as stack:
                enter(stack)
                found[name] = scores(run_of(drawn, graph, task="link", **more))
    return found


def compare_local(number: int) -> None:
    """Print strict, by test and whatever agreement shows, less the local model of labelled devices.

    On graphs of `LOCAL_DEVICES` at most that are heterophilous or structureless, and where all
    devices take part; four seeds each.
    """
    from lumos.strict.classify import evidence

    of: dict[str, list[np.ndarray]] = {}
    for one in range(MORE, MORE + LOCAL_GRAPHS):
        drawn = Drawn(one, number)
        if drawn.edges == "mixed classes" or drawn.size > LOCAL_DEVICES:
            continue
        graph, found = drawn.graph(), []
        settings = {"split": drawn.splits["few"], "label_epsilon": drawn.label_epsilon}
        for drawn.seed in range(one, one + 4 * 7919, 7919):
            run = run_of(drawn, graph, **settings)
            if not run.model.kept["predicted_labels"].shape[1]:  # labels are not few
                break
            alone = classified(run_of(drawn, graph, **settings, participation="labelled"))
            with patch.object(evidence, "SHOWN", -np.inf):
                before = classified(run_of(drawn, graph, **settings))
            now = classified(run)
            found.append((before["strict"] - alone["local"], now["strict"] - alone["local"]))
        if found:
            of.setdefault(drawn.edges, []).append(np.array(found))
    for edges, graphs in of.items():
        for place, name in enumerate(("whatever agreement shows", "now")):
            runs = np.stack(graphs)[:, :, place]
            means = runs.mean(axis=1)
            error = means.std(ddof=1) / len(means) ** 0.5
            print(f"{edges}, {len(means)} graphs, {name}: {means.mean():+.2f} ± {error:.2f}; of "
                  f"{runs.size} runs {(runs < -5).sum()} more than 5 points below, "
                  f"{(runs > 5).sum()} above")  # fmt: skip


@contextmanager
def kept(number: int) -> Iterator[dict[str, Any]]:
    """Read results, and write them unless they are of another battery."""
    found = json.loads(PATH.read_text("utf-8")) if PATH.is_file() and number == NUMBER else {}
    found.setdefault("number", number)
    found.setdefault("graphs", {})
    yield found
    if number == NUMBER:
        PATH.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", choices=["now", "links", "before", "local"])
    parser.add_argument("--number", type=int, default=NUMBER, help="of the battery")
    parser.add_argument("--graphs", type=int, default=GRAPHS, help="only the first ones")
    parser.add_argument(
        "--again", action="store_true", help="stored graphs: links, or what now differs of the rest"
    )
    options = parser.parse_args()
    version, number = options.version, options.number
    warnings.simplefilter("ignore")
    if version == "local":
        compare_local(number)
        return
    more = range(MORE, MORE + NUM_MORE) if options.graphs == GRAPHS else range(0)
    for one in (*range(options.graphs), *more):
        drawn = Drawn(one, number)
        if version == "links" and one >= MORE:
            continue
        with kept(number) as found:
            here = found["graphs"].setdefault(
                str(one),
                {
                    "edges": drawn.edges,
                    "features": drawn.features,
                    "devices": drawn.size,
                    "classes": drawn.classes,
                    "label_epsilon": drawn.label_epsilon,
                    "few": drawn.splits["few"][0],
                    "scores": {},
                },
            )
            links = here["scores"].setdefault("links", {}) if one < MORE else {}
            done = links if version == "links" else here["scores"].get("few", {})
            as_now = "now" if version == "links" else version
            if (as_now in done) != options.again:
                continue  # an interrupted command continues
            graph = drawn.graph()
            if options.again and version == "links":
                links.update(link_cell(drawn, graph, as_now))
                print(one, drawn.edges, drawn.features, drawn.size, links["now"], flush=True)
                continue
            if options.again:
                for split in drawn.splits:
                    stored = here["scores"][split]
                    fresh = cell(drawn, graph, version, split, stored)
                    stored.update(fresh)
                    if fresh is not stored:
                        print(one, drawn.edges, drawn.features, drawn.size, split, "differs",
                              fresh[version], flush=True)  # fmt: skip
                continue
            if one < MORE and as_now not in links:
                links.update(link_cell(drawn, graph, as_now))
            if version == "links":
                print(one, drawn.edges, drawn.features, drawn.size, links, flush=True)
                continue
            for split in drawn.splits:
                here["scores"].setdefault(split, {}).update(cell(drawn, graph, version, split))
            print(one, drawn.edges, drawn.features, drawn.size, here["scores"]["few"][version],
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
