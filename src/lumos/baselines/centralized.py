"""Ceiling and floor: a server that holds everything, and devices without neighbours."""

from typing import Any

from lumos.baselines.goals import goal_of
from lumos.baselines.network import Arcs, server_rows
from lumos.baselines.systems import BaselineSettings, Received, ServerProblem, System
from lumos.training.problem import features_of


class Centralized(System):
    """A graph network at a server that holds everything."""

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
