"""Naive FedGNN: noised features, noised neighbour lists, noisy labels; plain training on them."""

from typing import Any

import numpy as np
import torch

from lumos.baselines.arcs import Arcs
from lumos.baselines.goals import PAIRS, goal_of
from lumos.baselines.label_noise import noisy_labels
from lumos.baselines.noisy_features import noisy_features, sensitivity
from lumos.baselines.noisy_graph import noisy_edges
from lumos.baselines.settings import BaselineSettings
from lumos.baselines.systems.system import Received, ServerProblem, System
from lumos.device.coins import PublicCoins
from lumos.encode.bounds import within
from lumos.training.problem import features_of
from lumos.typing import Ints


class Naive(System):
    """A graph network at a server that takes noised ego networks for true ones."""

    def defaults(self, given: BaselineSettings) -> dict[str, Any]:
        """Chosen on validation, seed 0, Facebook (docs/baselines.md)."""
        own: dict[str, Any] = {
            "backbone": "gcn",
            "epsilon": 2.0,
            "low": 0.0,
            "high": 1.0,
            "delta": 1e-5,
            "edge_sample": 0,
        }
        if given.task != "link":
            own["label_epsilon"] = given.epsilon if given.epsilon is not None else 2.0
        return own

    def protects(self, settings: BaselineSettings) -> str:
        """Everything that leaves a device, each with its own ε."""
        label = "not used"
        if settings.label_epsilon is not None:
            label = f"ε = {settings.label_epsilon:g}"
        return (
            f"label: {label}; features: ({settings.epsilon:g}, {settings.delta:g}); one entry of a "
            f"neighbour list: ε = {settings.epsilon:g}"
        )

    def receive(self, problem: ServerProblem, settings: BaselineSettings) -> Received:
        """A noised copy of every ego network, and noisy labels."""
        graph, public, epsilon = problem.graph, problem.public, settings.epsilon
        features = features_of(graph)
        within(features, settings.low, settings.high)
        rows, sigma = noisy_features(features, settings, public.generator("baseline/features"))
        edges = noisy_edges(
            graph.edge_list(), graph.devices, epsilon, public.generator("baseline/edges")
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
    epsilon, true = settings.epsilon, problem.graph.edges
    total = 2 * epsilon + (settings.label_epsilon or 0.0)
    parts = f"ε = {epsilon:g} each for features (δ = {settings.delta:g}) and for one entry of the "
    parts += "neighbour list"
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


def _sampled(edges: Ints, devices: int, sample: int, public: PublicCoins) -> tuple[Arcs, list[str]]:
    """All noisy edges, or a sample of them with weights that make up for the rest."""
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
