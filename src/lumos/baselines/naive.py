"""Naive FedGNN: noised features, noised neighbour lists, noisy labels; plain training on them.

Features get Gaussian noise, calibrated exactly (Balle and Wang 2018). Devices flip every entry of
their neighbour list above the diagonal with probability q = 1/(e^ε + 1), which is ε-LDP for one
entry. The n × n matrix is never built: the flipped pairs are drawn by the gaps between them
(geometric), exactly; the noisy graph is the symmetric difference of the flips and the edges.
"""

import math
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, issparse

from lumos.baselines.network import PAIRS, Arcs, goal_of, noisy_labels
from lumos.baselines.systems import BaselineSettings, Received, ServerProblem, System
from lumos.device.randomness import PublicRandomness
from lumos.errors import UsageError
from lumos.ldp.bounds import Features, unit_rows, within
from lumos.secagg.noise import mu_for
from lumos.training.problem import features_of
from lumos.typing import Floats, Ints


def sensitivity(low: float) -> float:
    """Return the largest distance of two vectors of norm at most 1: √2 if none is negative."""
    return math.sqrt(2) if low >= 0 else 2.0


def noisy_features(
    features: Features, settings: BaselineSettings, generator: np.random.Generator
) -> tuple[Features, float]:
    """Return unit rows with Gaussian noise, and its standard deviation Δ/μ(ε, δ)."""
    rows: Features = unit_rows(features)
    if math.isinf(settings.feature_epsilon):
        return rows, 0.0
    sigma = sensitivity(settings.low) / mu_for(settings.feature_epsilon, settings.delta)
    noisy: Floats = generator.standard_normal(rows.shape, np.float32)
    noisy *= np.float32(sigma)
    if issparse(rows):
        matrix = csr_array(rows)
        owner = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        noisy[owner, matrix.indices] += matrix.data
    else:
        noisy += rows
    return noisy, sigma


MAX_NOISY_EDGES = 200_000_000
"""Noisy edges that a server is asked to hold, at most; each takes about 16 bytes."""


def flip_probability(epsilon: float) -> float:
    """Return q = 1/(e^ε + 1)."""
    return math.exp(-epsilon) / (1 + math.exp(-epsilon))


def noisy_edges(edges: Ints, devices: int, epsilon: float, generator: np.random.Generator) -> Ints:
    """Return [noisy edges, 2] pairs u < v, ascending, in O(noisy edges) whatever n².

    Args:
        edges: [edges, 2] pairs u < v, ascending.
    """
    if math.isinf(epsilon):
        return edges
    possible, chance = devices * (devices - 1) // 2, flip_probability(epsilon)
    expected = possible * chance + len(edges) * (1 - 2 * chance)
    if expected > MAX_NOISY_EDGES:
        raise UsageError(
            f"`edge_epsilon={epsilon:g}` turns {len(edges):,} edges into about {expected:,.0f}; "
            f"this server holds at most {MAX_NOISY_EDGES:,}"
        )
    starts = _row_starts(devices)
    true = starts[edges[:, 0]] + edges[:, 1] - edges[:, 0] - 1
    flips = drawn_flips(possible, chance, generator)
    place = np.searchsorted(flips, true)
    inside = np.zeros(len(true), np.bool_)
    within = place < len(flips)
    inside[within] = flips[place[within]] == true[within]
    # A flipped edge is gone; an edge that was not flipped goes where it belongs.
    noisy = np.insert(flips, place[~inside], true[~inside])
    gone = np.searchsorted(noisy, true[inside])
    noisy = np.delete(noisy, gone)
    low = np.searchsorted(starts, noisy, side="right") - 1
    return np.stack([low, noisy - starts[low] + low + 1], axis=1)


def _row_starts(devices: int) -> Ints:
    """Return [devices] the number of the pair (u, u + 1), counting pairs u < v row by row."""
    u = np.arange(devices, dtype=np.int64)
    return u * (devices - 1) - u * (u - 1) // 2


def drawn_flips(possible: int, chance: float, generator: np.random.Generator) -> Ints:
    """Draw ascending numbers below `possible`, each with probability `chance`, independently."""
    parts: list[Ints] = []
    last = -1
    while last < possible:
        mean = (possible - last) * chance
        gaps = generator.geometric(chance, int(mean + 4 * math.sqrt(mean) + 16))
        part = last + np.cumsum(np.minimum(gaps, possible + 1))  # a larger gap says no more
        parts.append(part)
        last = int(part[-1])
    flips = np.concatenate(parts)
    return flips[: np.searchsorted(flips, possible)]


class Naive(System):
    """A graph network at a server that takes noised ego networks for true ones."""

    def defaults(self, given: BaselineSettings) -> dict[str, Any]:
        """Return defaults chosen on validation, seed 0, Facebook (docs/baselines.md)."""
        epsilon = 2.0 if given.feature_epsilon is None else given.feature_epsilon
        own: dict[str, Any] = {
            "backbone": "gcn",
            "feature_epsilon": epsilon,
            "edge_epsilon": epsilon,
            "low": 0.0,
            "high": 1.0,
            "delta": 1e-5,
            "edge_sample": 0,
        }
        if given.task != "link":
            own["label_epsilon"] = epsilon
        return own

    def protects(self, settings: BaselineSettings) -> str:
        """Name the ε of everything that leaves a device."""
        label = "not used"
        if settings.label_epsilon is not None:
            label = f"ε = {settings.label_epsilon:g}"
        return (
            f"label: {label}; features: ({settings.feature_epsilon:g}, {settings.delta:g}); one "
            f"undirected edge: ε = {settings.edge_epsilon:g}"
        )

    def receive(self, problem: ServerProblem, settings: BaselineSettings) -> Received:
        """Return a noised copy of every ego network, and noisy labels."""
        graph, public = problem.graph, problem.public
        features = features_of(graph)
        within(features, settings.low, settings.high)
        rows, sigma = noisy_features(features, settings, public.generator("baseline/features"))
        edges = noisy_edges(
            graph.edge_list(),
            graph.devices,
            settings.edge_epsilon,
            public.generator("baseline/edges"),
        )
        arcs, sampled = _sampled(edges, graph.devices, settings.edge_sample, public)
        labels = graph.labels
        if problem.split is None:
            labels = noisy_labels(
                np.asarray(graph.labels),
                graph.class_count,
                settings.label_epsilon,
                public.generator("baseline/labels"),
            )
        return Received(
            rows=rows,
            arcs=arcs,
            goal=goal_of(problem, labels, edges),
            disclosed=[*_disclosed(problem, settings, sigma, len(edges)), *sampled],
        )


NAIVE = Naive()


def _disclosed(
    problem: ServerProblem, settings: BaselineSettings, sigma: float, edges: int
) -> list[str]:
    true = problem.graph.edges
    total = settings.feature_epsilon + settings.edge_epsilon + (settings.label_epsilon or 0.0)
    parts = f"ε = {settings.feature_epsilon:g} for features (δ = {settings.delta:g}), "
    parts += f"{settings.edge_epsilon:g} for one undirected edge"
    if settings.label_epsilon is not None:
        parts += f", {settings.label_epsilon:g} for the label"
    notes = [
        f"The server holds a noised copy of every ego network: {edges:,} noisy edges stand for "
        f"{true:,} true ones.",
        f"{parts}: {total:g} in total.",
        "Features are divided by their Euclidean norm, so two devices differ by at most "
        f"{sensitivity(settings.low):.4g}; noise of standard deviation {sigma:.4g} is added to "
        "each (analytic Gaussian mechanism).",
    ]
    if problem.split is not None:
        notes.append(
            "The epoch is chosen on true validation edges, which the server of this system would "
            "not have; this favours it."
        )
        if edges > PAIRS:
            notes.append(f"Each epoch trains on {PAIRS:,} noisy edges drawn afresh.")
    return notes


def _sampled(
    edges: Ints, devices: int, sample: int, public: PublicRandomness
) -> tuple[Arcs, list[str]]:
    """Return all noisy edges, or a sample with weights that make up for the rest; and notes."""
    if not 0 < sample < len(edges):
        return Arcs.of(edges, devices), []
    kept = public.generator("baseline/edge sample").choice(len(edges), sample, replace=False)
    degrees = np.bincount(edges.ravel(), minlength=devices).astype(np.float32)
    weight = len(edges) / sample
    arcs = Arcs.of(edges[np.sort(kept)], devices, degrees=torch.from_numpy(degrees), weight=weight)
    note = (
        f"The network sees {sample:,} of {len(edges):,} noisy edges, drawn once, each with weight "
        f"{weight:.4g}, so that sums over neighbours are right on average."
    )
    return arcs, [note]
