"""A server that holds everything, devices without neighbours, and a trusted curator.

**GAP** with edge privacy (Sajadmanesh et al. 2023): the curator adds noise to neighbour sums.

A perceptron on each device's own features makes an embedding of norm 1, Z_0. Each of K hops sums
the neighbours' rows, adds Gaussian noise and divides by the norm:

    Z_k = rows of norm 1 of (A Z_(k-1) + σ N(0, 1)).

A second perceptron predicts from Z_0 … Z_K side by side; it sees edges through these sums alone.

**Account.** An undirected edge, present or not, changes two rows of A Z by a vector of norm at most
1 each: the sensitivity of a hop is √2. K Gaussian mechanisms with μ = √2/σ compose to μ √K, so
σ = √(2K)/μ(ε, δ). The authors count one direction of an edge, with sensitivity 1.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from lumos.baselines.measure import fit
from lumos.baselines.network import Arcs, goal_of, server_rows
from lumos.baselines.systems import BaselineSettings, Received, ServerProblem, System
from lumos.device.randomness import PublicRandomness
from lumos.secagg.noise import mu_for
from lumos.training.problem import features_of


class Centralized(System):
    """A graph network at a server that holds everything."""

    local = "own"

    def defaults(self, given: BaselineSettings) -> dict[str, Any]:
        """Return defaults chosen on validation, seed 0, Facebook (docs/baselines.md)."""
        link = given.task == "link"
        return {
            "backbone": "gcn",
            "dropout": 0.0 if link else 0.5,
            "weight_decay": 0.0 if link else 5e-4,
            "normalise": False,
        }

    def protects(self, settings: BaselineSettings) -> str:
        """Say that nothing is protected."""
        return "nothing: one server holds all features, labels and edges"

    def receive(self, problem: ServerProblem, settings: BaselineSettings) -> Received:
        """Return all of it, in the clear."""
        graph = problem.graph
        edges = graph.edge_list()
        return Received(
            rows=server_rows(features_of(graph), unit=settings.normalise),
            arcs=Arcs.of(edges, graph.devices),
            goal=goal_of(problem, graph.labels, edges),
            disclosed=["One server holds all raw features, labels and edges; nothing is private."],
        )


CENTRALIZED = Centralized()


class Own(System):
    """A perceptron that all devices share, trained without noise; it has no backbone."""

    def defaults(self, given: BaselineSettings) -> dict[str, Any]:
        """Return defaults chosen on validation, seed 0, Facebook (docs/baselines.md)."""
        link = given.task == "link"
        return {"dropout": 0.0 if link else 0.5, "normalise": not link}

    def protects(self, settings: BaselineSettings) -> str:
        """Say that nothing is protected, and for classify that no edge is used."""
        edges = "edges are the targets" if settings.task == "link" else "edges: not used"
        return f"no guarantee: weights are trained without noise; {edges}"

    def receive(self, problem: ServerProblem, settings: BaselineSettings) -> Received:
        """Return raw features and no edge; for link, training edges are targets."""
        graph = problem.graph
        edges = graph.edge_list()
        return Received(
            rows=server_rows(features_of(graph), unit=settings.normalise),
            arcs=Arcs.of(edges[:0], graph.devices),
            goal=goal_of(problem, graph.labels, edges),
            disclosed=[
                "Each device predicts from its own raw features; no neighbour tells it anything, "
                "and the shared weights are trained without noise."
            ],
        )


OWN = Own()


def noise_scale(edge_epsilon: float, delta: float, hops: int) -> float:
    """Return σ, with which `hops` sums are (ε, δ)-private for one undirected edge."""
    if math.isinf(edge_epsilon):
        return 0.0
    return math.sqrt(2 * hops) / mu_for(edge_epsilon, delta)


def noisy_hops(
    rows: Tensor, arcs: Arcs, hops: int, sigma: float, public: PublicRandomness
) -> list[Tensor]:
    """Return Z_0 … Z_K, each [devices, width].

    Args:
        rows: [devices, width] embeddings of any norm.
    """
    found = [normalize(rows)]
    for hop in range(hops):
        noise = public.generator("baseline/gap", hop).standard_normal(rows.shape, np.float32)
        found.append(normalize(arcs.sum(found[-1]) + sigma * torch.from_numpy(noise)))
    return found


class Gap(System):
    """Two perceptrons, and noisy sums over true neighbours between them."""

    local = "own"
    without_links = (
        "gap cannot predict links: its curator knows every edge; centralized, own and naive can"
    )

    def defaults(self, given: BaselineSettings) -> dict[str, Any]:
        """Return the training of `own`, and two hops."""
        return {"edge_epsilon": 16.0, "delta": 1e-5, "steps": 2, "dropout": 0.5, "normalise": True}

    def protects(self, settings: BaselineSettings) -> str:
        """Name the (ε, δ) of an edge; a trusted curator knows everything."""
        return (
            "label, features: none; one undirected edge: "
            f"({settings.edge_epsilon:g}, {settings.delta:g}) in what a trusted curator releases"
        )

    def receive(self, problem: ServerProblem, settings: BaselineSettings) -> Received:
        """Train the encoder without edges, and return its embeddings with K noisy hops."""
        graph, public = problem.graph, problem.public
        edges = graph.edge_list()
        alone, goal = Arcs.of(edges[:0], graph.devices), goal_of(problem, graph.labels, edges)
        rows = server_rows(features_of(graph), unit=settings.normalise)
        received = Received(rows=rows, arcs=alone, goal=goal, disclosed=[])
        encoder = fit(received, settings, graph, public).network
        with torch.no_grad():
            embedding = encoder.embed(encoder.first(rows, alone), alone)
        sigma = noise_scale(settings.edge_epsilon, settings.delta, settings.steps)
        hops = noisy_hops(embedding, Arcs.of(edges, graph.devices), settings.steps, sigma, public)
        account = "Sums over neighbours carry no noise: edges have no guarantee."
        if math.isfinite(settings.edge_epsilon):
            account = (
                f"Sums over neighbours, {settings.steps} in sequence, carry Gaussian noise of "
                f"standard deviation {sigma:.4g} on rows of norm 1: what the curator releases is "
                f"({settings.edge_epsilon:g}, {settings.delta:g})-private for one undirected edge, "
                "present or not; features and labels have no guarantee."
            )
        return Received(
            rows=torch.cat(hops, dim=1).numpy(),
            arcs=alone,
            goal=goal,
            disclosed=[
                "A trusted curator holds all raw features, labels and edges, and trains on them.",
                account,
            ],
        )


GAP = Gap()
