"""Blink (Zhu, Tan and Xiao 2023): links under local differential privacy, rebuilt by the server.

Each device flips every entry of its neighbour list with probability 1/(e^ε_a + 1) and adds Laplace
noise of scale 1/ε_d to its degree. The server fits a β-model to the noisy degrees,

    log p_uv / (1 - p_uv) = β_u + β_v,        Σ_v p_uv = degree of u,

and takes it as the prior of each pair. A reported 1 multiplies the odds by e^ε_a and a reported 0
by e^-ε_a, so the posterior log-odds after both ends' reports are

    β_u + β_v + 2 ε_a (ones - 1),             ones ∈ {0, 1, 2}.

**hard** keeps the pairs with p > 1/2. **hybrid** keeps the ⌊Σ p⌋ likeliest pairs, weighted by p.
Pairs are worked on one device at a time: nothing has n × n numbers.

An undirected edge is in two neighbour lists and in two degrees. For `edge_epsilon` per undirected
edge, present or not, each end may therefore spend half of it: ε_a + ε_d = `edge_epsilon` / 2.
"""

import dataclasses
import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import expit

from lumos.baselines.lpgnn import Lpgnn
from lumos.baselines.naive import drawn_flips, flip_probability
from lumos.baselines.network import Arcs, goal_of, server_rows
from lumos.baselines.systems import BaselineSettings, Received, ServerProblem, System
from lumos.training.problem import features_of
from lumos.typing import Doubles, Ints

DEGREE_SHARE = 0.1
"""Share of a device's ε that its degree takes (the paper's δ)."""
ITERATIONS = 1000
"""Steps of the fixed point of the β-model; the authors' 200 are too few for Facebook."""
BUFFER = 1 << 20
"""Pairs that wait, at least, before the likeliest of them are selected."""

Rows = Iterable[tuple[int, Doubles]]
"""For each device u but the last: u, and the log-odds [n - 1 - u] of its pairs with v > u."""


def shares(edge_epsilon: float) -> tuple[float, float]:
    """Return ε_a of the neighbour list and ε_d of the degree, of one end of an edge."""
    each = edge_epsilon / 2
    return (1 - DEGREE_SHARE) * each, DEGREE_SHARE * each


def noisy_degrees(degrees: Ints, epsilon: float, generator: np.random.Generator) -> Doubles:
    """Return [devices] degrees with Laplace noise, as whole numbers from 1 to n - 2.

    The MLE of the β-model exists only between these bounds. Rounding lets devices share β.
    """
    noisy = np.rint(degrees + generator.laplace(0.0, 1 / epsilon, len(degrees)))
    return np.clip(noisy, 1, max(1, len(degrees) - 2))


def prior(degrees: Doubles) -> Doubles:
    """Return [devices] β, by the fixed point of Chatterjee, Diaconis and Sly (2011).

    Devices of one degree have one β, so a step costs the square of the number of degrees.
    """
    distinct, place, counts = np.unique(degrees, return_inverse=True, return_counts=True)
    beta = np.zeros(len(distinct))
    for _ in range(ITERATIONS):
        table = 1 / (np.exp(beta)[:, None] + np.exp(-beta))
        beta = np.log(distinct) - np.log(table @ counts - table.diagonal())
    fitted: Doubles = beta[place]
    return fitted


def log_odds(edges: Ints, beta: Doubles, epsilon: float, generator: np.random.Generator) -> Rows:
    """Draw both ends' reports on every pair, and yield the posterior log-odds device by device.

    Args:
        edges: [edges, 2] pairs u < v, ascending.
        beta: [devices] the prior.
        epsilon: ε_a.
    """
    chance, starts = flip_probability(epsilon), np.searchsorted(edges[:, 0], np.arange(len(beta)))
    for u, (start, end) in enumerate(pairwise(starts)):
        neighbours = edges[start:end, 1] - u - 1
        odds = beta[u] + beta[u + 1 :] - 2 * epsilon
        for _ in range(2):
            report = np.zeros(len(odds), np.bool_)
            report[drawn_flips(len(odds), chance, generator)] = True
            report[neighbours] ^= True
            odds[report] += 2 * epsilon
        yield u, odds


def likely(rows: Rows) -> Ints:
    """Return [pairs, 2] the pairs that are more likely an edge than not."""
    found = [np.empty((0, 2), np.int64)]
    for u, odds in rows:
        v = np.flatnonzero(odds > 0) + u + 1
        found.append(np.stack([np.full_like(v, u), v], axis=1))
    return np.concatenate(found)


def likeliest(rows: Rows, count: int) -> tuple[Ints, Doubles]:
    """Return [count, 2] the likeliest pairs, and [count] their probabilities; ties are cut."""
    pairs, best, floor = np.empty((0, 2), np.int64), np.empty(0), -math.inf
    waiting: list[tuple[Ints, Doubles]] = []
    for u, odds in rows:
        v = np.flatnonzero(odds > floor)
        waiting.append((np.stack([np.full_like(v, u), v + u + 1], axis=1), odds[v]))
        if sum(len(part) for _, part in waiting) > BUFFER:
            pairs, best = _top([(pairs, best), *waiting], count)
            waiting, floor = [], best.min() if len(best) == count else floor
    pairs, best = _top([(pairs, best), *waiting], count)
    return pairs, expit(best)


def _top(parts: list[tuple[Ints, Doubles]], count: int) -> tuple[Ints, Doubles]:
    pairs, odds = (np.concatenate(part) for part in zip(*parts, strict=True))
    if len(odds) > count:
        kept = np.sort(np.argpartition(odds, -count)[-count:])
        pairs, odds = pairs[kept], odds[kept]
    return pairs, odds


def reconstructed(
    problem: ServerProblem, settings: BaselineSettings, variant: str
) -> tuple[Arcs, Ints, list[str]]:
    """Return the server's graph as an operator, its pairs [pairs, 2], and notes about both."""
    graph, public = problem.graph, problem.public
    edges = graph.edge_list()
    if math.isinf(settings.edge_epsilon):
        return Arcs.of(edges, graph.devices), edges, ["The server knows every edge exactly."]
    list_epsilon, degree_epsilon = shares(settings.edge_epsilon)
    degrees = noisy_degrees(
        np.diff(graph.offsets), degree_epsilon, public.generator("baseline/blink degrees")
    )
    beta = prior(degrees)

    def rows() -> Rows:
        return log_odds(edges, beta, list_epsilon, public.generator("baseline/blink reports"))

    if variant == "hard":
        pairs = likely(rows())
        arcs = Arcs.of(pairs, graph.devices)
    else:
        expected = sum(float(expit(odds).sum()) for _, odds in rows())
        pairs, chances = likeliest(rows(), max(1, int(expected)))
        arcs = Arcs.of(pairs, graph.devices, weights=chances.astype(np.float32))
    right = len(np.intersect1d(_keys(pairs, graph.devices), _keys(edges, graph.devices)))
    return (
        arcs,
        pairs,
        [
            f"Each end of an edge reports its neighbour list with ε = {list_epsilon:g} (randomized "
            f"response) and its degree with ε = {degree_epsilon:g} (Laplace): ε = "
            f"{settings.edge_epsilon:g} for one undirected edge, present or not.",
            f"The graph that the server rebuilds from these reports has {len(pairs):,} pairs: it "
            f"contains {100 * right / max(1, len(edges)):.1f} % of the {len(edges):,} edges, and "
            f"{100 * right / max(1, len(pairs)):.1f} % of its pairs are edges (observer's figure).",
        ],
    )


def _keys(pairs: Ints, devices: int) -> Ints:
    return pairs[:, 0] * devices + pairs[:, 1]


class Blink(System):
    """A graph network on edges that the server rebuilt; features and labels in the clear."""

    local = "own"
    without_links = (
        "blink cannot predict links: every device reports on all of its edges; centralized, own "
        "and naive can"
    )

    def defaults(self, given: BaselineSettings) -> dict[str, Any]:
        """Return the defaults of `centralized`; validation chooses between the variants."""
        one = given.backbone == "gat" or given.edge_epsilon == math.inf
        return {
            "backbone": "gcn",
            "edge_epsilon": 16.0,
            "variant": "hard" if one else "auto",
            "dropout": 0.5,
            "weight_decay": 5e-4,
            "normalise": False,
        }

    def protects(self, settings: BaselineSettings) -> str:
        """Name the ε of an edge; the server knows features and labels."""
        return (
            "label, features: none, the server knows them; one undirected edge: ε = "
            f"{settings.edge_epsilon:g}"
        )

    def receive(self, problem: ServerProblem, settings: BaselineSettings) -> Received:
        """Return exact features and labels, and the graph rebuilt from noisy reports."""
        graph = problem.graph
        arcs, pairs, notes = reconstructed(problem, settings, settings.variant)
        return Received(
            rows=server_rows(features_of(graph), unit=settings.normalise),
            arcs=arcs,
            goal=goal_of(problem, graph.labels, pairs),
            disclosed=[
                "The server holds all raw features and labels; only edges are protected from it.",
                *notes,
            ],
        )

    def attempts(self, settings: BaselineSettings) -> list[BaselineSettings]:
        """Return these settings, or one for each variant that `auto` stands for."""
        if settings.variant != "auto":
            return [settings]
        return [dataclasses.replace(settings, variant=name) for name in ("hard", "hybrid")]

    def chosen(self, attempts: list[BaselineSettings], best: int) -> list[str]:
        """Name the chosen variant, where there was a choice."""
        if len(attempts) == 1:
            return []
        return [
            "The variants hard and hybrid were trained on the same reports; validation accuracy "
            f"chose {attempts[best].variant}."
        ]


BLINK = Blink()


class LpgnnBlink(Lpgnn):
    """LPGNN on the edges that Blink's hard variant rebuilds: nothing is in the clear."""

    without_links = Blink.without_links.replace("blink", "lpgnn-blink", 1)

    def defaults(self, given: BaselineSettings) -> dict[str, Any]:
        """Return the defaults of `lpgnn`, and that of `blink` for edges."""
        return {**super().defaults(given), "edge_epsilon": 16.0}

    def protects(self, settings: BaselineSettings) -> str:
        """Name the ε of features, label and an edge."""
        return (
            f"label: ε = {settings.label_epsilon:g}; features: ε = {settings.feature_epsilon:g}; "
            f"one undirected edge: ε = {settings.edge_epsilon:g}; nobody is trusted"
        )

    def edges(self, problem: ServerProblem, settings: BaselineSettings) -> tuple[Arcs, list[str]]:
        """Return the graph that the server rebuilt, and notes about it."""
        if math.isinf(settings.edge_epsilon):
            return super().edges(problem, settings)
        arcs, _, notes = reconstructed(problem, settings, "hard")
        return arcs, ["No trusted server: edges, features and labels are noised.", *notes]


LPGNN_BLINK = LpgnnBlink()
